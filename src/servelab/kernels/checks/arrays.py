"""What every kernel asks of an array, in one wording."""

import numpy as np


def require_array(name, array, ndim, dtypes):
    """Raise ValueError unless `array` is a NumPy array of `ndim` dimensions, none empty, and of one of `dtypes`."""
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{name} is a {type(array).__name__}: allowed is a NumPy array")
    if array.dtype not in dtypes:
        allowed = " or ".join(np.dtype(dtype).name for dtype in dtypes)
        raise ValueError(f"{name} has dtype {array.dtype}: allowed is {allowed}")
    if array.ndim != ndim or 0 in array.shape:
        raise ValueError(f"{name} has shape {array.shape}: allowed are {ndim} dimensions, each at least 1")


def require_shape(name, array, shape, meaning):
    """Raise ValueError unless `array` has this shape; `meaning` says what it follows from."""
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}: allowed is {meaning}, {shape}")


def require_contiguous(name, array):
    """Raise ValueError unless `array` lies in C order: what is large is never copied behind the caller's back."""
    if not array.flags.c_contiguous:
        raise ValueError(f"{name} has strides {array.strides}: allowed is C-contiguous memory")


def require_all(name, array, good, allowed):
    """Raise ValueError naming the first entry of `array` where `good`, of its shape, is false."""
    bad = np.argwhere(~good)
    if bad.size:
        index = ", ".join(map(str, bad[0]))
        raise ValueError(f"{name}[{index}] is {array[tuple(bad[0])]}: allowed is {allowed}")
