"""FP8 E4M3: a sign, 4 bits of exponent, 3 of mantissa (Micikevicius et al. 2022, arXiv:2209.05433; OFP8 1.0).

There are no infinities: the largest value is 448, and 0x7F and 0xFF are NaN. NumPy has no such type, so that a table
of the 127 magnitudes stands for it.
"""

from functools import cache

from servelab.checks import require_int
from servelab.quantization.arrays import float_array, numpy

FP8_MAX = 448.0
_NAN = 0x7F
_SIGN = 0x80


@cache
def _magnitudes():
    """float32 array [127]: the value of each code without a sign. Exponent 0 means subnormal, a multiple of 2**-9."""
    np = numpy()
    code = np.arange(_NAN)
    exponent, mantissa = code >> 3, code & 7
    values = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10))
    return values.astype(np.float32)


def fp8_scale(values, head_axis: int | None = None):
    """The scale that puts the largest magnitude at 448: one for the tensor, or one for each head.

    values: any shape, finite. Returns float32 of the same number of dimensions: 1 everywhere, and with `head_axis`
    the number of heads there, so that it broadcasts in `quantize` and `dequantize`. Where all is zero it is 1.
    """
    np = numpy()
    values = float_array("values", values)
    axes = tuple(range(values.ndim))
    if head_axis is not None:
        require_int("head_axis", head_axis, minimum=-values.ndim, maximum=values.ndim - 1)
        axes = tuple(axis for axis in axes if axis != head_axis % values.ndim)
    if not np.isfinite(values).all():
        raise ValueError("values has NaN or infinite values; it must be finite, else the scale says nothing")
    scale = np.abs(values).max(axis=axes, keepdims=True, initial=0) / np.float32(FP8_MAX)
    return np.where(scale > 0, scale, np.float32(1))


def encode(values, scale):
    """uint8 codes of `values / scale`, any shape: nearest value, ties to the even code, beyond 448 (infinities too)
    saturated to 448 as kernels of KV caches do. NaN stays NaN with its sign."""
    np = numpy()
    with np.errstate(over="ignore", divide="ignore"):  # saturated below
        scaled = values / scale
    table = _magnitudes()
    middles = (table[1:] + table[:-1]) / 2  # exact: 5 significant bits
    magnitude = np.abs(scaled)
    codes = np.searchsorted(middles, magnitude)  # a tie stays at the lower code ...
    tie = magnitude == middles[np.minimum(codes, len(middles) - 1)]
    codes += tie & (codes % 2 == 1)  # ... and moves up where that one is odd
    codes = np.where(np.isnan(scaled), _NAN, codes)
    return (codes | np.where(np.signbit(scaled), _SIGN, 0)).astype(np.uint8)


def decode(codes, scale):
    """float32 values of uint8 `codes` times `scale`, same shape."""
    np = numpy()
    table = np.append(_magnitudes(), np.float32(np.nan))
    values = table[codes & np.uint8(_NAN)]
    return np.where(codes & np.uint8(_SIGN), -values, values) * scale
