"""Arrays that lie inside larger ones, so that what is written beside them shows, and what is read there is poison."""

import numpy as np

MARGIN = 64  # elements on either side


class Guarded:
    """A copy of `array` in the middle of a larger one; `fill` surrounds it (NaN for floats, 77 for others)."""

    def __init__(self, array, fill=None):
        if fill is None:
            fill = np.nan if array.dtype.kind == "f" else 77
        self.whole = np.empty(array.size + 2 * MARGIN, array.dtype)
        self.whole[...] = fill
        self.array = self.whole[MARGIN:-MARGIN].reshape(array.shape)
        self.array[...] = array
        self.margins = self._margin_bytes()

    def _margin_bytes(self):
        return self.whole[:MARGIN].tobytes() + self.whole[-MARGIN:].tobytes()

    def assert_untouched_around(self):
        assert self._margin_bytes() == self.margins


def guard_results(monkeypatch):
    """Let np.zeros and np.full give guarded arrays; returns the list that collects them.

    Compile what is to be watched first: Numba knows np.zeros only as it is.
    """
    guards = []

    def guarded(make):
        def wrapper(*args, **kwargs):
            guards.append(Guarded(make(*args, **kwargs)))
            return guards[-1].array

        return wrapper

    for name in ("zeros", "full"):
        monkeypatch.setattr(np, name, guarded(getattr(np, name)))
    return guards
