"""Array codecs: q8_0, q4_0 and FP8 in both directions, Q2_K to read (sections 8.4.1 and 8.4.2).

q8_0, q4_0 and Q2_K give the bytes and values of ggml's reference (ggml-quants.c; the `gguf` package is the oracle of
the tests). A block's scale is float16, which decides what happens at the edges:

- tiny: below a scale of about 3e-8 the scale rounds to 0, and the block decodes to zeros;
- huge: from a scale of 65520 on (q8_0: values of 8.3e6, q4_0: 5.2e5) it is infinite, and the block decodes to NaN and
  infinities, with no error;
- one NaN or infinity makes the scale NaN or infinite: all 32 values decode to NaN, but that q4_0 gives infinities back
  as infinities, with the sign of the first. A quantizer must be given finite values.
"""

from servelab.checks import require_name
from servelab.quantization import fp8
from servelab.quantization.arrays import byte_array, float_array, in_blocks, numpy
from servelab.quantization.formats import FORMATS

_SCALE_BYTES = 2


def quantize(values, fmt: str, scale=None):
    """The bytes that store `values` in the format "q8_0", "q4_0" or "fp8".

    values: numbers of shape [..., n], converted to float32; n is a multiple of 32 but for FP8.
    scale: FP8 only, a number or an array that broadcasts to `values` (see `fp8_scale`); 1 if None.
    Returns uint8 of shape [..., n / 32 * 34] (q8_0), [..., n / 32 * 18] (q4_0) or [..., n] (FP8).
    """
    encoders = {"q8_0": _encode_q8_0, "q4_0": _encode_q4_0}
    require_name("fmt", fmt, [*encoders, "fp8"])
    values = float_array("values", values)
    if fmt == "fp8":
        return fp8.encode(values, _require_scale(scale, values.shape))
    _refuse_scale(scale, fmt)
    blocks = in_blocks("values", values, FORMATS[fmt].values)
    with numpy().errstate(all="ignore"):  # what overflows is documented above
        data = encoders[fmt](blocks)
    return data.reshape(*values.shape[:-1], values.shape[-1] // FORMATS[fmt].values * FORMATS[fmt].block_bytes)


def dequantize(data, fmt: str, scale=None):
    """The values that `data` stores in the format "q8_0", "q4_0", "q2_k" or "fp8": the inverse of `quantize`.

    data: uint8 of shape [..., bytes]. scale: as in `quantize`. Returns float32.
    """
    decoders = {"q8_0": _decode_q8_0, "q4_0": _decode_q4_0, "q2_k": _decode_q2_k}
    require_name("fmt", fmt, [*decoders, "fp8"])
    data = byte_array("data", data)
    if fmt == "fp8":
        return fp8.decode(data, _require_scale(scale, data.shape))
    _refuse_scale(scale, fmt)
    blocks = in_blocks("data", data, FORMATS[fmt].block_bytes)
    with numpy().errstate(all="ignore"):
        values = decoders[fmt](blocks)
    return values.reshape(*data.shape[:-1], data.shape[-1] // FORMATS[fmt].block_bytes * FORMATS[fmt].values)


def error_bound(values, fmt: str, scale=None):
    """The largest |value - dequantize(quantize(value))| that each value can meet, as float64 of their shape.

    q8_0: half a step of max / 127, and the rounding of its scale. q4_0: a whole step of max / 8, because the largest
    magnitude takes code -8 and its mirror image must do with 7. FP8: half a unit in the last of 4 significant bits.
    Holds for finite values whose scale is finite in float16 (FP8: of at most 448 scales). Float32 rounding included.
    """
    np = numpy()
    require_name("fmt", fmt, ["q8_0", "q4_0", "fp8"])
    values = float_array("values", values)
    if fmt == "fp8":
        scale = _require_scale(scale, values.shape).astype(np.float64)
        return np.maximum(np.abs(values.astype(np.float64)) / 16, scale * 2.0**-10) * (1 + 2.0**-20)
    _refuse_scale(scale, fmt)
    steps, half = (127, 0.5) if fmt == "q8_0" else (8, 1)
    largest = np.abs(in_blocks("values", values, 32).astype(np.float64)).max(axis=1, keepdims=True)
    step = largest / steps
    rounding = np.maximum(step * 2.0**-11, 2.0**-25)  # of the scale, times the largest code
    return np.broadcast_to(step * half * (1 + 2.0**-20) + rounding * steps, (largest.size, 32)).reshape(values.shape)


def _encode_q8_0(blocks):
    """[blocks, 32] float32 -> [blocks, 34]: scale = max / 127, then 32 int8 codes rounded half away from zero."""
    np = numpy()
    scale = np.abs(blocks).max(axis=1, keepdims=True) / 127
    codes = blocks * _inverse(scale)
    whole = np.trunc(codes)
    codes = whole + np.copysign(np.abs(codes - whole) >= 0.5, codes)  # exact, unlike trunc(x + 0.5)
    return np.hstack([_scale_bytes(scale), _finite(codes).astype(np.int8).view(np.uint8)])


def _decode_q8_0(blocks):
    return blocks[:, _SCALE_BYTES:].view("int8").astype("float32") * _read_scale(blocks)


def _encode_q4_0(blocks):
    """[blocks, 32] float32 -> [blocks, 18]: scale = the value of largest magnitude / -8, then codes 0 to 15 for -8 to
    7; byte i holds value i in its low half and value i + 16 in its high half."""
    np = numpy()
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1)[:, None], axis=1)
    scale = largest / -8
    codes = np.trunc(blocks * _inverse(scale) + np.float32(8.5))
    codes = _finite(codes).clip(0, 15).astype(np.uint8)
    return np.hstack([_scale_bytes(scale), codes[:, :16] | codes[:, 16:] << np.uint8(4)])


def _decode_q4_0(blocks):
    np = numpy()
    packed = blocks[:, _SCALE_BYTES:]
    codes = np.hstack([packed & np.uint8(15), packed >> np.uint8(4)])
    return (codes.astype(np.float32) - 8) * _read_scale(blocks)


def _decode_q2_k(blocks):
    """[blocks, 84] -> [blocks, 256]: 16 bytes of 4-bit scales and minima, one for 16 values each; 64 bytes of 2-bit
    codes; then the float16 scale of the scales and that of the minima. value = scale * code - minimum.

    Codes lie in two halves of 32 bytes; in each, bits 0-1 of all bytes come first, then bits 2-3, 4-5 and 6-7.
    """
    np = numpy()
    pairs, packed = blocks[:, :16], blocks[:, 16:80]
    scales = _read_scale(blocks, at=80) * (pairs & np.uint8(15)).astype(np.float32)  # [blocks, 16]
    minima = _read_scale(blocks, at=82) * (pairs >> np.uint8(4)).astype(np.float32)
    shifts = np.arange(0, 8, 2, dtype=np.uint8)
    codes = packed.reshape(-1, 2, 1, 32) >> shifts[:, None] & np.uint8(3)  # [blocks, half, shift, 32]
    codes = codes.reshape(-1, 16, 16).astype(np.float32)
    return (scales[:, :, None] * codes - minima[:, :, None]).reshape(-1, 256)


def _inverse(scale):
    """1 / scale in float32, 0 where the scale is 0."""
    np = numpy()
    return np.where(scale == 0, np.float32(0), 1 / scale)


def _finite(codes):
    """NaN and infinite codes as 0: C leaves their conversion to integers undefined, 0 is what x86 gives."""
    np = numpy()
    return np.where(np.isfinite(codes), codes, np.float32(0))


def _scale_bytes(scale):
    return scale.astype("float16").view("uint8")


def _read_scale(blocks, at=0):
    """The float16 at byte `at` of each block, as float32 [blocks, 1]."""
    return blocks[:, at : at + _SCALE_BYTES].copy().view("float16").astype("float32")


def _refuse_scale(scale, fmt):
    if scale is not None:
        raise ValueError(f"scale is {scale!r}; {fmt} must have None: it stores a scale in each block")


def _require_scale(scale, shape):
    np = numpy()
    scale = np.float32(1) if scale is None else float_array("scale", scale, min_dims=0)
    if not (np.isfinite(scale) & (scale > 0)).all():
        raise ValueError(f"scale is {scale}; it must be finite and above 0")
    try:
        np.broadcast_to(scale, shape)
    except ValueError:
        raise ValueError(f"scale has shape {scale.shape}; it must broadcast to {shape}") from None
    return scale
