"""Exercises are what tools/make_exercises.py makes of solutions."""

from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def maker(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import make_exercises

    return make_exercises


def test_exercises_are_what_the_generator_makes(maker, capsys):
    maker.main(arguments=["--check"])
    assert capsys.readouterr().out == ""


def test_a_region_becomes_a_stub_of_its_indentation(maker):
    source = "def f(n):\n    ### BEGIN SOLUTION\n    m = n\n    return m\n    ### END SOLUTION\n\nf(1)"
    assert maker.without_solutions(source) == "def f(n):\n    ...  # your code here\n\nf(1)"


def test_an_assignment_keeps_its_name(maker):
    source = '### BEGIN SOLUTION\nbest = "b"  # because\n### END SOLUTION\ncheck("8-3f", best)'
    assert maker.without_solutions(source) == 'best = ...  # your answer here\ncheck("8-3f", best)'


def notebook(*sources):
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(source) for source in sources])


def test_the_title_says_exercise(maker):
    made = maker.exercise(notebook("# Solution 1-2: a Solution\n\n# Solution", "# Solution"))
    sources = [cell.source for cell in nbformat.reads(made, as_version=4).cells]
    assert sources == ["# Exercise 1-2: a Solution\n\n# Solution", "# Solution"]


@pytest.mark.parametrize("title", ["# Exercise 1-2: blocks", "# Solutions", "Text\n# Solution 1-2", "## Solution 1-2"])
def test_another_title_is_refused(maker, title):
    with pytest.raises(ValueError, match="the first line must start with '# Solution'"):
        maker.exercise(notebook(title))


@pytest.mark.parametrize(
    "source",
    [
        "### BEGIN SOLUTION\nx = 1",
        "x = 1\n### END SOLUTION",
        "### BEGIN SOLUTION\n### END SOLUTION",
        "### BEGIN SOLUTION\nx = 1\n### BEGIN SOLUTION\n### END SOLUTION",
        "if x:\n    y\n### BEGIN SOLUTION\nelse:\n    z\n### END SOLUTION",
    ],
)
def test_marks_without_partner_and_half_statements_are_refused(maker, source):
    with pytest.raises(ValueError, match=r"partner|whole statements"):
        maker.without_solutions(source)


def test_check_names_an_edited_exercise_and_one_without_solution(maker, tmp_path, capsys):
    for folder in ("solutions", "exercises"):
        (tmp_path / folder).mkdir()
    (tmp_path / "solutions/8-3.ipynb").write_bytes((ROOT / "solutions/8-3.ipynb").read_bytes())
    edited = (ROOT / "exercises/8-3.ipynb").read_text("utf-8").replace("your code here", "my code here")
    (tmp_path / "exercises/8-3.ipynb").write_text(edited, "utf-8")
    (tmp_path / "exercises/8-0.ipynb").write_text("{}", "utf-8")
    with pytest.raises(SystemExit) as stop:
        maker.main(tmp_path, ["--check"])
    assert stop.value.code not in (0, None)
    out = capsys.readouterr().out
    assert "exercises/8-3.ipynb: is not what its solution makes" in out
    assert "exercises/8-0.ipynb: has no solution" in out
    (tmp_path / "exercises/8-0.ipynb").unlink()
    maker.main(tmp_path, [])
    maker.main(tmp_path, ["--check"])
