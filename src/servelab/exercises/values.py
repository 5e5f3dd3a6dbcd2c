"""Answers as values: one form for what may come as a list, a tuple or an array, and when two are equal."""

import math
import re
from typing import SupportsIndex


def plain(value):
    """`value` in Python's own types: arrays and tuples become lists, NumPy's numbers become int or float."""
    if isinstance(value, type):
        return value
    if hasattr(value, "tolist"):  # NumPy and PyTorch, known by what they offer: neither is imported here
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, SupportsIndex) and not isinstance(value, bool):
        return value.__index__()
    return value


def is_number(value) -> bool:
    return hasattr(value, "__float__") and not isinstance(value, bool | type)


def same_form(value, wanted) -> bool:
    """Whether `value` is of the kind of `wanted`: an int for an int, as many items for a list."""
    if isinstance(wanted, list):
        return (
            isinstance(value, list)
            and len(value) == len(wanted)
            and all(same_form(a, b) for a, b in zip(value, wanted, strict=True))
        )
    if isinstance(wanted, float):
        return is_number(value)
    return type(value) is type(wanted)


def equal(value, wanted, rel_tolerance: float) -> bool:
    """Whether two plain values are the same; floats may differ by the tolerance, an int may be a float."""
    if isinstance(value, list) and isinstance(wanted, list):
        return len(value) == len(wanted) and all(equal(a, b, rel_tolerance) for a, b in zip(value, wanted, strict=True))
    if not (is_number(value) and is_number(wanted)):
        return type(value) is type(wanted) and value == wanted
    if isinstance(value, int) and isinstance(wanted, int):
        return value == wanted
    try:
        return math.isclose(value, wanted, rel_tol=rel_tolerance, abs_tol=1e-12)
    except (OverflowError, TypeError):  # an int too large for a float, an array-like without one value
        return False


def shown(value) -> str:
    return cut(without_address(repr(value)))


def without_address(text: str) -> str:
    """`text` without the places in memory that Python names: they say nothing and change from call to call."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)


def cut(text: str, limit: int = 200) -> str:
    """`text`, without its middle when it is long."""
    return text if len(text) <= limit else f"{text[: limit // 2]} ... {text[-limit // 2 :]}"
