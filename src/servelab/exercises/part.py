"""What a part of an exercise is made of. An exercise's module lists its parts; `judge` does the rest."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class Wrong:
    """A usual wrong answer: what it computes, and what to tell the learner who computes it."""

    name: str
    compute: Callable
    message: str


@dataclass(frozen=True)
class Part:
    """A part whose answer is a function.

    `expected` is the right answer; its name and parameters are those that the notebook asks for. A case is a
    tuple of arguments: `book` holds the book's numbers, `others` small inputs that a learner can work out by
    hand, and `draw` makes `draws` more from a seeded generator, so that a typed-in constant fails. `picture`
    takes a case and the learner's answer and draws the mechanism, or returns None if nothing is to be drawn.
    """

    id: str
    title: str
    returns: str  # what an answer looks like, in words: "one int, in bytes"
    expected: Callable
    book: tuple[tuple, ...]
    others: tuple[tuple, ...]
    wrong: tuple[Wrong, ...]
    hints: tuple[str, str, str]
    draw: Callable[[Random], tuple] | None = None
    draws: int = 30
    rel_tolerance: float = 1e-9  # of floats; ints must be exact
    picture: Callable | None = None

    @property
    def arguments(self) -> list[str]:
        return list(inspect.signature(self.expected).parameters)

    def cases(self) -> list[tuple]:
        """All inputs of the check, smallest first: fewest numbers in all arguments, then the smallest sum."""
        random = Random(self.id)
        drawn = [self.draw(random) for _ in range(self.draws)] if self.draw else []
        return sorted([*self.book, *self.others, *drawn], key=size)


@dataclass(frozen=True)
class Choice:
    """A part whose answer is one of several options; `wrong` says what to think about for each other one."""

    id: str
    title: str
    options: dict[str, str]  # letter -> text, as the notebook prints it
    right: str
    wrong: dict[str, str]  # letter -> message
    hints: tuple[str, str, str]


@dataclass(frozen=True)
class Measured:
    """A part whose answer is what the learner measured, and what they computed of it.

    `judge` takes the answer and returns (kind, message) as of a verdict; `right` is an answer that is right.
    """

    id: str
    title: str
    judge: Callable[[object], tuple[str, str]]
    right: object
    hints: tuple[str, str, str]


def size(case) -> tuple[int, float]:
    """How large an input is: how many numbers it holds, then their sum."""
    numbers = list(_numbers(case))
    return len(numbers), sum(abs(number) for number in numbers)


def _numbers(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, int | float):
        yield value
