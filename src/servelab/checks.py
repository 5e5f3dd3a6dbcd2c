"""Refusals of bad input: one line that names the argument, its value and the allowed range."""


def require_int(name: str, value: int, minimum: int = 0, maximum: int | None = None) -> None:
    """Raise `ValueError` unless `value` is an integer (no bool) with `minimum <= value <= maximum`."""
    allowed = f"an integer of at least {minimum}" if maximum is None else f"an integer from {minimum} to {maximum}"
    # NumPy's integers count as integers: they have __index__, floats do not.
    is_integer = hasattr(value, "__index__") and not isinstance(value, bool)
    if not is_integer or value < minimum or (maximum is not None and value > maximum):
        raise ValueError(f"{name} is {value!r}; it must be {allowed}")
