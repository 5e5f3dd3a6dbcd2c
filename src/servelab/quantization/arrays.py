"""NumPy, imported when an array first comes, and the refusals that all array codecs share."""


def numpy():
    """The module NumPy. `ImportError` says what needs it."""
    try:
        import numpy as np
    except ImportError as error:
        raise ImportError("the array codecs of servelab.quantization need NumPy; the sizes do not") from error
    return np


def float_array(name: str, values, min_dims: int = 1):
    """`values` as a contiguous float32 array of at least `min_dims` dimensions.

    What float32 cannot hold becomes infinite.
    """
    np = numpy()
    try:
        array = np.asarray(values)
    except ValueError as error:  # rows of different lengths
        raise ValueError(f"{name} is {values!r}; it must be an array: {error}") from error
    if array.dtype.kind not in "biuf" or array.ndim < min_dims:
        wanted = f"real numbers in {min_dims} dimension or more" if min_dims else "a real number or an array of them"
        raise ValueError(f"{name} has dtype {array.dtype} and shape {array.shape}; it must be {wanted}")
    with np.errstate(over="ignore"):
        return array.astype(np.float32, order="C")


def byte_array(name: str, data):
    """`data` as a contiguous uint8 array of at least one dimension."""
    np = numpy()
    array = np.asarray(data)
    if array.dtype != np.uint8 or array.ndim == 0:
        raise ValueError(f"{name} has dtype {array.dtype} and shape {array.shape}; it must be an array of uint8")
    return np.ascontiguousarray(array)


def in_blocks(name: str, array, length: int):
    """`array` as [blocks, length]; its last axis must hold whole blocks."""
    if array.shape[-1] % length:
        raise ValueError(f"{name} has a last axis of {array.shape[-1]}; it must be a multiple of {length}")
    return array.reshape(-1, length)
