"""Which notebooks of a folder are exercises, whose they are, and what answers their checks name."""

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import nbformat

from servelab.exercises import exercise_ids

NAME = re.compile(r"8-[1-9]")
IGNORED = {".ipynb_checkpoints"}


@dataclass(frozen=True)
class Submission:
    """One learner's notebook of one exercise."""

    learner: str
    exercise: str  # such as "8-3"
    path: Path


def submissions(folders: Iterable[Path]) -> list[Submission]:
    """The exercises in `folders` and all folders in them, by learner, then exercise.

    A notebook's exercise is the one that its file name holds ("8-3.ipynb", "my 8-3 final.ipynb"). Its learner is the
    folder that it lies in, as a path from the folder given; notebooks in that folder itself have its name.
    Raises `ValueError` if a folder does not exist, holds none, or if one learner has an exercise twice.
    """
    found: dict[tuple[str, str], Submission] = {}
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise ValueError(f"folder is {str(folder)!r}; there is no such folder")
        here = [each for path in sorted(folder.rglob("*.ipynb")) if (each := _submission(folder, path))]
        if not here:
            raise ValueError(
                f"folder is {str(folder)!r}; no notebook in it is named after an exercise, as 8-3.ipynb is"
            )
        for each in here:
            other = found.setdefault((each.learner, each.exercise), each)
            if other.path.resolve() != each.path.resolve():
                raise ValueError(f"{other.path} and {each.path}: both are exercise {each.exercise} of {each.learner!r}")
    return [found[key] for key in sorted(found)]


def _submission(folder: Path, path: Path) -> Submission | None:
    inside = path.relative_to(folder)
    name = NAME.search(path.stem)
    if name is None or name.group() not in exercise_ids() or IGNORED & set(inside.parts):
        return None
    learner = inside.parent.as_posix() if inside.parent != Path() else folder.resolve().name
    return Submission(learner, name.group(), path)


def read(path: Path) -> nbformat.NotebookNode:
    """The notebook at `path`. Raises `ValueError` if it is none, or a damaged one."""
    try:
        return nbformat.read(path, as_version=4)
    except (OSError, ValueError, KeyError, AttributeError, nbformat.ValidationError) as error:
        raise ValueError(f"{path} is no notebook: {error}") from error


@dataclass(frozen=True)
class Check:
    """A call `check("8-3a", answer)` in a cell; `answer` is the expression, as source."""

    part_id: str
    answer: str


def checks(source: str) -> list[Check]:
    """The checks that stand in a cell, in order; none where the cell is no Python."""
    from IPython.core.inputtransformer2 import TransformerManager

    try:
        tree = ast.parse(TransformerManager().transform_cell(source))
    except SyntaxError:
        return []
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_check(node))
    return [Check(call.args[0].value.strip().lower(), ast.unparse(call.args[1])) for call in calls]


def _is_check(call: ast.Call) -> bool:
    name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", None)
    literal = bool(call.args) and isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str)
    return name == "check" and literal and len(call.args) == 2
