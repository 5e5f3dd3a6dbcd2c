"""Makes exercises/*.ipynb from solutions/*.ipynb. Solutions are the source; exercises are never edited.

    python tools/make_exercises.py            write every exercise
    python tools/make_exercises.py --check    only compare; exit 1 and name each exercise that differs

The title's word "Solution" becomes "Exercise". What stands between `### BEGIN SOLUTION` and `### END SOLUTION`
becomes a stub. Cells tagged `solution` are left out. Cells that call `check` keep the output of the right answer,
which nbval compares; all other outputs go.
"""

import argparse
import ast
import re
import sys
import textwrap
from pathlib import Path

import nbformat
from notebooks import normalised

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"


def stub(lines):
    """What a learner finds in place of `lines`: a lone assignment keeps its name, which later lines use."""
    indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    try:
        statements = ast.parse(textwrap.dedent("\n".join(lines))).body
    except SyntaxError as error:
        raise ValueError(f"a solution must be whole statements: {error}") from error
    if [type(statement) for statement in statements] == [ast.Assign]:
        target = ast.unparse(statements[0].targets[0])
        return f"{indent}{target} = ...  # your answer here"
    return f"{indent}...  # your code here"


def without_solutions(source):
    """`source` with each marked region replaced. Raises `ValueError` where a mark lacks its partner."""
    kept, region = [], None
    for line in source.splitlines():
        mark = line.strip()
        if mark == BEGIN and region is None:
            region = []
        elif mark == END and region:
            kept.append(stub(region))
            region = None
        elif mark in (BEGIN, END):
            raise ValueError(f"{mark} without its partner, or nothing between the two")
        else:
            (kept if region is None else region).append(line)
    if region is not None:
        raise ValueError(f"{BEGIN} without its partner")
    return "\n".join(kept)


def titled(cell):
    """The source of the first cell with the exercise's title. Raises `ValueError` if it is not "# Solution ..."."""
    source, found = re.subn(r"\A# Solution\b", "# Exercise", cell.source)
    if not found:
        raise ValueError(f"the first line must start with '# Solution', not {cell.source.partition(chr(10))[0]!r}")
    return source


def calls_check(source):
    """Whether the cell's last line checks an answer."""
    return source.rstrip().rpartition("\n")[2].startswith("check(")


def add_tag(cell, tag):
    tags = cell.metadata.get("tags", [])
    if tag not in tags:
        cell.metadata["tags"] = [*tags, tag]


def exercise(notebook):
    """The text of the exercise that belongs to the solved `notebook`. Changes the notebook."""
    notebook.cells = [cell for cell in notebook.cells if "solution" not in cell.metadata.get("tags", [])]
    notebook.cells[0].source = titled(notebook.cells[0])
    for index, cell in enumerate(notebook.cells):
        if cell.cell_type != "code":
            continue
        try:
            cell.source = without_solutions(cell.source)
        except ValueError as error:
            raise ValueError(f"code cell at position {index}: {error}") from error
        if calls_check(cell.source):
            add_tag(cell, "remove-output")  # on the website a verdict below an empty answer would puzzle
        else:
            cell.outputs = []
            add_tag(cell, "nbval-ignore-output")  # a learner's own output is not compared with the stored one
    return normalised(notebook)


def main(folder=ROOT, arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if an exercise differs")
    check = parser.parse_args(arguments).check
    wanted = {}
    for path in sorted((folder / "solutions").glob("*.ipynb")):
        try:
            wanted[folder / "exercises" / path.name] = exercise(nbformat.read(path, as_version=4))
        except ValueError as error:
            sys.exit(f"{path.relative_to(folder)}: {error}")
    differing = [path for path, text in wanted.items() if not path.exists() or path.read_text("utf-8") != text]
    strays = sorted(set((folder / "exercises").glob("*.ipynb")) - set(wanted))
    for path in differing:
        print(f"{path.relative_to(folder)}: {'is not what its solution makes' if check else 'written'}")
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(wanted[path], encoding="utf-8", newline="\n")
    for path in strays:
        print(f"{path.relative_to(folder)}: has no solution")
    if strays or (check and differing):
        sys.exit("Run python tools/make_exercises.py; edit solutions, never exercises.")


if __name__ == "__main__":
    main()
