"""The exercises' parts: one module or package an exercise (`ex_8_3`), loaded when one is asked for."""

import re
from difflib import get_close_matches
from importlib import import_module
from pkgutil import iter_modules

from servelab.exercises.part import Choice, Part


def exercise_ids() -> list[str]:
    """The exercises that exist, such as ["8-3"]."""
    names = (module.name for module in iter_modules(__path__))
    return sorted(name.removeprefix("ex_").replace("_", "-") for name in names if name.startswith("ex_"))


def parts(exercise_id: str) -> tuple[Part | Choice, ...]:
    """All parts of one exercise, in order. Raises `ValueError` if there is no such exercise."""
    if exercise_id not in exercise_ids():
        raise ValueError(f"exercise_id is {exercise_id!r}; it must be one of {', '.join(exercise_ids())}")
    return import_module(f"{__name__}.ex_{exercise_id.replace('-', '_')}").PARTS


def find_part(part_id: str) -> Part | Choice:
    """The part called `part_id`, such as "8-3a". An unknown one raises `ValueError` with near matches."""
    exercise_id = re.sub(r"[a-z]$", "", str(part_id))
    searched = [exercise_id] if exercise_id in exercise_ids() else exercise_ids()
    known = {part.id: part for exercise in searched for part in parts(exercise)}
    if part_id not in known:
        near = get_close_matches(str(part_id), known, n=3) or sorted(known)
        raise ValueError(f"part_id is {part_id!r}, which no exercise has; did you mean {', '.join(near)}?")
    return known[part_id]
