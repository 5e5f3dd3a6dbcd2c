"""The notebooks of exercise 8-3: its numbers, and notebooks that a learner changed, under nbval."""

import nbformat
from test_exercise_notebooks import failed_inputs, nbval, outputs, paths

from servelab.exercises import find_part
from servelab.exercises.judge import judge

SOLUTION, EXERCISE = paths("8-3").values()


def test_the_solution_shows_the_books_numbers():
    text = outputs(SOLUTION)
    assert "{2: [1, 1, 1, 1], 4: [3, 3, 3, 1], 8: [7, 3, 3, 1]}" in text
    assert "{2: (4, 23), 4: (10, 13), 8: (14, 7)}" in text
    assert "8 requests: 9,504 MiB\n16 requests: 19,008 MiB\n32 requests: 38,016 MiB" in text
    assert "8 requests: 3,456 MiB\n16 requests: 6,048 MiB\n32 requests: 11,232 MiB" in text


def solved_notebook(changes):
    """The exercise as a learner saves it: their code, and the outputs that it printed."""
    notebook = nbformat.read(EXERCISE, as_version=4)
    for cell in notebook.cells:
        for old, (source, output) in changes.items():
            if cell.cell_type == "code" and old in cell.source:
                cell.source = source or cell.source
                cell.outputs = [nbformat.v4.new_output("stream", text=output)] if output else []
    return notebook


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
