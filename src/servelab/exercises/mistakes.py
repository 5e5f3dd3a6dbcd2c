"""Usual wrong answers that several exercises share."""

from servelab.exercises.part import Wrong
from servelab.units import GB, GIB, KIB, MIB


def in_other_units(right) -> tuple[Wrong, ...]:
    """The right answer in units other than bytes, exact or cut to whole ones."""
    mistakes = []
    for name, unit in (("KiB", KIB), ("MiB", MIB), ("MB", 10**6), ("GiB", GIB), ("GB", GB)):
        message = f"this is in {name}. Bytes are wanted: leave out the last division."
        mistakes += [
            Wrong(name, lambda *case, unit=unit: right(*case) / unit, message),
            Wrong(f"whole {name}", lambda *case, unit=unit: right(*case) // unit, message),
        ]
    return tuple(mistakes)
