"""Which notebooks of a folder are exercises, whose they are, and what answers their checks name."""

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import nbformat

from servelab.exercises import exercise_ids

NAME = re.compile(r"(?<!\d)(?<!\d-)8-[1-9](?!\d|-\d)")  # not within a date
TIMING = re.compile(r"^(\s*)%%?time(?:it)?\b", re.MULTILINE)  # its argument is Python
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
        here = [each for path in _notebooks(folder) if (each := _submission(folder, path))]
        if not here:
            raise ValueError(
                f"folder is {str(folder)!r}; no notebook in it is named after an exercise, as 8-3.ipynb is"
            )
        for each in here:
            other = found.setdefault((each.learner, each.exercise), each)
            if other.path.resolve() != each.path.resolve():
                raise ValueError(f"{other.path} and {each.path}: both are exercise {each.exercise} of {each.learner!r}")
    return [found[key] for key in sorted(found)]


def left_out(folders: Iterable[Path]) -> list[Path]:
    """The notebooks in `folders` that are named after no exercise."""
    return [path for folder in map(Path, folders) for path in _notebooks(folder) if _exercise(path) is None]


def _notebooks(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*.ipynb")) if not IGNORED & set(path.relative_to(folder).parts)]


def _exercise(path: Path) -> str | None:
    name = NAME.search(path.stem)
    return name.group() if name and name.group() in exercise_ids() else None


def _submission(folder: Path, path: Path) -> Submission | None:
    exercise = _exercise(path)
    if exercise is None:
        return None
    inside = path.relative_to(folder)
    learner = inside.parent.as_posix() if inside.parent != Path() else folder.resolve().name
    return Submission(learner, exercise, path)


def read(path: Path) -> nbformat.NotebookNode:
    """The notebook at `path`. Raises `ValueError` if it is none, or a damaged one."""
    try:
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:
            _require_cell(cell)
    except Exception as error:  # nbformat passes on whatever a damaged file leads it to
        raise ValueError(f"{path} is no notebook: {type(error).__name__}: {error}") from error
    return notebook


def _require_cell(cell) -> None:
    """nbformat only logs what is wrong with a cell."""
    for name in ("cell_type", "source"):
        if not isinstance(cell.get(name), str):
            raise ValueError(f"{name} of a cell is {cell.get(name)!r}; it must be text")
    cell.source.encode()  # half a surrogate pair cannot be sent to a kernel


@dataclass(frozen=True)
class Check:
    """A call `check("8-3a", answer)` in a cell; `answer` is the expression, as source."""

    part_id: str
    answer: str


def checks(source: str) -> list[Check]:
    """The checks that stand in a cell, in order; none where the cell is no Python."""
    from IPython.core.inputtransformer2 import TransformerManager

    try:
        tree = ast.parse(TransformerManager().transform_cell(TIMING.sub(r"\1", source)))
        calls = [_check(node) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: nested too deeply
        return []
    return [call for call in calls if call]


def _check(call: ast.Call) -> Check | None:
    name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", None)
    given = dict(zip(("part_id", "answer"), call.args, strict=False)) | {each.arg: each.value for each in call.keywords}
    if name != "check" or set(given) != {"part_id", "answer"} or len(call.args) > 2:
        return None
    part_id = getattr(given["part_id"], "value", None)
    return Check(part_id.strip().lower(), ast.unparse(given["answer"])) if isinstance(part_id, str) else None
