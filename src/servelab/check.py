"""Checks and hints for the exercises: `check("8-3a", unused_slots)` and `hint("8-3a")`."""

import os

from servelab.exercises import find_part
from servelab.exercises.judge import judge

_hints_given: dict[str, int] = {}  # of this kernel


class NotRight(AssertionError):
    """A verdict other than right, where notebooks are tested."""

    def _render_traceback_(self):  # what IPython shows instead of a traceback
        return [str(self)]


def check(part_id: str, answer) -> None:
    """Print the verdict on `answer`: one line if it is right.

    A function is called on the book's numbers and on others, each time with copies of them; what it prints is
    kept back. Under pytest (nbval) a verdict other than right also raises `NotRight`: a notebook that was
    saved with a wrong verdict holds it as the reference output, and would else pass by agreeing with itself.
    """
    verdict = judge(find_part(part_id), answer)
    print(verdict.text)
    if not verdict.right and "PYTEST_VERSION" in os.environ:
        raise NotRight(verdict.text)


def hint(part_id: str) -> None:
    """Print the next of three hints; the call after the third says so, the one after that starts again."""
    part = find_part(part_id)
    part_id, hints = part.id, part.hints
    given = _hints_given.get(part_id, 0)
    if given == len(hints):
        print(f"{part_id}: you have seen all {len(hints)} hints. Run this again for the first one.")
        _hints_given[part_id] = 0
        return
    print(f"{part_id}, hint {given + 1} of {len(hints)}: {hints[given]}")
    _hints_given[part_id] = given + 1
