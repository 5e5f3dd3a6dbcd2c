"""Runs the committed notebooks and keeps them in one form, so that a diff shows only what someone changed.

python tools/notebooks.py execute FILE...               run each in a fresh kernel and keep its outputs
python tools/notebooks.py normalise [--check] FILE...   rewrite each in the committed form, or only compare
"""

import argparse
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import nbformat
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from servelab.notebooks import client_for

SECONDS_A_CELL = 900
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
LANGUAGE = {"name": "python", "pygments_lexer": "ipython3"}
RECORD = "servelab"  # the key under which a notebook says with what it was executed
PACKAGES = ("numpy", "torch", "numba", "plotly", "servelab")
DEAD_WIDGET = "application/vnd.jupyter.widget-view+json"  # points at a kernel that is gone


class NotebookError(Exception):
    """A cell failed; says which, of what notebook, and how."""


def forget_results(notebook):
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None


def record():
    """The date, and the versions that run a notebook now. A build's own suffix (torch's `+cpu`) is left out."""
    packages = {name: version(name).partition("+")[0] for name in PACKAGES}
    python = ".".join(platform.python_version_tuple()[:2])
    return {"executed": datetime.now(UTC).date().isoformat(), "python": python, "packages": packages}


def execute(path):
    """Run one notebook in its own folder and keep its outputs; on an error nothing is written."""
    notebook = nbformat.read(path, as_version=4)
    forget_results(notebook)
    started = []
    client = client_for(
        notebook,
        path.parent,
        timeout=SECONDS_A_CELL,
        on_cell_start=lambda cell, cell_index: started.append(cell_index),
    )
    try:
        client.execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        raise NotebookError(f"{path}: cell {started[-1]} failed\n{error}") from error
    notebook.metadata[RECORD] = record()
    path.write_text(normalised(notebook), encoding="utf-8", newline="\n")


def merged_streams(outputs):
    """Outputs in which neighbours of one stream are one: how often a kernel flushes is chance."""
    merged = []
    for output in outputs:
        last = merged[-1] if merged else None
        if last and output.output_type == last.output_type == "stream" and output.name == last.name:
            last.text += output.text
        else:
            merged.append(output)
    return merged


def clean_output(output, count):
    """Without what only the session that made it could use."""
    if "metadata" in output:
        output.metadata.pop(DEAD_WIDGET, None)
    if "data" in output:
        output.data.pop(DEAD_WIDGET, None)
    if output.output_type == "execute_result":
        output.execution_count = count
    return output


def is_empty(output):
    """Whether nothing is left of a display."""
    return "data" in output and not output.data


def normalised(notebook):
    """The text of the notebook in its committed form. Changes the notebook."""
    executed = {RECORD: notebook.metadata[RECORD]} if RECORD in notebook.metadata else {}
    notebook.metadata = {"kernelspec": KERNEL, "language_info": LANGUAGE, **executed}
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    count = 0
    for index, cell in enumerate(notebook.cells):
        cell.id = f"cell-{index:02d}"
        cell.metadata = {"tags": cell.metadata.tags} if cell.metadata.get("tags") else {}
        if cell.cell_type == "code":
            count += 1
            cell.execution_count = count
            outputs = [clean_output(output, count) for output in merged_streams(cell.outputs)]
            cell.outputs = [output for output in outputs if not is_empty(output)]
    notebook = nbformat.from_dict(notebook)
    nbformat.validate(notebook)
    return nbformat.writes(notebook) + "\n"


def normalise(path, check=False):
    """Bring one file into the committed form; with check only say whether it is in it. True if it was."""
    before = path.read_text(encoding="utf-8")
    after = normalised(nbformat.reads(before, as_version=4))
    if after != before and not check:
        path.write_text(after, encoding="utf-8", newline="\n")
    return after == before


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("action", choices=["execute", "normalise"])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file would change")
    parser.add_argument("files", nargs="+", type=Path)
    arguments = parser.parse_args()
    if arguments.action == "execute":
        for path in arguments.files:
            print(f"{path}: running", flush=True)
            try:
                execute(path)
            except NotebookError as error:
                sys.exit(str(error))
        return
    changed = [path for path in arguments.files if not normalise(path, arguments.check)]
    for path in changed:
        print(f"{path}: {'is not normalised' if arguments.check else 'normalised'}")
    if arguments.check and changed:
        sys.exit("Run `make notebooks`, or python tools/notebooks.py normalise FILE")


if __name__ == "__main__":
    main()
