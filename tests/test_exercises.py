"""What holds for the parts of every exercise: right answers pass, plausible wrong ones fail, usual mistakes are named.

The answers stand in `test_exercise_8_N.py`, beside what is special about that exercise.
"""

from importlib import import_module

import pytest

from servelab.exercises import exercise_ids, find_part, parts
from servelab.exercises.judge import judge
from servelab.exercises.part import Choice

ANSWERS = [import_module(f"test_exercise_{exercise.replace('-', '_')}") for exercise in exercise_ids()]
RIGHT = [case for module in ANSWERS for case in module.RIGHT]
PLAUSIBLE = [(part_id, wrong) for module in ANSWERS for part_id, each in module.PLAUSIBLE.items() for wrong in each]
NAMED = [case for module in ANSWERS for case in module.NAMED]


@pytest.mark.parametrize("part", [part for exercise in exercise_ids() for part in parts(exercise)], ids=lambda p: p.id)
def test_every_part_has_two_right_answers_and_its_mistakes(part):
    assert sum(part_id == part.id for part_id, _ in RIGHT) >= 2
    if not isinstance(part, Choice):
        assert sum(part_id == part.id for part_id, _ in PLAUSIBLE) >= 5


@pytest.mark.parametrize(("part_id", "answer"), RIGHT)
def test_right_answers_written_differently(part_id, answer):
    assert judge(find_part(part_id), answer).text == f"{part_id}: right."


@pytest.mark.parametrize(("part_id", "answer"), PLAUSIBLE)
def test_plausible_wrong_answers_fail(part_id, answer):
    verdict = judge(find_part(part_id), answer)
    assert verdict.kind in ("off", "known mistake")
    assert verdict.text.startswith(f"{part_id}: ")


@pytest.mark.parametrize(("part_id", "answer", "said"), NAMED)
def test_usual_mistakes_are_named(part_id, answer, said):
    verdict = judge(find_part(part_id), answer)
    assert verdict.kind == "known mistake"
    assert said in verdict.message
