"""`check` and `hint`, and what every part of every exercise must satisfy."""

import dataclasses
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from servelab import check as check_module
from servelab.check import NotRight, check, hint
from servelab.exercises import exercise_ids, find_part, parts
from servelab.exercises.judge import judge, run
from servelab.exercises.part import Choice, Part, size
from servelab.exercises.values import plain

ALL = [part for exercise in exercise_ids() for part in parts(exercise)]
FUNCTIONS = [part for part in ALL if isinstance(part, Part)]
CHOICES = [part for part in ALL if isinstance(part, Choice)]
WRONG = [pytest.param(part, wrong, id=f"{part.id}-{wrong.name}") for part in FUNCTIONS for wrong in part.wrong]


def by_id(part):
    return part.id


@pytest.fixture(autouse=True)
def learner(monkeypatch):
    """As in a learner's kernel: no pytest, no hint given yet."""
    monkeypatch.delenv("PYTEST_VERSION", raising=False)
    monkeypatch.setattr(check_module, "_hints_given", {})


@pytest.mark.parametrize("part", FUNCTIONS, ids=by_id)
def test_the_right_function_prints_one_line(part, capsys):
    check(part.id, part.expected)
    assert capsys.readouterr().out == f"{part.id}: right.\n"


def test_where_a_number_is_asked_for_a_float_is_right():
    """As `np.ceil` and `np.sum` make them of whole numbers."""
    numbers = [part for part in FUNCTIONS if "number" in part.returns and "int" not in part.returns]
    assert len(numbers) > 10
    for part in numbers:

        def in_floats(*case, part=part):
            return np.asarray(part.expected(*case), dtype=float)

        assert judge(part, in_floats).right, part.id


@pytest.mark.parametrize(("part", "wrong"), WRONG)
def test_each_known_mistake_gets_its_message(part, wrong, capsys):
    check(part.id, wrong.compute)
    assert capsys.readouterr().out == f"{part.id}: {wrong.message}\n"


@pytest.mark.parametrize("part", FUNCTIONS, ids=by_id)
def test_at_least_five_known_mistakes(part):
    assert len({wrong.message for wrong in part.wrong}) >= 5


@pytest.mark.parametrize("part", FUNCTIONS, ids=by_id)
def test_book_numbers_alone_are_not_enough(part):
    """A table of the book's answers fails, whether it has an answer for other inputs or not."""

    def table(*case):
        return next((part.expected(*known) for known in part.book if known == case), part.expected(*part.book[0]))

    verdict = judge(part, table)
    assert verdict.kind == "off"
    assert verdict.message.startswith("right on the book's numbers")
    assert judge(part, lambda *case: part.expected(*part.book[0])).kind in ("off", "known mistake")


@pytest.mark.parametrize("part", FUNCTIONS, ids=by_id)
def test_cases_are_sorted_and_the_same_each_time(part):
    cases = part.cases()
    assert cases == part.cases()
    assert cases == sorted(cases, key=size)


def reveals(text, expected):
    """Whether `text` names the expected value: as a list or tuple in full, as a number with or without commas."""
    if isinstance(expected, list):
        return any(str(form) in text for form in (expected, tuple(expected)))
    numbers = re.findall(r"(?<![\w#.])-?[\d,]*\d(?![\w.])", text)
    return any(number.replace(",", "") == str(expected) for number in numbers)


def smallest_miss(part, function):
    for case in part.cases():
        value, expected = run(function, case).value, plain(part.expected(*case))
        if value != expected:
            return case, value, expected
    raise AssertionError("right everywhere")


@pytest.mark.parametrize(("part", "wrong"), WRONG)
def test_no_verdict_holds_the_expected_value(part, wrong):
    case, value, expected = smallest_miss(part, wrong.compute)
    assert not reveals(judge(part, wrong.compute).message, expected)  # without the part's id, which has numbers

    # As if nobody knew the mistake: the counter-example, less what it repeats of input and answer.
    text = judge(dataclasses.replace(part, wrong=()), wrong.compute).message
    for said in sorted((*map(repr, case), repr(value)), key=len, reverse=True):  # "= 3" also begins "= 30"
        text = text.replace(f"= {said}", "=").replace(f"returned {said}", "returned")
    assert not reveals(text, expected)


def test_reveals_finds_numbers_and_lists():
    assert reveals("you need 19,008 of them", 19008)
    assert reveals("(3, 1) it is", [3, 1])
    assert not reveals("block #12 of r12, 12.5", 12)


@pytest.mark.parametrize("part", CHOICES, ids=by_id)
def test_choices(part, capsys):
    assert set(part.wrong) | {part.right} == set(part.options)
    for letter in part.options:
        check(part.id, letter)
        said = "right." if letter == part.right else f"not {letter}. {part.wrong[letter]}"
        assert capsys.readouterr().out == f"{part.id}: {said}\n"
    assert judge(part, f" ({part.right.upper()}) ").right
    for answer in ("z", "", 3, lambda: part.right, ["a"]):
        assert judge(part, answer).kind == "misuse"


@pytest.mark.parametrize("part", ALL, ids=by_id)
def test_hints_come_in_three_steps_and_start_again(part, capsys):
    assert len(set(part.hints)) == 3
    for _ in range(5):
        hint(part.id)
    expected = [f"{part.id}, hint {step} of 3: {text}" for step, text in enumerate(part.hints, start=1)]
    expected.append(f"{part.id}: you have seen all 3 hints. Run this again for the first one.")
    assert capsys.readouterr().out.splitlines() == [*expected, expected[0]]


@pytest.mark.parametrize("part", ALL, ids=by_id)
def test_untouched(part, capsys):
    def with_docstring(*case):
        """What it is to return."""
        ...  # your code here

    def raising(*case):
        raise NotImplementedError

    for answer in (None, ..., *([with_docstring, raising, lambda *case: ...] if part in FUNCTIONS else [])):
        check(part.id, answer)
        assert capsys.readouterr().out == f"{part.id}: not answered yet.\n"


def test_part_ids_start_with_their_exercise():
    for exercise in exercise_ids():
        ids = [part.id for part in parts(exercise)]
        assert ids == [f"{exercise}{letter}" for letter in "abcdefghijklmnop"[: len(ids)]]


def test_an_unknown_part_raises_with_near_matches():
    every = "its parts are 8-3a, 8-3b, 8-3c, 8-3d, 8-3e, 8-3f$"
    with pytest.raises(ValueError, match=f"part_id is '8-3z', which exercise 8-3 does not have; {every}"):
        check("8-3z", 1)
    with pytest.raises(ValueError, match=f"part_id is '8-3', a whole exercise; {every}"):
        check("8-3", 1)
    with pytest.raises(ValueError, match=r"part_id is '8-3-A', which no exercise has; did you mean 8-3a"):
        hint("8-3-A")
    with pytest.raises(ValueError, match="exercise_id is '9-1'"):
        parts("9-1")
    with pytest.raises(ValueError, match="part_id is 7"):
        find_part(7)


def test_ids_may_be_in_capitals(capsys):
    check(" 8-3F", "c")
    hint("8-3F")
    hint("8-3f")
    out = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in out] == ["8-3f", "8-3f, hint 1 of 3", "8-3f, hint 2 of 3"]


def test_under_pytest_a_verdict_other_than_right_also_raises(monkeypatch):
    monkeypatch.setenv("PYTEST_VERSION", "9")
    check("8-3f", "c")
    with pytest.raises(NotRight, match="8-3f: not answered yet"):
        check("8-3f", ...)


def test_checks_run_on_plain_python():
    """As in the browser, which has no NumPy."""
    code = (
        "import sys; from servelab.check import check; from servelab.exercises import exercise_ids, parts\n"
        "for part in (part for exercise in exercise_ids() for part in parts(exercise)):\n"
        "    check(part.id, part.right if hasattr(part, 'right') else part.expected)\n"
        "sys.exit(any(name in sys.modules for name in ('numpy', 'torch', 'numba')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    assert (done.returncode, done.stdout) == (0, "".join(f"{part.id}: right.\n" for part in ALL)), done.stderr
