"""Array codecs against two oracles: the `gguf` package for ggml's block formats, PyTorch for FP8; and their bounds."""

import platform
import re
import warnings

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from servelab import quantization
from servelab.quantization import dequantize, error_bound, fp8_scale, quantize

TYPES = {"q8_0": GGMLQuantizationType.Q8_0, "q4_0": GGMLQuantizationType.Q4_0, "q2_k": GGMLQuantizationType.Q2_K}
ENCODED = ["q8_0", "q4_0"]
RANDOM = np.random.default_rng(20260101)


def rows(*first):
    """[1, 32]: the given values, and small random ones behind them."""
    block = RANDOM.normal(size=32).astype(np.float32)
    block[: len(first)] = first
    return block[None]


INPUTS = {
    "random": RANDOM.normal(size=(64, 128)).astype(np.float32),
    "three axes": RANDOM.normal(size=(3, 5, 64)).astype(np.float32),
    "many magnitudes": (RANDOM.normal(size=(200, 32)) * 10.0 ** RANDOM.integers(-35, 38, (200, 1))).astype(np.float32),
    "constant": np.full((2, 32), 0.37, np.float32),
    "negative constant": np.full((2, 32), -0.37, np.float32),
    "zero": np.zeros((2, 32), np.float32),
    "negative zero": np.full((2, 32), -0.0, np.float32),
    "halves of a step": rows(127, *np.arange(-15, 16) / 2),
    "just below a half": rows(127, 0.49999997, -0.49999997, 1.4999999, 2.5, -2.5),
    "huge, scale at the end of float16": rows(65504 * 127, -65504 * 8, 1, 3e5),
    "huge, scale infinite": rows(3.4e38, -3.4e38),
    "tiny, scale subnormal": rows() * np.float32(1e-5),
    "tiny, scale zero": rows() * np.float32(1e-9),
    "tiniest": np.full((1, 32), 1e-45, np.float32),
    "NaN": rows(np.nan, 1, -1),
    "NaN of negative sign": rows(1, -np.nan),
    "infinity": rows(np.inf, 2),
    "negative infinity": rows(-np.inf, 2),
    "both infinities": rows(np.inf, -np.inf),
    "all NaN": np.full((1, 32), np.nan, np.float32),
}
# The scale is so small that its inverse is infinite, and so are codes: what the oracle makes of them is the machine's.
UNDEFINED = {
    "tiny, inverse infinite": rows() * np.float32(1e-39),
    "tiny, half of it": rows(*[0.0] * 16) * np.float32(1e-39),
}
on_x86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="infinite codes are 0 on x86 only")


def oracle(function, data, fmt):
    with warnings.catch_warnings():  # it does not silence what overflows, nor NaN that becomes an integer
        warnings.simplefilter("ignore", RuntimeWarning)
        return function(data, TYPES[fmt])


@pytest.mark.parametrize("fmt", ENCODED)
@pytest.mark.parametrize("name", [*INPUTS, *(pytest.param(name, marks=on_x86) for name in UNDEFINED)])
def test_bytes_and_values_are_ggml_s(name, fmt):
    values = (INPUTS | UNDEFINED)[name]
    expected = oracle(gguf.quantize, values, fmt)
    data = quantize(values, fmt)
    assert data.dtype == np.uint8
    np.testing.assert_array_equal(data, expected)
    same_bits(dequantize(data, fmt), oracle(gguf.dequantize, expected, fmt))


def same_bits(values, expected):
    assert values.dtype == expected.dtype == np.float32
    np.testing.assert_array_equal(values.view(np.uint32), expected.view(np.uint32))


@on_x86
@pytest.mark.parametrize("fmt", ENCODED)
@settings(deadline=None)
@given(bits=arrays.arrays(np.uint32, (2, 32)))
def test_any_32_bit_patterns_give_ggml_s_bytes(fmt, bits):
    values = bits.view(np.float32)
    np.testing.assert_array_equal(quantize(values, fmt), oracle(gguf.quantize, values, fmt))


@pytest.mark.parametrize("fmt", TYPES)
@settings(deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_any_bytes_decode_to_ggml_s_values(fmt, seed):
    shape = (3, 2 * quantization.FORMATS[fmt].block_bytes)
    data = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    values = dequantize(data, fmt)
    assert values.shape == (3, 2 * quantization.FORMATS[fmt].values)
    same_bits(values, oracle(gguf.dequantize, data, fmt))


@pytest.mark.parametrize("fill", [0, 255])
def test_constant_bytes_of_q2_k_decode_to_ggml_s_values(fill):
    data = np.full((2, 84), fill, np.uint8)
    same_bits(dequantize(data, "q2_k"), oracle(gguf.dequantize, data, "q2_k"))


def test_q2_k_by_hand():
    """One block whose first group has scale 3 x 0.5 and minimum 2 x 0.25, and whose first codes are 0, 1, 2, 3."""
    data = np.zeros(84, np.uint8)
    data[0] = 2 << 4 | 3
    data[16:20] = [0, 1, 2, 3]
    data[80:84] = np.array([0.5, 0.25], np.float16).view(np.uint8)
    assert dequantize(data, "q2_k")[:5].tolist() == [-0.5, 1.0, 2.5, 4.0, -0.5]


@pytest.mark.parametrize("fmt", ENCODED)
@pytest.mark.parametrize("name", UNDEFINED)
def test_infinite_codes_are_stored_as_the_lowest(name, fmt):
    """On any machine: the scale is 0 anyway, so that all decodes to zeros."""
    data = quantize(UNDEFINED[name], fmt)
    assert not data[:, 2:].any()  # behind the scale, which is 0 with a sign in q4_0
    assert not dequantize(data, fmt).any()


@pytest.mark.parametrize(
    ("name", "fmt", "decoded"),
    [
        ("tiny, scale zero", "q8_0", "zeros"),
        ("tiny, scale zero", "q4_0", "zeros"),
        ("huge, scale infinite", "q8_0", "not finite"),
        ("huge, scale infinite", "q4_0", "not finite"),
        ("NaN", "q8_0", "NaN"),
        ("NaN", "q4_0", "NaN"),
        ("infinity", "q8_0", "NaN"),
        ("infinity", "q4_0", "not finite"),
    ],
)
def test_edges_of_the_scale_spoil_the_whole_block(name, fmt, decoded):
    values = dequantize(quantize(INPUTS[name], fmt), fmt)
    if decoded == "zeros":
        assert not values.any()
    elif decoded == "NaN":
        assert np.isnan(values).all()
    else:
        assert not np.isfinite(values).any()


finite_blocks = arrays.arrays(
    np.float32, (2, 32), elements=st.floats(-5e5, 5e5, width=32, allow_subnormal=False)
) | arrays.arrays(np.float32, (2, 32), elements=st.floats(-(2**-13), 2**-13, width=32))


@pytest.mark.parametrize("fmt", ENCODED)
@settings(deadline=None)
@given(values=finite_blocks)
def test_round_trip_stays_within_the_bound(fmt, values):
    error = np.abs(dequantize(quantize(values, fmt), fmt).astype(np.float64) - values)
    assert (error <= error_bound(values, fmt)).all()


def test_the_bounds_are_no_larger_than_they_must_be():
    block = np.linspace(-1, 1, 32, dtype=np.float32)
    assert error_bound(block, "q8_0").max() == pytest.approx(1 / 254 + 2**-11, rel=1e-3)
    assert error_bound(block, "q4_0").max() == pytest.approx(1 / 8 + 2**-11, rel=1e-3)
    mirror = np.abs(dequantize(quantize(block, "q4_0"), "q4_0") - block)
    assert mirror.max() == pytest.approx(1 / 8)  # -1 is largest first, and 1 has no code


def test_an_empty_array_gives_an_empty_one():
    assert quantize(np.zeros((0, 64)), "q8_0").shape == (0, 68)
    assert quantize(np.zeros((2, 0)), "q4_0").shape == (2, 0)
    assert dequantize(np.zeros((0, 168), np.uint8), "q2_k").shape == (0, 512)


def test_the_input_is_left_as_it_is_and_any_layout_will_do():
    values = np.asfortranarray(RANDOM.normal(size=(4, 64)))
    before = values.copy()
    data = quantize(values[::2], "q8_0")
    np.testing.assert_array_equal(values, before)
    np.testing.assert_array_equal(data, quantize(before[::2].astype(np.float32), "q8_0"))
    np.testing.assert_array_equal(dequantize(data[:, ::1].copy("F"), "q8_0"), dequantize(data, "q8_0"))


# ---- FP8
CODES = np.arange(256, dtype=np.uint8)


def test_fp8_values_are_pytorch_s():
    torch = pytest.importorskip("torch")
    expected = torch.from_numpy(CODES.copy()).view(torch.float8_e4m3fn).float().numpy()
    np.testing.assert_array_equal(dequantize(CODES, "fp8"), expected)


def test_fp8_codes_are_pytorch_s_within_range():
    torch = pytest.importorskip("torch")
    table = dequantize(CODES, "fp8")
    finite = np.sort(table[np.isfinite(table)])
    middles = (finite[1:] + finite[:-1]) / 2
    near = np.concatenate([np.nextafter(middles, np.float32(-np.inf)), np.nextafter(middles, np.float32(np.inf))])
    spread = (RANDOM.normal(size=5000) * 10.0 ** RANDOM.integers(-6, 3, 5000)).astype(np.float32)
    values = np.concatenate([table, middles, near, spread]).clip(-448, 448)
    expected = torch.from_numpy(values).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
    np.testing.assert_array_equal(quantize(values, "fp8"), expected)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (448, 0x7E),
        (500, 0x7E),  # saturated
        (1e30, 0x7E),
        (np.inf, 0x7E),
        (-np.inf, 0xFE),
        (np.nan, 0x7F),
        (-np.nan, 0xFF),
        (2.0**-9, 0x01),  # the smallest
        (2.0**-10, 0x00),  # a tie goes to the even code
        (3 * 2.0**-10, 0x02),
        (-0.0, 0x80),
        (1.0, 0x38),
        (1.0625, 0x38),
        (1.1875, 0x3A),
    ],
)
def test_fp8_code(value, code):
    assert quantize(np.array([value]), "fp8").tolist() == [code]


def test_fp8_scales_per_tensor_and_per_head():
    values = np.ones((5, 2, 4), np.float32)  # [tokens, heads, head_dim]
    values[:, 1] = 100
    per_tensor, per_head = fp8_scale(values), fp8_scale(values, head_axis=1)
    assert (per_tensor.shape, per_head.shape) == ((1, 1, 1), (1, 2, 1))
    np.testing.assert_allclose(per_head[0, :, 0], [1 / 448, 100 / 448])
    np.testing.assert_array_equal(fp8_scale(values, head_axis=-2), per_head)
    small = values * np.float32(0.011)
    errors = [
        np.abs(dequantize(quantize(small, "fp8", scale), "fp8", scale) - small)[:, 0].max()
        for scale in (fp8_scale(small), fp8_scale(small, head_axis=1))
    ]
    assert errors[1] <= errors[0]


def test_per_head_scales_save_a_head_that_a_large_one_would_drown():
    values = np.stack([np.full((3, 8), 1e-4), np.full((3, 8), 400.0)], axis=1).astype(np.float32)
    per_tensor, per_head = fp8_scale(values), fp8_scale(values, head_axis=1)
    assert not dequantize(quantize(values, "fp8", per_tensor), "fp8", per_tensor)[:, 0].any()
    np.testing.assert_allclose(dequantize(quantize(values, "fp8", per_head), "fp8", per_head), values, rtol=1e-6)


def test_fp8_scale_of_zeros_is_1():
    assert fp8_scale(np.zeros((2, 3))).tolist() == [[1.0]]
    assert fp8_scale(np.zeros((0, 3))).tolist() == [[1.0]]


@settings(deadline=None)
@given(
    values=arrays.arrays(np.float32, (3, 2, 4), elements=st.floats(-1e6, 1e6, width=32)),
    head_axis=st.none() | st.integers(0, 2),
)
def test_fp8_round_trip_stays_within_the_bound(values, head_axis):
    if 0 < np.abs(values).max() < 1e-25:
        values = values * 0  # float32 itself is too coarse for such a scale
    scale = np.maximum(fp8_scale(values, head_axis), np.float32(1e-30))
    error = np.abs(dequantize(quantize(values, "fp8", scale), "fp8", scale).astype(np.float64) - values)
    assert (error <= error_bound(values, "fp8", scale)).all()


VALUES, DATA = np.zeros(32, np.float32), np.zeros(34, np.uint8)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: quantize(VALUES, "q8_1"), "fmt is 'q8_1', which is not known; did you mean q8_0"),
        (lambda: quantize(VALUES, "q2_k"), "fmt is 'q2_k'"),
        (lambda: quantize(np.zeros(33), "q8_0"), "values has a last axis of 33; it must be a multiple of 32"),
        (lambda: quantize(1.0, "q8_0"), r"values has dtype float64 and shape \(\); it must be real numbers in 1 dim"),
        (lambda: quantize(["a"] * 32, "q8_0"), "values has dtype <U1"),
        (lambda: quantize(np.zeros(32, complex), "q8_0"), "values has dtype complex128"),
        (lambda: quantize([[1.0], [1.0, 2.0]], "q8_0"), "values is .*; it must be an array"),
        (lambda: quantize(VALUES, "q4_0", scale=1.0), "scale is 1.0; q4_0 must have None"),
        (lambda: quantize(VALUES, "fp8", scale=0), "scale is 0.0; it must be finite and above 0"),
        (lambda: quantize(VALUES, "fp8", scale=np.nan), "scale is nan"),
        (lambda: quantize(VALUES, "fp8", scale=np.ones(3)), r"scale has shape \(3,\); it must broadcast to \(32,\)"),
        (lambda: quantize(VALUES, "fp8", scale="x"), "scale has dtype <U1"),
        (lambda: dequantize(DATA, "q7"), "fmt is 'q7'"),
        (lambda: dequantize(DATA.astype(int), "q8_0"), "data has dtype int64 .*; it must be an array of uint8"),
        (lambda: dequantize(np.uint8(1), "q8_0"), r"data has dtype uint8 and shape \(\)"),
        (lambda: dequantize(DATA[:33], "q8_0"), "data has a last axis of 33; it must be a multiple of 34"),
        (lambda: dequantize(DATA, "q4_0"), "data has a last axis of 34; it must be a multiple of 18"),
        (lambda: dequantize(DATA, "q8_0", scale=2), "scale is 2; q8_0 must have None"),
        (lambda: dequantize(DATA, "fp8", scale=-1), "scale is -1.0"),
        (lambda: fp8_scale([1.0, np.inf]), "values has NaN or infinite values; it must be finite"),
        (lambda: fp8_scale([1.0], head_axis=1), "head_axis is 1; it must be an integer from -1 to 0"),
        (lambda: error_bound(VALUES, "q2_k"), "fmt is 'q2_k'"),
        (lambda: error_bound(VALUES[:5], "q8_0"), "values has a last axis of 5"),
        (lambda: error_bound(VALUES, "q8_0", scale=1), "scale is 1"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=re.compile(message)):
        call()
