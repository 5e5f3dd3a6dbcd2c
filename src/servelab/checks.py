"""Refusals of bad input: one line that names the argument, its value and the allowed range."""

import math
import numbers
import operator
from difflib import get_close_matches


def require_int(name: str, value: int, minimum: int = 0, maximum: int | None = None) -> None:
    """Raise `ValueError` unless `value` is an integer (no bool) with `minimum <= value <= maximum`."""
    if not _is_integer(value) or value < minimum or (maximum is not None and value > maximum):
        allowed = f"an integer of at least {minimum}" if maximum is None else f"an integer from {minimum} to {maximum}"
        raise ValueError(f"{name} is {value!r}; it must be {allowed}")


def _is_integer(value) -> bool:
    """NumPy's integers count, floats and arrays do not: an array of several has __index__ as well, and refuses."""
    try:
        operator.index(value)
    except TypeError:
        return False
    return not isinstance(value, bool)


def require_name(argument: str, name: str, known) -> None:
    """Raise `ValueError` unless `name` is one of `known`; the message lists near matches, or all."""
    if name not in known:
        near = get_close_matches(str(name), known, n=3) or list(known)
        raise ValueError(f"{argument} is {name!r}, which is not known; did you mean {', '.join(near)}?")


def require_number(name: str, value: float, minimum: float = 0, maximum: float = math.inf, above: bool = False) -> None:
    """Raise `ValueError` unless `value` is a finite real number in the range; `above` leaves the minimum itself out."""
    number = isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
    if not number or value < minimum or value > maximum or (above and value == minimum):
        low = "above" if above else "of at least"
        allowed = f"a finite number {low} {minimum:g}" + ("" if maximum == math.inf else f" and at most {maximum:g}")
        raise ValueError(f"{name} is {value!r}; it must be {allowed}")
