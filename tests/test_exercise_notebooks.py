"""The notebooks of the exercises: what they ask for and hide, and how they fare under nbval."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from servelab.exercises import exercise_ids, parts
from servelab.exercises.part import Choice, Part
from servelab.site.lab import lab_notebooks

ROOT = Path(__file__).resolve().parent.parent
# What a solution shows and its exercise must not.
HIDDEN = {
    "8-1": ("{2048: 51, 8192: 13}", "{2048: 37, 8192: 10}", "{2048: 14, 8192: 3}", "1.16 GiB", "step_bytes"),
    "8-2": ("{0: 131328, 7680: 4063488}", "163.33 ms", "step of 376.0 ms", "149.42 ms", "50: (512, 8192)", "inside ="),
    "8-3": ("19,008", "6,048", "(10, 13)", "common_after"),
    "8-4": ("133.2 ms", "100.1 ms", "45.8 %", "found 83.4%", "found 0.0%", "saved_by_hit"),
    "8-6": ("612.0 MiB", "334.1 MiB", "[5, 6]", "4 became wrong", "all attempts 9.99 s", "succeeded ="),
    "8-7": ("1.75 tokens", "13.34 ms", "16.76 ms", "60.68", "4 draft tokens", "positions ="),
    "8-8": ("75 s", "1.418 times", "37.5 s", "1.429 times", "saved_s =", "others_s ="),
    "8-9": ("5.5536 s", "6,048 MiB", "12 GiB, 256 tokens: D", "rounds =", "feasible =", "good ="),
    "8-5": ("free: 2,304 MiB", "buffers: 2, requests: 1", "42.5 ms", "1,540.1 ms", "693.07", "99.01", "freed ="),
}
EXERCISES = list(HIDDEN)


def paths(exercise):
    return {kind: ROOT / kind / f"{exercise}.ipynb" for kind in ("solutions", "exercises")}


def cells(path, cell_type):
    return [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == cell_type]


def outputs(path):
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    return "\n".join(output.get("text") or output.data["text/plain"] for cell in cells for output in cell.outputs)


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


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_solution_passes_nbval(exercise):
    status, output = nbval(paths(exercise)["solutions"])
    assert status == 0, output


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_untouched_exercise_fails_nbval_and_names_each_part(exercise):
    status, output = nbval(paths(exercise)["exercises"])
    assert status == 1
    for part in parts(exercise):
        assert f"\n{part.id}: not answered yet.\n" in output
    failed = [line.partition(",")[0] for line in failed_inputs(output)]
    assert failed == [f'check("{part.id}"' for part in parts(exercise)]


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_exercise_shows_no_answer(exercise):
    solution, untouched = paths(exercise).values()
    assert outputs(untouched).split("\n")[::2] == [f"{part.id}: right." for part in parts(exercise)]
    shown = outputs(solution) + "\n".join(cells(solution, "code"))
    for hidden in ("SOLUTION", *HIDDEN[exercise]):
        assert hidden in shown
        assert hidden not in untouched.read_text("utf-8")


@pytest.mark.parametrize("exercise", EXERCISES)
@pytest.mark.parametrize("kind", ["solutions", "exercises"])
def test_the_notebook_asks_for_what_is_checked(exercise, kind):
    """Names and parameters of its functions, and the options of its choices, are those of the parts."""
    path = paths(exercise)[kind]
    code, prose = ("\n".join(cells(path, cell_type)) for cell_type in ("code", "markdown"))
    functions = {node.name: node for node in ast.parse(code).body if isinstance(node, ast.FunctionDef)}
    for part in parts(exercise):
        if isinstance(part, Choice):
            for letter, text in part.options.items():
                assert f'- `"{letter}"`: {text}' in prose
        elif isinstance(part, Part):
            function = functions[part.expected.__name__]
            assert [argument.arg for argument in function.args.args] == part.arguments
            assert f'check("{part.id}", {function.name})' in code
        assert f'# hint("{part.id}")' in code


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_titles_tell_the_two_apart(exercise):
    solution, untouched = ("\n".join(cells(path, "markdown")) for path in paths(exercise).values())
    assert solution.startswith(f"# Solution {exercise}: ")
    assert untouched.startswith("# Exercise" + solution.partition("\n")[0].removeprefix("# Solution"))
    work = "Jupyter:** `make lab` in a copy of the repository"
    for text in (work, "Python 3.11 or newer", "the book's packages", "**Time:**", "**Section:** "):
        assert text in untouched
        assert text in solution
    in_the_lab = Path(f"exercises/{exercise}.ipynb") in lab_notebooks(ROOT)
    assert ("**Work it in your browser:**" in untouched) == in_the_lab


def test_the_page_of_exercises_lists_each_with_its_title_and_time():
    page = (ROOT / "book/exercises.md").read_text("utf-8")
    assert exercise_ids() == sorted(HIDDEN)
    for exercise in exercise_ids():
        head = cells(paths(exercise)["exercises"], "markdown")
        title = head[0].partition("\n")[0].removeprefix("# Exercise ")
        (minutes,) = re.findall(r"\*\*Time:\*\* about (\d+ minutes)", "\n".join(head))
        (entry,) = re.findall(rf"^\*\*\[{re.escape(title)}\]\(.*\)\*\*\n: (.*(?:\n  .*)*)", page, re.MULTILINE)
        assert entry.startswith(f"{minutes}, with [")
        assert f"[Solution](../solutions/{exercise}.ipynb)" in entry
