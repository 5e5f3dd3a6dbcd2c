"""Grading: what learners hand in, right, wrong, endless, crashing, edited or damaged; and the reports on it."""

import csv
import io
from pathlib import Path
from xml.etree import ElementTree

import nbformat
import pytest

from servelab import __main__ as commands
from servelab.exercises import parts
from servelab.grading import reports
from servelab.grading.notebook import Grade, grade_notebook
from servelab.grading.submissions import Check, Submission, checks, left_out, submissions

ROOT = Path(__file__).resolve().parent.parent
IDS = [part.id for part in parts("8-1")]
RIGHT_READS = "def read_bytes_per_token(b, n, w, t):\n    return w / b + n * t"
IMPORT = "from servelab.check import check, hint"


def hand_in(folder, *cells, name="8-1.ipynb"):
    """A notebook with these code cells in `folder`, and what it is for a grader."""
    folder.mkdir(parents=True, exist_ok=True)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbformat.write(notebook, folder / name)
    return Submission(folder.name, "8-1", folder / name)


def kinds(submission, **limits):
    return {grade.part_id: grade.kind for grade in grade_notebook(submission, **limits)}


def only(**found):
    """All parts of 8-1 missing but these: `a="right"`."""
    return {part_id: found.get(part_id[-1], "missing") for part_id in IDS}


def test_the_solution_is_right_and_the_untouched_exercise_is_not_answered():
    for kind, verdict in (("solutions", "right"), ("exercises", "not answered")):
        found = kinds(Submission("", "8-1", ROOT / kind / "8-1.ipynb"))
        assert found == dict.fromkeys(IDS, verdict)


def test_each_answer_gets_the_verdict_of_the_packages_own_check(tmp_path):
    submission = hand_in(
        tmp_path,
        IMPORT,
        RIGHT_READS,
        'check("8-1a", read_bytes_per_token)',
        "def check(part_id, answer):\n    print(f'{part_id}: right.')",  # from here on the notebook's own
        'check("8-1b", lambda n, w, t: w // (n * t))',
        'check(" 8-1E", "A")',
        "# check('8-1c', read_bytes_per_token)",
    )
    assert kinds(submission) == only(a="right", b="known mistake", e="known mistake")


def test_a_printed_verdict_is_no_check(tmp_path):
    assert kinds(hand_in(tmp_path, IMPORT, 'print("8-1a: right.")')) == only()


def test_the_last_check_of_a_part_counts_and_names_without_value_are_errors(tmp_path):
    cells = [IMPORT, RIGHT_READS, 'check("8-1a", read_bytes_per_token)', 'check("8-1a", undefined)']
    (grade, *_) = grade_notebook(hand_in(tmp_path, *cells))
    assert (grade.kind, grade.message) == ("error", "NameError: name 'undefined' is not defined")


@pytest.mark.parametrize(
    "endless",
    [
        "while True:\n    pass",
        "def endless(n, w, t):\n    while True:\n        pass\ncheck('8-1b', endless)",
    ],
    ids=["cell", "function"],
)
def test_an_endless_loop_costs_its_own_part_only(tmp_path, endless):
    submission = hand_in(tmp_path, IMPORT, RIGHT_READS, endless, 'check("8-1a", read_bytes_per_token)')
    found = kinds(submission, seconds_a_cell=3)
    assert found == (only(a="right", b="time limit") if "check" in endless else only(a="right"))


def test_a_loop_that_no_interrupt_ends_is_left_behind(tmp_path):
    stubborn = "import time\nwhile True:\n    try:\n        time.sleep(1)\n    except KeyboardInterrupt:\n        pass"
    submission = hand_in(tmp_path, IMPORT, RIGHT_READS, stubborn, 'check("8-1a", read_bytes_per_token)')
    assert kinds(submission, seconds=6, seconds_a_cell=3) == only(a="not reached")


def test_a_crash_keeps_what_was_graded_before(tmp_path):
    cells = [IMPORT, RIGHT_READS, 'check("8-1a", read_bytes_per_token)', "import os\nos._exit(1)", 'check("8-1e", "c")']
    grades = grade_notebook(hand_in(tmp_path, *cells))
    assert {grade.part_id: grade.kind for grade in grades} == only(a="right", e="not reached")
    assert grades[-1].message == "the kernel died in code cell 4."


def test_memory_is_limited(tmp_path):
    hog = "def hog(b, n, w, t):\n    return len(bytes(2**30)) * w / b + n * t"
    (grade, *_) = grade_notebook(hand_in(tmp_path, IMPORT, hog, 'check("8-1a", hog)'), memory_mib=1536)
    assert grade.kind == "off"
    assert "MemoryError" in grade.message


def test_cells_with_magics_are_read_and_others_that_do_not_parse_hold_no_check():
    assert checks("%prun check('8-1a', f)") == []  # a magic's argument is text, not a call
    for timed in ("%time check('8-1a', f)", "%%time\ncheck('8-1a', f)", "check(answer=f, part_id='8-1a')"):
        assert checks(timed) == [Check("8-1a", "f")]
    assert checks("%config x\ncheck('8-1A ', lambda b: b)") == [Check("8-1a", "lambda b: b")]
    assert checks("exercises.check('8-1a', f)") == [Check("8-1a", "f")]
    assert checks("check('8-1a', f") == checks("check(part, f)") == checks("check('8-1a')") == []
    assert checks("x = " + "-" * 100_000 + "1") == checks("check('8-1a', '\ud800')") == []


CELL = '{"cell_type": "code", "metadata": {}, "execution_count": null, "outputs": [], "source": %s}'
NOTEBOOK = '{"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": %s}'


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"nbformat": 1}', NOTEBOOK % "null", NOTEBOOK % "[null]", NOTEBOOK % "[{}]"]
    + [NOTEBOOK % f"[{CELL % source}]" for source in ("null", "3", "{}", '["a", 1]', '"\\ud800"')],
)
def test_a_damaged_notebook_is_reported(tmp_path, text):
    path = tmp_path / "8-1.ipynb"
    path.write_text(text, encoding="utf-8")
    (first, *_) = grades = grade_notebook(Submission("ann", "8-1", path))
    assert {grade.kind for grade in grades} == {"unreadable"}
    assert str(path) in first.message


def test_a_verdict_that_a_function_displays_is_not_the_last(tmp_path):
    cheat = (
        "def f(b, n, w, t):\n"
        "    display({'application/vnd.servelab.verdict+json': {'kind': 'right', 'message': ''}}, raw=True)\n"
        "    return 1"
    )
    assert kinds(hand_in(tmp_path, IMPORT, cheat, 'check("8-1a", f)')) == only(a="off")


def test_an_answer_without_name_says_what_went_wrong_before(tmp_path):
    submission = hand_in(
        tmp_path, IMPORT, "def f(:", "f2 = 1 / 0", 'check("8-1a", f)', "while True: pass", 'check("8-1b", g)'
    )
    first, second, *_ = grade_notebook(submission, seconds_a_cell=2)
    assert first.message.startswith("NameError: name 'f' is not defined (code cell 2 before it raised SyntaxError")
    assert (first.kind, second.kind) == ("error", "error")


def test_folders_of_learners(tmp_path):
    for folder, name in (("ann", "8-1.ipynb"), ("bob/week 1", "my 8-3 (2).ipynb"), ("ann", "notes.ipynb")):
        hand_in(tmp_path / folder, name=name)
    hand_in(tmp_path / "ann/.ipynb_checkpoints", name="8-1-checkpoint.ipynb")
    found = [(each.learner, each.exercise) for each in submissions([tmp_path])]
    assert found == [("ann", "8-1"), ("bob/week 1", "8-3")]
    assert [(each.learner, each.exercise) for each in submissions([tmp_path / "ann"])] == [("ann", "8-1")]
    with pytest.raises(ValueError, match="no such folder"):
        submissions([tmp_path / "zoe"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no notebook in it is named after"):
        submissions([tmp_path / "empty"])
    for name in ("2026-08-12 8-8.ipynb", "exercise-8-3-final.ipynb", "2026-8-1.ipynb", "8-1-2026.ipynb", "18-12.ipynb"):
        hand_in(tmp_path / "dates", name=name)
    assert [each.exercise for each in submissions([tmp_path / "dates"])] == ["8-3", "8-8"]
    names = [path.name for path in left_out([tmp_path])]
    assert names == ["notes.ipynb", "18-12.ipynb", "2026-8-1.ipynb", "8-1-2026.ipynb"]
    hand_in(tmp_path / "ann", name="8-1 copy.ipynb")
    with pytest.raises(ValueError, match="both are exercise 8-1 of 'ann'"):
        submissions([tmp_path])


@pytest.mark.parametrize(("limit", "value"), [("seconds", 0), ("seconds_a_cell", 0.5), ("memory_mib", 100)])
def test_bad_limits(tmp_path, limit, value):
    with pytest.raises(ValueError, match=f"{limit} is {value}"):
        grade_notebook(Submission("ann", "8-1", tmp_path / "8-1.ipynb"), **{limit: value})


GRADES = [
    Grade("ann", "8-1", "8-1a", "right", "right."),
    Grade("ann", "8-1", "8-1b", "off", 'not right yet.\n    n = 1, "x" < \x07'),
    Grade("bob", "8-1", "8-1a", "missing", "no check of this part is in the notebook."),
]


def test_reports():
    assert reports.score_table(GRADES) == "ann  8-1  1/2  8-1b off\nbob  8-1  0/1  8-1a missing"
    assert reports.parts_table(GRADES[:2]) == "8-1  1 of 2 right\n  8-1a  right.\n  8-1b  off: not right yet."
    rows = list(csv.DictReader(io.StringIO(reports.csv_text(GRADES))))
    assert [(row["learner"], row["part"], row["verdict"]) for row in rows] == [
        ("ann", "8-1a", "right"), ("ann", "8-1b", "off"), ("bob", "8-1a", "missing"),
    ]  # fmt: skip
    ann, bob = ElementTree.fromstring(reports.junit_xml(GRADES))
    assert (ann.attrib, bob.get("errors")) == ({"name": "ann 8-1", "tests": "2", "failures": "1", "errors": "0"}, "1")
    assert [[child.tag for child in case] for case in ann] == [[], ["failure"]]
    assert ann[1][0].text == 'not right yet.\n    n = 1, "x" < ?'
    assert bob[0][0].tag == "error"


def test_ctrl_c_keeps_what_was_graded(tmp_path, monkeypatch, capsys):
    for name in ("ann", "bob", "zoe"):
        hand_in(tmp_path / name)

    def graded(submission, **_):
        if submission.learner == "zoe":
            raise KeyboardInterrupt
        return [Grade(submission.learner, "8-1", "8-1a", "right", "right.")]

    monkeypatch.setattr("servelab.grading.notebook.grade_notebook", graded)
    table = tmp_path / "out.csv"
    assert commands.main(["grade", str(tmp_path), "--csv", str(table)]) == 130
    assert [line.partition(",")[0] for line in table.read_text("utf-8").splitlines()[1:]] == ["ann", "bob"]
    assert "2 of 3 notebooks" in capsys.readouterr().err


def test_the_commands(tmp_path, capsys):
    hand_in(tmp_path / "ann", IMPORT, RIGHT_READS, 'check("8-1a", read_bytes_per_token)')
    junit, table = tmp_path / "out.xml", tmp_path / "out.csv"
    assert commands.main(["grade", str(tmp_path), "--junit", str(junit), "--csv", str(table)]) == 0
    assert "ann  8-1  1/5  8-1b missing" in capsys.readouterr().out
    assert ElementTree.parse(junit).getroot()[0].get("errors") == "4"
    assert table.read_text("utf-8").count("\n") == 6
    assert commands.main(["progress", str(tmp_path / "ann")]) == 0
    assert "8-1  1 of 5 right\n  8-1a  right.\n  8-1b  missing: no check" in capsys.readouterr().out
    assert commands.main(["grade", str(tmp_path), "--csv", str(tmp_path / "nowhere/out.csv")]) == 1
    assert "--csv is" in capsys.readouterr().err
    assert commands.main(["grade", str(tmp_path), "--junit", str(tmp_path)]) == 1
    assert "--junit is" in capsys.readouterr().err
    assert commands.main(["progress", str(tmp_path / "nobody")]) == 1
    assert "no such folder" in capsys.readouterr().err
