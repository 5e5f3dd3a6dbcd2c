"""The notebooks of exercise 8-3: what they show, hide and ask for, and how they fare under nbval."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from servelab.exercises import find_part, parts
from servelab.exercises.judge import judge

ROOT = Path(__file__).resolve().parent.parent
SOLUTION, EXERCISE = ROOT / "solutions/8-3.ipynb", ROOT / "exercises/8-3.ipynb"


def outputs(path):
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    return "\n".join(output.get("text") or output.data["text/plain"] for cell in cells for output in cell.outputs)


def test_the_solution_shows_the_books_numbers():
    text = outputs(SOLUTION)
    assert "{2: [1, 1, 1, 1], 4: [3, 3, 3, 1], 8: [7, 3, 3, 1]}" in text
    assert "{2: (4, 23), 4: (10, 13), 8: (14, 7)}" in text
    assert "8 requests: 9,504 MiB\n16 requests: 19,008 MiB\n32 requests: 38,016 MiB" in text
    assert "8 requests: 3,456 MiB\n16 requests: 6,048 MiB\n32 requests: 11,232 MiB" in text


def nbval(path):
    """(exit status, output) of pytest --nbval, as a learner or a grader runs it."""
    command = [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "--color=no", "-q", "-rf"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "-p", "no:xdist", str(path)],
        cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def failed_inputs(output):
    """First line of each cell that failed. Where the variable CI is set, the summary repeats every message."""
    failures, _, _summary = output.partition("short test summary info")
    return re.findall(r"^Input:\n(.*)", failures, re.MULTILINE)


def solved_notebook(changes):
    """The exercise as a learner saves it: their code, and the outputs that it printed."""
    notebook = nbformat.read(EXERCISE, as_version=4)
    for cell in notebook.cells:
        for old, (source, output) in changes.items():
            if cell.cell_type == "code" and old in cell.source:
                cell.source = source or cell.source
                cell.outputs = [nbformat.v4.new_output("stream", text=output)] if output else []
    return notebook


def test_the_solution_passes_nbval():
    status, output = nbval(SOLUTION)
    assert status == 0, output


def test_the_untouched_exercise_fails_nbval_and_names_each_part():
    status, output = nbval(EXERCISE)
    assert status == 1
    for part in parts("8-3"):
        assert f"\n{part.id}: not answered yet.\n" in output
    failed = [line.partition(",")[0] for line in failed_inputs(output)]
    assert failed == [f'check("{part.id}"' for part in parts("8-3")]


def test_a_notebook_saved_with_a_wrong_verdict_does_not_pass(tmp_path):
    """Its stored output is what it prints again, so that comparing outputs alone would let it through."""
    code = "def unused_slots(lengths, block_size):\n    return [n % block_size for n in lengths]"
    message = judge(find_part("8-3a"), lambda lengths, p: [n % p for n in lengths]).text
    notebook = solved_notebook({
        "def unused_slots": (code, None),
        'check("8-3a"': (None, f"{message}\n"),
        "price = ...": ('price = "c"', None),
    })  # fmt: skip
    nbformat.write(notebook, tmp_path / "8-3.ipynb")
    status, output = nbval(tmp_path / "8-3.ipynb")
    assert status == 1
    assert message in output
    assert 'check("8-3a", unused_slots)' in failed_inputs(output)
    assert 'check("8-3f", price)' not in failed_inputs(output)


def test_exit_in_a_function_does_not_end_the_kernel(tmp_path):
    """Jupyter's `exit` asks for the end and returns; the kernel goes a moment later."""
    cells = {
        "import time\nfrom servelab.exercises import find_part\nfrom servelab.exercises.judge import judge": "",
        "def f(requests):\n    exit()": "",
        'print("raised SystemExit" in judge(find_part("8-3e"), f).text)': "True\n",
        'time.sleep(1)\nprint("still here")': "still here\n",
    }
    notebook = nbformat.v4.new_notebook()
    for source, text in cells.items():
        cell = nbformat.v4.new_code_cell(source, execution_count=1)
        cell.outputs = [nbformat.v4.new_output("stream", text=text)] if text else []
        notebook.cells.append(cell)
    nbformat.write(notebook, tmp_path / "exit.ipynb")
    status, output = nbval(tmp_path / "exit.ipynb")
    assert status == 0, output


def test_the_titles_tell_the_two_apart_and_the_head_where_to_work():
    for path, kind in ((SOLUTION, "Solution"), (EXERCISE, "Exercise")):
        first, *others = [cell.source for cell in nbformat.read(path, as_version=4).cells]
        assert first == f"# {kind} 8-3: block size, shared prefixes and capacity"
        head = "\n".join(others[:2])
        assert "**Work it in Jupyter:** `make lab` in a copy of the repository" in head
        assert "**Needs:** Python 3.11 or newer." in head
        assert "the book's packages" in head


def test_the_exercise_shows_no_answer():
    assert outputs(EXERCISE).split("\n")[::2] == [f"{part.id}: right." for part in parts("8-3")]
    text = EXERCISE.read_text("utf-8")
    for hidden in ("SOLUTION", "common_after", "19,008", "6,048", "(10, 13)"):
        assert hidden in SOLUTION.read_text("utf-8")
        assert hidden not in text


@pytest.mark.parametrize("path", [SOLUTION, EXERCISE], ids=["solution", "exercise"])
def test_the_notebook_asks_for_what_is_checked(path):
    """Names and parameters of its functions, and the options of its choice, are those of the parts."""
    cells = nbformat.read(path, as_version=4).cells
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    functions = {node.name: node for node in ast.parse(code).body if isinstance(node, ast.FunctionDef)}
    for part in parts("8-3")[:-1]:
        function = functions[part.expected.__name__]
        assert [argument.arg for argument in function.args.args] == part.arguments
        assert f'check("{part.id}", {function.name})' in code
    prose = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    for letter, text in find_part("8-3f").options.items():
        assert f'- `"{letter}"`: {text}' in prose
