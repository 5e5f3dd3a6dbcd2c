"""Quantized KV: bytes equal to the codec's, three kernels that agree, bad input refused, packed conversions."""

import platform

import numpy as np
import pytest
import quantized_cases
import torch
from canaries import Guarded, guard_results
from gpu_compiler import GPUS, needs_compiler, ptx_for
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numba import float32, int8, int32, int64, types, uint8
from quantized_cases import KV_DTYPES, attention_case, edge_case, write_case

from servelab.kernels import assembly, cpu, cuda, reference
from servelab.quantization import dequantize, quantize

# As in test_kernels.py, and for the same reason: the codes are decoded exactly, and every kernel sees the same values.
ATOL = 5e-6
KERNELS = {"reference": reference, "cpu": cpu, "cuda": cuda}
RUNNABLE = [reference, cpu, *([cuda] if cuda.is_available() else [])]
each_format = pytest.mark.parametrize("kv_dtype", KV_DTYPES)
each_room = pytest.mark.parametrize("room", RUNNABLE, ids=lambda room: room.__name__.split(".")[-1])
on_x86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="reads x86-64 instructions")


def assert_agree(actual, expected, atol=ATOL):
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, expected, rtol=0, atol=atol)  # fails on NaN, the mark of an unused slot


# Writing


def assert_written(case, before):
    """The slots hold the codec's bytes, and all else in the caches is as it was."""
    for new, cache in ((case["key"], "key_cache"), (case["value"], "value_cache")):
        expected = before[cache].copy()
        for token, slot in enumerate(case["slot_mapping"]):
            block, offset = divmod(slot, expected.shape[2])
            expected[block, :, offset] = quantize(new[token], case["kv_dtype"])
        np.testing.assert_array_equal(case[cache], expected)


def copies(case):
    return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in case.items()}


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    kv_dtype=st.sampled_from(KV_DTYPES),
    num_tokens=st.integers(1, 12),
    num_kv_heads=st.integers(1, 3),
    head_dim=st.sampled_from([32, 64, 96, 128]),
)
def test_written_bytes_are_the_codec_s(seed, kv_dtype, **shape):
    case = write_case(seed, kv_dtype, **shape)
    for room in RUNNABLE:
        written = copies(case)
        assert room.write_quantized(**written) is None
        assert_written(written, case)


@each_format
@each_room
@pytest.mark.parametrize("blocks", ["EDGES", "NANS"])
def test_written_bytes_are_the_codec_s_at_the_edges(blocks, room, kv_dtype):
    if room is cuda and blocks == "NANS" and not cuda.is_simulator():
        pytest.skip("GPUs have one NaN of their own")
    case = edge_case(kv_dtype, getattr(quantized_cases, blocks))
    written = copies(case)
    room.write_quantized(**written)
    assert_written(written, case)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@settings(max_examples=100)
@given(kv_dtype=st.sampled_from(KV_DTYPES), bits=arrays.arrays(np.uint32, (2, 32)))
def test_any_32_bit_patterns_give_the_codec_s_bytes(kv_dtype, bits):
    blocks = bits.view(np.float32)
    blocks[np.isnan(blocks)] = np.nan  # what is left of a NaN's payload is the machine's
    case = edge_case(kv_dtype, blocks)
    written = copies(case)
    cpu.write_quantized(**written)
    assert_written(written, case)


@each_format
@each_room
def test_writing_changes_nothing_around_the_slots(room, kv_dtype):
    case = write_case(1, kv_dtype)
    guards = {name: Guarded(case[name]) for name in ("key", "value", "key_cache", "value_cache", "slot_mapping")}
    written = case | {name: guard.array for name, guard in guards.items()}
    room.write_quantized(**written)
    for guard in guards.values():
        guard.assert_untouched_around()
    for name in ("key", "value", "slot_mapping"):
        np.testing.assert_array_equal(written[name], case[name])
    assert_written(written, case)


@each_room
def test_new_tokens_and_slots_may_be_any_view(room):
    case = write_case(2, "q8_0")
    written = copies(case)
    for name in ("key", "value", "slot_mapping"):
        written[name] = np.repeat(case[name], 2, axis=-1)[..., ::2]
    room.write_quantized(**written)
    assert_written(written, case)


# Reading


@settings(max_examples=80)  # the first call of each head_dim and format compiles for seconds
@given(
    seed=st.integers(0, 2**32 - 1),
    kv_dtype=st.sampled_from(KV_DTYPES),
    head_dim=st.sampled_from([64, 128]),
    num_kv_heads=st.integers(1, 3),
    group=st.sampled_from([1, 3, 4, 8]),
    block_size=st.sampled_from([1, 4, 5, 16]),
    seq_lens=st.lists(st.integers(1, 100), min_size=1, max_size=5),
)
def test_cpu_agrees_with_reference(**options):
    case = attention_case(**options)
    assert_agree(cpu.paged_attention_quantized(**case), reference.paged_attention_quantized(**case))


@each_format
@pytest.mark.parametrize("block_size", [1, 4, 5, 16])
def test_cpu_agrees_at_the_edges_of_a_block(block_size, kv_dtype):
    edges = (1, block_size, block_size + 1, 3 * block_size, 3 * block_size + 1)
    case = attention_case(0, kv_dtype, block_size=block_size, seq_lens=edges)
    assert_agree(cpu.paged_attention_quantized(**case), reference.paged_attention_quantized(**case))


@each_format
def test_cpu_agrees_on_long_sequences(kv_dtype):
    case = attention_case(3, kv_dtype, head_dim=128, num_kv_heads=8, seq_lens=(4096, 1, 1500))
    assert_agree(cpu.paged_attention_quantized(**case), reference.paged_attention_quantized(**case))


@each_format
@each_room
def test_what_is_written_is_what_is_read(room, kv_dtype):
    """Against torch, on the values that the codec leaves of 20 tokens."""
    case = write_case(4, kv_dtype, num_tokens=20, num_blocks=5, block_size=4)
    rng = np.random.default_rng(4)
    case["key"], case["value"] = rng.standard_normal((2, 20, 2, 64), dtype=np.float32)
    case["slot_mapping"] = np.arange(20)
    query = rng.standard_normal((1, 6, 64), dtype=np.float32)
    room.write_quantized(**case)
    table, seq_lens = np.arange(5, dtype=np.int32)[None], np.array([20], np.int32)
    out = room.paged_attention_quantized(query, case["key_cache"], case["value_cache"], table, seq_lens, kv_dtype)

    keys, values = (dequantize(quantize(case[name], kv_dtype), kv_dtype) for name in ("key", "value"))
    expected = torch.nn.functional.scaled_dot_product_attention(
        torch.from_numpy(query).transpose(0, 1),  # (num_heads, 1, head_dim)
        *(torch.from_numpy(tokens.swapaxes(0, 1).repeat(3, axis=0)) for tokens in (keys, values)),
    )
    assert_agree(out[0], expected[:, 0].numpy())


@each_format
@each_room
@pytest.mark.parametrize("cache", ["key_cache", "value_cache"])
def test_nan_in_a_cache_reaches_its_heads_and_no_others(cache, room, kv_dtype):
    case = attention_case(5, kv_dtype, seq_lens=(37, 37))
    case[cache][case["block_tables"][1, 2], 1, 3] = quantize(np.full(64, np.nan, np.float32), kv_dtype)
    out = room.paged_attention_quantized(**case)
    assert np.isnan(out[1, 4:]).all()
    assert not np.isnan(out[0]).any()
    assert not np.isnan(out[1, :4]).any()


@each_format
def test_scale_is_used_and_large_scores_do_not_overflow(kv_dtype):
    case = attention_case(6, kv_dtype, seq_lens=(90, 20))
    # Scores reach 30 * 30 here, and exp turns their rounding, 1e-4, into that much of a weight.
    for scale, atol in ((0.01, ATOL), (30.0, 1e-3)):
        expected = reference.paged_attention_quantized(**case, scale=scale)
        assert np.isfinite(expected).all()
        assert_agree(cpu.paged_attention_quantized(**case, scale=scale), expected, atol)


@each_format
def test_reading_stays_inside_and_changes_nothing(kv_dtype, monkeypatch):
    case = attention_case(7, kv_dtype)
    expected = cpu.paged_attention_quantized(**case)  # and compiles
    poison = {"key_cache": 255, "value_cache": 255}  # two such bytes are a NaN for a scale
    guards = {n: Guarded(array, poison.get(n)) for n, array in case.items() if isinstance(array, np.ndarray)}
    results = guard_results(monkeypatch)
    out = cpu.paged_attention_quantized(**case | {name: guard.array for name, guard in guards.items()})
    monkeypatch.undo()
    np.testing.assert_array_equal(out, expected)
    for guard in (*guards.values(), *results):
        guard.assert_untouched_around()
    for name, guard in guards.items():
        np.testing.assert_array_equal(guard.array, case[name])


@each_format
def test_caches_may_lie_at_an_odd_address(kv_dtype):
    case = attention_case(8, kv_dtype)
    expected = cpu.paged_attention_quantized(**case)
    for name in ("key_cache", "value_cache"):
        memory = np.empty(case[name].size + 1, np.uint8)
        odd = memory[1 - memory.ctypes.data % 2 :][: case[name].size].reshape(case[name].shape)
        odd[...] = case[name]
        case[name] = odd
    np.testing.assert_array_equal(cpu.paged_attention_quantized(**case), expected)


# What is changed in a good case of reading (2 KV heads, group 4, blocks of 16, 8 blocks, tables of 4), what is said.
BAD_READS = {
    "unknown format": ("kv_dtype", lambda _: "q5_0", "kv_dtype is 'q5_0': allowed is 'q8_0' or 'q4_0'"),
    "the format of other bytes": ("kv_dtype", lambda _: "q4_0", "key_cache has 68 bytes a head.*head_dim 64.*36"),
    "head_dim no multiple of 32": ("query", lambda a: a[..., :48].copy(), "query has head_dim 48.*multiples of 32"),
    "another head_dim": ("query", lambda a: a[..., :32].copy(), "key_cache has 68 bytes a head.*head_dim 32.*34"),
    "query in float16": ("query", lambda a: a.astype(np.float16), "query has dtype float16.*float32"),
    "query of 2 dimensions": ("query", lambda a: a[0], r"query has shape \(8, 64\).*3 dimensions"),
    "query as a tensor": ("query", torch.from_numpy, "query is a Tensor.*NumPy array"),
    "empty batch": ("query", lambda a: a[:0], r"query has shape \(0, 8, 64\).*at least 1"),
    "heads no multiple of KV heads": ("query", lambda a: a[:, :7].copy(), "query has 7 heads.*multiples of.*2"),
    "keys in int8": ("key_cache", lambda a: a.view(np.int8), "key_cache has dtype int8.*uint8"),
    "keys of 3 dimensions": ("key_cache", lambda a: a[0], "key_cache has shape.*4 dimensions"),
    "keys not contiguous": ("key_cache", lambda a: a.repeat(2, axis=2)[:, :, ::2], "key_cache has strides.*C-contig"),
    "values of another shape": ("value_cache", lambda a: a[:-1].copy(), "value_cache has shape.*key_cache's"),
    "values not contiguous": ("value_cache", np.asfortranarray, "value_cache has strides.*C-contiguous"),
    "block id past the pool": ("block_tables", lambda a: _put(a, (2, 1), 8), r"block_tables\[2, 1\] is 8.*0 to 7"),
    "block id below 0": ("block_tables", lambda a: _put(a, (0, 0), -1), r"block_tables\[0, 0\] is -1.*0 to 7"),
    "tables in int64": ("block_tables", lambda a: a.astype(np.int64), "block_tables has dtype int64.*int32"),
    "a table too few": ("block_tables", lambda a: a[:2].copy(), "block_tables has shape.*one row a sequence"),
    "length 0": ("seq_lens", lambda a: _put(a, 1, 0), r"seq_lens\[1\] is 0.*1 to 64"),
    "length past the table": ("seq_lens", lambda a: _put(a, 2, 65), r"seq_lens\[2\] is 65.*1 to 64"),
    "lengths in int64": ("seq_lens", lambda a: a.astype(np.int64), "seq_lens has dtype int64.*int32"),
    "a length too many": ("seq_lens", lambda a: np.append(a, a[:1]), "seq_lens has shape.*one length a sequence"),
    "scale 0": ("scale", lambda _: 0, "scale is 0.*above 0"),
}
# The same for writing (5 tokens, 2 KV heads, head_dim 64, 4 blocks of 3).
BAD_WRITES = {
    "unknown format": ("kv_dtype", lambda _: "fp8", "kv_dtype is 'fp8': allowed is 'q8_0' or 'q4_0'"),
    "no format": ("kv_dtype", lambda _: None, "kv_dtype is None: allowed is 'q8_0' or 'q4_0'"),
    "keys in float64": ("key", lambda a: a.astype(np.float64), "key has dtype float64.*float32"),
    "keys in float16": ("key", lambda a: a.astype(np.float16), "key has dtype float16.*float32"),
    "keys of 2 dimensions": ("key", lambda a: a[0], r"key has shape \(2, 64\).*3 dimensions"),
    "no token": ("key", lambda a: a[:0], r"key has shape \(0, 2, 64\).*at least 1"),
    "values of another shape": ("value", lambda a: a[:, :, :32].copy(), "value has shape.*key's"),
    "values as a list": ("value", lambda a: a.tolist(), "value is a list.*NumPy array"),
    "key cache in float16": ("key_cache", lambda a: a.view(np.float16), "key_cache has dtype float16.*uint8"),
    "key cache of other rows": ("key_cache", lambda a: a[..., :66].copy(), "value_cache has shape.*key_cache's"),
    "key cache not contiguous": ("key_cache", np.asfortranarray, "key_cache has strides.*C-contiguous"),
    "value cache read-only": ("value_cache", lambda a: _read_only(a), "value_cache is read-only"),
    "slot past the cache": ("slot_mapping", lambda a: _put(a, 3, 12), r"slot_mapping\[3\] is 12.*0 to 11"),
    "slot below 0": ("slot_mapping", lambda a: _put(a, 0, -1), r"slot_mapping\[0\] is -1.*0 to 11"),
    "slots in int32": ("slot_mapping", lambda a: a.astype(np.int32), "slot_mapping has dtype int32.*int64"),
    "a slot too few": ("slot_mapping", lambda a: a[1:].copy(), r"slot_mapping has shape \(4,\).*one slot a token"),
    "a slot twice": ("slot_mapping", lambda a: _put(a, 4, a[0]), "slot_mapping holds slot .* twice"),
}
# Both new tokens, or both caches, changed.
BAD_PAIRS = {
    "head_dim 48": ("key", "value", lambda a: a[..., :48].copy(), "key has head_dim 48.*multiples of 32"),
    "another head_dim": (
        "key",
        "value",
        lambda a: a[..., :32].copy(),
        "key_cache has 68 bytes a head.*head_dim 32.*34",
    ),
    "KV heads too few": ("key", "value", lambda a: a[:, :1].copy(), "key has 1 KV heads.*key_cache's 2"),
    "rows too short": ("key_cache", "value_cache", lambda a: a[..., :66].copy(), "key_cache has 66 bytes a head.*68"),
}


def _put(array, index, value):
    array[index] = value
    return array


def _read_only(array):
    array.flags.writeable = False
    return array


@pytest.fixture
def nothing_runs(monkeypatch):
    """Fail if a kernel gets past its checks."""

    def ran(*_):
        raise AssertionError("the kernel ran")

    for room, name in (
        (reference, "quantize"),
        (reference, "dequantize"),
        (cpu, "_writer"),
        (cpu, "attention_kernel"),
        (cuda, "_compiled"),
        (cuda, "_compiled_writer"),
    ):
        monkeypatch.setattr(room.quantized, name, ran)
    monkeypatch.setattr(cuda.quantized, "require_device", lambda: None)


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize("room", KERNELS.values(), ids=KERNELS)
class TestRefusals:
    @pytest.mark.parametrize("bad", BAD_READS.values(), ids=BAD_READS)
    def test_bad_reads_are_refused_before_anything_runs(self, room, bad):
        name, change, message = bad
        case = attention_case(0, "q8_0") | {"scale": None}
        case[name] = change(case[name])
        with pytest.raises(ValueError, match=message):
            room.paged_attention_quantized(**case)

    @pytest.mark.parametrize("bad", BAD_WRITES.values(), ids=BAD_WRITES)
    def test_bad_writes_are_refused_before_anything_changes(self, room, bad):
        name, change, message = bad
        case = write_case(0, "q8_0")
        before = copies(case)
        changed = case | {name: change(copies(case)[name])}
        with pytest.raises(ValueError, match=message):
            room.write_quantized(**changed)
        for cache in ("key_cache", "value_cache"):
            np.testing.assert_array_equal(case[cache], before[cache])

    @pytest.mark.parametrize("bad", BAD_PAIRS.values(), ids=BAD_PAIRS)
    def test_bad_pairs_are_refused(self, room, bad):
        first, second, change, message = bad
        case = write_case(0, "q8_0")
        with pytest.raises(ValueError, match=message):
            room.write_quantized(**case | {first: change(case[first]), second: change(case[second])})

    def test_one_cache_for_both_is_refused(self, room):
        case = write_case(0, "q8_0")
        with pytest.raises(ValueError, match="value_cache overlaps key_cache"):
            room.write_quantized(**case | {"value_cache": case["key_cache"]})

    def test_compiled_kernels_refuse_other_head_dims(self, room):
        case = attention_case(0, "q8_0", head_dim=96)
        error, message = (AssertionError, "ran") if room is reference else (ValueError, "head_dim 96.*64 and 128")
        with pytest.raises(error, match=message):
            room.paged_attention_quantized(**case)

    @each_format
    def test_good_input_gets_past_the_checks(self, room, kv_dtype):
        with pytest.raises(AssertionError, match="the kernel ran"):
            room.paged_attention_quantized(**attention_case(0, kv_dtype))
        with pytest.raises(AssertionError, match="the kernel ran"):
            room.write_quantized(**write_case(0, kv_dtype))


# What the compiler made of it


def decoded(kv_dtype, constant_trip_count):
    """A decoder that has been called, and the rows that it gave."""
    stored = quantize(np.random.default_rng(9).standard_normal((16, 128), dtype=np.float32), kv_dtype)
    rows = np.empty((16, 128), np.float32)
    decode = cpu.quantized.decoder(kv_dtype, constant_trip_count)
    decode(stored, rows, cpu.quantized.TRIP_COUNTS[kv_dtype])
    np.testing.assert_array_equal(rows, dequantize(stored, kv_dtype))
    return decode


@on_x86
@each_format
def test_a_run_time_trip_count_gives_packed_conversions_and_a_constant_one_does_not(kv_dtype):
    packed = decoded(kv_dtype, constant_trip_count=False)
    assert assembly.conversions(packed).packed >= 2
    loop = assembly.converting_block(packed)
    assert any("cvtdq2ps" in line for line in loop)
    assert not any("cvtsi2ss" in line for line in loop)
    assert len(loop) < 32  # instructions, for 32 values

    unrolled = decoded(kv_dtype, constant_trip_count=True)
    assert assembly.conversions(unrolled) == assembly.Conversions(packed=0, scalar=32)
    assert sum("cvtsi2ss" in line for line in assembly.converting_block(unrolled)) == 32


@on_x86
def test_the_whole_kernel_converts_as_its_decoder_does():
    case = attention_case(0, "q8_0", head_dim=128)
    expected = cpu.paged_attention_quantized(**case)
    counts = {}
    for constant in (False, True):
        kernel = cpu.quantized.attention_kernel(128, "q8_0", constant)
        arguments = {name: case[name] for name in ("key_cache", "value_cache", "block_tables", "seq_lens")}
        out = cpu.quantized.run_attention(kernel, case["query"] * np.float32(128**-0.5), **arguments, trip_count=32)
        assert_agree(out, expected)
        counts[constant] = assembly.conversions(kernel)
    assert counts[False].packed > counts[True].packed  # some are left in both: the softmax has integers too
    assert counts[False].scalar < counts[True].scalar


def test_converted_at_once_counts_registers_by_their_width():
    wide = ["vcvtdq2ps %zmm2, %zmm2", "vcvtdq2ps %ymm2, %ymm2", "cvtdq2ps %xmm0, %xmm1", "vmulps %zmm2, %zmm1, %zmm2"]
    assert assembly.converted_at_once(wide) == 28
    assert assembly.converted_at_once(["vcvtsi2ss %r10d, %xmm15, %xmm1", "vcvtsi2ssl (%rax), %xmm0, %xmm0"]) == 2
    assert assembly.converted_at_once(["jne .LBB0_25"]) == 0


def test_a_function_that_was_not_called_has_no_assembly():
    with pytest.raises(ValueError, match="dispatcher is not compiled yet"):
        assembly.conversions(cpu.quantized.compile_attention(64, None))


CODE_TYPES = {"q8_0": int8, "q4_0": uint8}


@needs_compiler
@each_format
@pytest.mark.parametrize("compute_capability", GPUS)
@pytest.mark.parametrize(("head_dim", "heads"), [(64, 1), (128, 8)])
def test_reading_compiles_for_gpus(head_dim, heads, kv_dtype, compute_capability):
    codes, scales = CODE_TYPES[kv_dtype][:, :, :, ::1], types.float16[:, :, :, ::1]
    rows = float32[:, :, ::1]
    signature = types.void(rows, codes, scales, codes, scales, int32[:, ::1], int32[::1], float32, rows)
    ptx = ptx_for(cuda.quantized.kernel_source(head_dim, heads, kv_dtype), signature, compute_capability)
    assert "bar.sync" in ptx  # syncthreads
    assert "cvt.f32.f16" in ptx
    assert "cvt.f64" not in ptx  # float64 arithmetic is 64 times as slow on consumer GPUs, and easily slips in
    assert ".f64 " not in ptx
    assert "st.local" not in ptx  # what each thread keeps for its heads is in registers


@needs_compiler
@each_format
@pytest.mark.parametrize("compute_capability", GPUS)
def test_writing_compiles_for_gpus(kv_dtype, compute_capability):
    codes, scales = CODE_TYPES[kv_dtype][:, :, :, ::1], types.float16[:, :, :, ::1]
    signature = types.void(float32[:, :, ::1], codes, scales, int64[::1])
    ptx = ptx_for(cuda.quantized.writer_source(kv_dtype), signature, compute_capability)
    assert "cvt.rn.f16.f32" in ptx
    assert "rcp.rn.f32" in ptx  # as exact as NumPy's, not approximate
    assert ".f64 " not in ptx


@pytest.mark.skipif(not cuda.is_available(), reason="no CUDA GPU here; the simulator ran the kernel")
@each_format
@pytest.mark.parametrize("head_dim", [64, 128])
def test_kernel_on_a_gpu_agrees_with_the_reference(head_dim, kv_dtype):
    case = attention_case(1, kv_dtype, head_dim=head_dim, num_kv_heads=8, seq_lens=(1, 16, 500, 2049))
    assert_agree(cuda.paged_attention_quantized(**case), reference.paged_attention_quantized(**case))


@pytest.mark.skipif(cuda.is_available(), reason="a CUDA GPU or the simulator is here")
def test_without_gpu_and_simulator_nothing_is_changed():
    case = write_case(0, "q8_0")
    before = copies(case)
    with pytest.raises(RuntimeError, match="NUMBA_ENABLE_CUDASIM=1"):
        cuda.write_quantized(**case)
    with pytest.raises(RuntimeError, match="NUMBA_ENABLE_CUDASIM=1"):
        cuda.paged_attention_quantized(**attention_case(0, "q8_0"))
    for cache in ("key_cache", "value_cache"):
        np.testing.assert_array_equal(case[cache], before[cache])


def test_every_block_size_group_head_dim_and_format_is_among_the_cuda_cases():
    default = {"head_dim": 64, "block_size": 16}
    cases = [default | options for options in quantized_cases.CUDA_CASES.values()]
    assert {(case["head_dim"], case["kv_dtype"]) for case in cases} == {(d, f) for d in (64, 128) for f in KV_DTYPES}
    assert {case["group"] for case in cases} >= {1, 2, 4, 8, 12}  # 12: two thread blocks of 6 heads
    assert {case["block_size"] for case in cases} >= {1, 5, 16, 40}
