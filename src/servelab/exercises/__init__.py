"""The exercises' parts: one module or package an exercise (`ex_8_3`), loaded when one is asked for."""

import re
from difflib import get_close_matches
from importlib import import_module
from pkgutil import iter_modules

from servelab.exercises.part import Choice, Measured, Part


def exercise_ids() -> list[str]:
    """The exercises that exist, such as ["8-3"]."""
    names = (module.name for module in iter_modules(__path__))
    return sorted(name.removeprefix("ex_").replace("_", "-") for name in names if name.startswith("ex_"))


def parts(exercise_id: str) -> tuple[Part | Choice | Measured, ...]:
    """All parts of one exercise, in order. Raises `ValueError` if there is no such exercise."""
    if exercise_id not in exercise_ids():
        raise ValueError(f"exercise_id is {exercise_id!r}; it must be one of {', '.join(exercise_ids())}")
    return import_module(f"{__name__}.ex_{exercise_id.replace('-', '_')}").PARTS


def find_part(part_id: str) -> Part | Choice | Measured:
    """The part called `part_id`, such as "8-3a" or "8-3A".

    Any other id raises `ValueError`: with the parts of the exercise it names, or else with near matches.
    """
    wanted = str(part_id).strip().lower()
    exercise_id = re.sub(r"[a-z]$", "", wanted)
    exists = exercise_id in exercise_ids()
    known = {part.id: part for exercise in ([exercise_id] if exists else exercise_ids()) for part in parts(exercise)}
    if wanted in known:
        return known[wanted]
    if exists:
        problem = "a whole exercise" if wanted == exercise_id else f"which exercise {exercise_id} does not have"
        raise ValueError(f"part_id is {part_id!r}, {problem}; its parts are {', '.join(known)}")
    near = get_close_matches(wanted, known, n=3) or sorted(known)
    raise ValueError(f"part_id is {part_id!r}, which no exercise has; did you mean {', '.join(near)}?")
