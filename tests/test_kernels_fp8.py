"""FP8 KV: codes and query equal to PyTorch's rounding, the CPU kernel against the reference, bad input refused."""

import kernel_cases
import numpy as np
import pytest
import torch
from canaries import Guarded
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from quantized_cases import write_case

from servelab.kernels import cpu, reference
from servelab.kernels.reference.fp8 import round_query
from servelab.quantization import dequantize, quantize

# As in test_kernels.py; scales of about 1 are multiplied in at another place, one more rounding.
ATOL = 1e-5
ROOMS = {"reference": reference, "cpu": cpu}
TORCH_DTYPES = {"bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn}
each_room = pytest.mark.parametrize("room", ROOMS.values(), ids=ROOMS)
each_query_dtype = pytest.mark.parametrize("query_dtype", TORCH_DTYPES)


def attention_case(seed, key_scale=0.02, value_scale=0.01, query_dtype="bf16", **options):
    """Arguments of `paged_attention_fp8`, with NaN in every unused slot."""
    case = kernel_cases.random_case(seed, **options)
    scales = {"key_scale": key_scale, "value_scale": value_scale}
    for cache, scale in (("key_cache", "key_scale"), ("value_cache", "value_scale")):
        heads = np.float32(scales[scale]).reshape(-1, 1, 1)
        case[cache] = quantize(case[cache], "fp8", heads)
    return case | scales | {"query_dtype": query_dtype}


def fp8_write_case(seed, key_scale=0.7, value_scale=2.5, **shape):
    """Arguments of `write_fp8`; the caches full of something else."""
    case = write_case(seed, "q8_0", **shape)
    del case["kv_dtype"]
    rng = np.random.default_rng(seed)
    cache_shape = (*case["key_cache"].shape[:3], case["key"].shape[2])
    for name in ("key_cache", "value_cache"):
        case[name] = rng.integers(0, 256, cache_shape, np.uint8)
    return case | {"key_scale": key_scale, "value_scale": value_scale}


def assert_agree(actual, expected, atol=ATOL):
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, expected, rtol=0, atol=atol)  # fails on NaN, the mark of an unused slot


def assert_written(case, before):
    """The slots hold PyTorch's codes of value / scale, and all else in the caches is as it was."""
    for new in ("key", "value"):
        expected = before[f"{new}_cache"].copy()
        scale = np.broadcast_to(np.float32(before[f"{new}_scale"]), expected.shape[1])[:, None]
        with np.errstate(all="ignore"):
            codes = torch.from_numpy(before[new] / scale).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
        for token, slot in enumerate(before["slot_mapping"]):
            block, offset = divmod(slot, expected.shape[2])
            expected[block, :, offset] = codes[token]
        np.testing.assert_array_equal(case[f"{new}_cache"], expected)


def copies(case):
    return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in case.items()}


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    num_tokens=st.integers(1, 12),
    head_dim=st.sampled_from([24, 32, 64]),
    key_scale=st.sampled_from([1, 0.037, np.array([0.5, 3.0]), np.array([1e-3, 448], np.float32)]),
)
def test_written_codes_are_torch_s(seed, key_scale, num_tokens, head_dim):
    case = fp8_write_case(seed, key_scale, num_tokens=num_tokens, head_dim=head_dim)
    for room in ROOMS.values():
        written = copies(case)
        assert room.write_fp8(**written) is None
        assert_written(written, case)


@settings(max_examples=60)
@given(bits=arrays.arrays(np.uint32, (4, 2, 16)))
def test_any_32_bit_patterns_give_torch_s_codes(bits):
    case = fp8_write_case(0, 1.0, num_tokens=4, head_dim=16)
    case["key"] = bits.view(np.float32)
    case["value"] = case["key"] * np.float32(0.001)
    case["key"][0, 0, :6] = [np.nan, -np.nan, np.inf, -np.inf, 464, -0.0]
    for room in ROOMS.values():
        written = copies(case)
        room.write_fp8(**written)
        assert_written(written, case)


@each_room
def test_writing_changes_nothing_around_the_slots(room):
    case = fp8_write_case(1)
    guards = {name: Guarded(array) for name, array in case.items() if isinstance(array, np.ndarray)}
    written = case | {name: guard.array for name, guard in guards.items()}
    room.write_fp8(**written)
    for guard in guards.values():
        guard.assert_untouched_around()
    assert_written(written, case)


def test_every_code_is_decoded_as_the_codec_does():
    codes = np.arange(256, dtype=np.uint8).reshape(4, 64)
    rows = np.empty((4, 64), np.float32)
    cpu.fp8._decode(codes, rows, 64)
    np.testing.assert_array_equal(rows, dequantize(codes, "fp8"))
    np.testing.assert_array_equal(np.signbit(rows), codes >= 128)


@each_query_dtype
@settings(max_examples=100)
@given(bits=arrays.arrays(np.uint32, 32))
def test_the_query_is_rounded_as_torch_rounds(query_dtype, bits):
    query = bits.view(np.float32)
    # Halfway between two numbers, to even; around the largest; the smallest and half of it.
    edges = [1 + 2**-8, 1 + 3 * 2**-8, 1.0625, 1.1875, 448, 464, 3.39e38, 3.4e38, 2**-9, 2**-10, 2**-10 * 1.01, -0.0]
    query = np.concatenate([query, np.float32(edges), np.float32([np.inf, -np.inf, np.nan])])
    with np.errstate(all="ignore"):
        expected = torch.from_numpy(query).to(TORCH_DTYPES[query_dtype]).float().numpy()
    rounded = round_query(query, query_dtype)
    assert rounded.dtype == np.float32
    np.testing.assert_array_equal(rounded, expected)
    numbers = ~np.isnan(query)
    np.testing.assert_array_equal(np.signbit(rounded)[numbers], np.signbit(expected)[numbers])


@each_room
@each_query_dtype
def test_attention_is_torch_s_on_rounded_query_keys_and_values(room, query_dtype):
    """In float64, on 21 tokens: what FP8 and BF16 lose, and nothing else."""
    rng = np.random.default_rng(2)
    query = 3 * rng.standard_normal((1, 6, 64), dtype=np.float32)
    key, value = rng.standard_normal((2, 24, 2, 64), dtype=np.float32)
    key_scale, value_scale = np.array([0.01, 0.02], np.float32), 0.015
    caches = [np.zeros((6, 2, 4, 64), np.uint8) for _ in range(2)]
    room.write_fp8(key, value, *caches, np.arange(24), key_scale, value_scale)
    tables, seq_lens = np.arange(6, dtype=np.int32)[None], np.array([21], np.int32)
    out = room.paged_attention_fp8(query, *caches, tables, seq_lens, key_scale, value_scale, query_dtype)

    def decoded(tokens, scale):
        codes = (torch.from_numpy(tokens) / scale).to(torch.float8_e4m3fn).double() * scale
        return codes[:21].transpose(0, 1).repeat_interleave(3, dim=0)

    rounded = torch.from_numpy(query).to(TORCH_DTYPES[query_dtype]).double().transpose(0, 1)
    expected = torch.nn.functional.scaled_dot_product_attention(
        rounded, decoded(key, torch.from_numpy(key_scale)[:, None]), decoded(value, torch.tensor(value_scale))
    )
    assert_agree(out[0], expected[:, 0].float().numpy())


@settings(max_examples=50)  # the first call of each head_dim compiles for seconds
@given(
    seed=st.integers(0, 2**32 - 1),
    head_dim=st.sampled_from([64, 128]),
    group=st.sampled_from([1, 3, 4]),
    block_size=st.sampled_from([1, 5, 16]),
    seq_lens=st.lists(st.integers(1, 100), min_size=1, max_size=4),
    key_scale=st.sampled_from([0.02, np.array([0.005, 0.1])]),
    query_dtype=st.sampled_from(list(TORCH_DTYPES)),
)
def test_cpu_agrees_with_reference(**options):
    case = attention_case(num_kv_heads=2, **options)
    assert_agree(cpu.paged_attention_fp8(**case), reference.paged_attention_fp8(**case))


@each_room
def test_one_scale_is_the_same_scale_for_each_head(room):
    case = attention_case(3)
    expected = room.paged_attention_fp8(**case)
    for scale in ("key_scale", "value_scale"):
        case[scale] = np.full(2, case[scale])
    np.testing.assert_array_equal(room.paged_attention_fp8(**case), expected)


@each_room
def test_the_query_dtype_makes_a_difference(room):
    """FP8 keeps 4 significant bits, BF16 8: each loses about 16 times what the other does."""
    case = attention_case(4, seq_lens=(60, 60))
    exact = {
        cache: dequantize(case[cache], "fp8", np.float32(case[scale]))
        for cache, scale in (("key_cache", "key_scale"), ("value_cache", "value_scale"))
    }
    plain = {name: case[name] for name in ("query", "block_tables", "seq_lens")}
    expected = reference.paged_attention(**plain, **exact)
    errors = {
        dtype: np.abs(room.paged_attention_fp8(**case | {"query_dtype": dtype}) - expected).mean()
        for dtype in TORCH_DTYPES
    }
    assert 5 < errors["fp8"] / errors["bf16"] < 40


@each_room
def test_reading_changes_nothing(room):
    case = attention_case(5)
    before = copies(case)
    room.paged_attention_fp8(**case)
    for name, array in before.items():
        np.testing.assert_array_equal(case[name], array)


# What is changed in a good case (2 KV heads, group 4, head_dim 64), and what the error says.
BAD_READS = {
    "unknown query dtype": ("query_dtype", lambda _: "f16", "query_dtype is 'f16': allowed is 'bf16' or 'fp8'"),
    "query in float64": ("query", lambda a: a.astype(np.float64), "query has dtype float64.*float32"),
    "another head_dim": ("query", lambda a: a[..., :32].copy(), "key_cache has 64 bytes a head.*head_dim 32.*32"),
    "keys in float8": ("key_cache", torch.from_numpy, "key_cache is a Tensor.*NumPy array"),
    "keys in float32": ("key_cache", lambda a: a.astype(np.float32), "key_cache has dtype float32.*uint8"),
    "values of another shape": ("value_cache", lambda a: a[:-1].copy(), "value_cache has shape.*key_cache's"),
    "block id past the pool": ("block_tables", lambda a: a + np.int32(99), r"block_tables\[0, 0\] is 1\d\d.*0 to 7"),
    "length 0": ("seq_lens", lambda a: a * np.int32(0), r"seq_lens\[0\] is 0.*1 to 64"),
    "scale of scores 0": ("scale", lambda _: 0, "scale is 0.*above 0"),
}
BAD_SCALES = {
    "scale 0": (0, r"_scale\[0\] is 0.*finite number above 0"),
    "scale below 0": (-0.1, r"_scale\[0\] is -0.1.*finite number above 0"),
    "scale NaN": (float("nan"), r"_scale\[0\] is nan.*finite number above 0"),
    "scale infinite in float32": (1e39, r"_scale\[0\] is inf.*finite number above 0"),
    "scale zero in float32": (1e-60, r"_scale\[0\] is 0.*finite number above 0"),
    "scale as text": ("1", "_scale is '1'.*a number or an array"),
    "scale None": (None, "_scale is None.*a number or an array"),
    "a scale too many": (np.ones(3, np.float32), r"_scale has shape \(3,\).*one for each KV head, \(2,\)"),
    "one scale 0": (np.array([1.0, 0.0]), r"_scale\[1\] is 0.*finite number above 0"),
    "scales of 2 dimensions": (np.ones((2, 1)), "_scale has shape.*1 dimensions"),
    "scales in int64": (np.ones(2, np.int64), "_scale has dtype int64.*float32 or float64"),
}
BAD_WRITES = {
    "keys in float16": ("key", lambda a: a.astype(np.float16), "key has dtype float16.*float32"),
    "values of another shape": ("value", lambda a: a[:, :1].copy(), "value has shape.*key's"),
    "key cache not contiguous": ("key_cache", np.asfortranarray, "key_cache has strides.*C-contiguous"),
    "slot past the cache": ("slot_mapping", lambda a: a + 12, r"slot_mapping\[0\] is \d+.*0 to 11"),
    "slots in int32": ("slot_mapping", lambda a: a.astype(np.int32), "slot_mapping has dtype int32.*int64"),
    "one slot for all": ("slot_mapping", lambda a: a * 0, "slot_mapping holds slot 0 twice"),
}


@pytest.fixture
def nothing_runs(monkeypatch):
    """Fail if a kernel gets past its checks."""

    def ran(*_):
        raise AssertionError("the kernel ran")

    for room, name in ((reference, "quantize"), (reference, "dequantize"), (cpu, "_write"), (cpu, "_attention")):
        monkeypatch.setattr(room.fp8, name, ran)


@pytest.mark.usefixtures("nothing_runs")
@each_room
class TestRefusals:
    @pytest.mark.parametrize("bad", BAD_READS.values(), ids=BAD_READS)
    def test_bad_reads_are_refused_before_anything_runs(self, room, bad):
        name, change, message = bad
        case = attention_case(0) | {"scale": None}
        case[name] = change(case[name])
        with pytest.raises(ValueError, match=message):
            room.paged_attention_fp8(**case)

    @pytest.mark.parametrize("bad", BAD_WRITES.values(), ids=BAD_WRITES)
    def test_bad_writes_are_refused_before_anything_changes(self, room, bad):
        name, change, message = bad
        case = fp8_write_case(0)
        changed = case | {name: change(case[name])}
        before = copies(case)
        with pytest.raises(ValueError, match=message):
            room.write_fp8(**changed)
        for cache in ("key_cache", "value_cache"):
            np.testing.assert_array_equal(case[cache], before[cache])

    @pytest.mark.parametrize("name", ["key_scale", "value_scale"])
    @pytest.mark.parametrize("bad", BAD_SCALES.values(), ids=BAD_SCALES)
    def test_bad_scales_are_refused(self, room, bad, name):
        scale, message = bad
        name_and_message = name.removesuffix("_scale") + message
        with pytest.raises(ValueError, match=name_and_message):
            room.paged_attention_fp8(**attention_case(0) | {name: scale})
        with pytest.raises(ValueError, match=name_and_message):
            room.write_fp8(**fp8_write_case(0) | {name: scale})

    def test_good_input_gets_past_the_checks(self, room):
        with pytest.raises(AssertionError, match="the kernel ran"):
            room.paged_attention_fp8(**attention_case(0) | {"query_dtype": "bf16"})
        with pytest.raises(AssertionError, match="the kernel ran"):
            room.write_fp8(**fp8_write_case(0))


def test_the_cpu_kernel_refuses_other_head_dims():
    with pytest.raises(ValueError, match="query has head_dim 96: allowed are 64 and 128"):
        cpu.paged_attention_fp8(**attention_case(0, head_dim=96))
    assert np.isfinite(reference.paged_attention_fp8(**attention_case(0, head_dim=96))).all()
