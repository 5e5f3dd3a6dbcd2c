"""Paged attention: the reference against PyTorch, the CPU kernel against the reference, every bad input refused."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import random_case

from servelab.kernels import cpu, cuda, reference

# Outputs are weighted means of standard normal values, so at most about 4. Float32 keeps 1.2e-7 of that, each
# kernel adds in its own order, and scores up to about 5 pass their rounding on through exp: 3e-7 to 1e-6 was
# seen. Float16 caches have the same tolerance: they are widened exactly, and every kernel sees the same values.
ATOL = 5e-6


def assert_agree(actual, expected, atol=ATOL):
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, expected, rtol=0, atol=atol)  # fails on NaN, the mark of an unused slot


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("head_dim", [64, 128, 24])
def test_reference_agrees_with_torch_on_contiguous_kv(head_dim, dtype):
    seq_len, num_kv_heads, group, block_size = 40, 2, 4, 8
    rng = np.random.default_rng(head_dim)
    query = rng.standard_normal((1, num_kv_heads * group, head_dim), dtype=np.float32)
    keys, values = (rng.standard_normal((num_kv_heads, seq_len, head_dim)).astype(dtype) for _ in range(2))
    table = rng.permutation(seq_len // block_size)
    caches = []
    for tokens in (keys, values):
        cache = np.empty((len(table), num_kv_heads, block_size, head_dim), dtype)
        cache[table] = tokens.reshape(num_kv_heads, -1, block_size, head_dim).swapaxes(0, 1)
        caches.append(cache)
    out = reference.paged_attention(query, *caches, table.astype(np.int32)[None], np.array([seq_len], np.int32))

    expected = torch.nn.functional.scaled_dot_product_attention(
        torch.from_numpy(query).transpose(0, 1),  # (num_heads, 1, head_dim)
        torch.from_numpy(keys.repeat(group, axis=0)).float(),
        torch.from_numpy(values.repeat(group, axis=0)).float(),
    )
    assert_agree(out[0], expected[:, 0].numpy())


@settings(max_examples=150, deadline=None)  # the first call of each head_dim and dtype compiles for seconds
@given(
    seed=st.integers(0, 2**32 - 1),
    head_dim=st.sampled_from([64, 128]),
    num_kv_heads=st.integers(1, 3),
    group=st.sampled_from([1, 3, 4, 8]),
    block_size=st.sampled_from([1, 4, 5, 16]),
    seq_lens=st.lists(st.integers(1, 100), min_size=1, max_size=5),
    dtype=st.sampled_from(["float32", "float16"]),
)
def test_cpu_agrees_with_reference(**options):
    case = random_case(**options)
    assert_agree(cpu.paged_attention(**case), reference.paged_attention(**case))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("block_size", [1, 4, 5, 16])
def test_cpu_agrees_at_the_edges_of_a_block(block_size, head_dim, dtype):
    edges = (1, block_size, block_size + 1, 3 * block_size, 3 * block_size + 1)
    case = random_case(0, block_size=block_size, head_dim=head_dim, dtype=dtype, seq_lens=edges)
    assert_agree(cpu.paged_attention(**case), reference.paged_attention(**case))


def test_cpu_agrees_on_long_sequences():
    case = random_case(3, head_dim=128, num_kv_heads=8, seq_lens=(4096, 1, 1500))
    assert_agree(cpu.paged_attention(**case), reference.paged_attention(**case))


def test_all_sequences_may_share_all_blocks():
    case = random_case(4, seq_lens=(48,))
    one = cpu.paged_attention(**case)
    for name in ("query", "block_tables", "seq_lens"):
        case[name] = case[name].repeat(5, axis=0)
    assert_agree(cpu.paged_attention(**case), one.repeat(5, axis=0))


@pytest.mark.parametrize("scale", [0.01, 1, 30.0])
def test_scale_is_used_and_large_scores_do_not_overflow(scale):
    case = random_case(5, seq_lens=(90, 20))
    # Scores reach 30 * 30 here, and exp turns their rounding, 1e-4, into that much of a weight.
    expected = reference.paged_attention(**case, scale=scale)
    assert np.isfinite(expected).all()
    assert_agree(cpu.paged_attention(**case, scale=scale), expected, atol=1e-3 if scale > 1 else 2e-5)


def test_query_and_tables_may_be_any_view():
    case = random_case(6)
    expected = cpu.paged_attention(**case)
    for name in ("query", "block_tables", "seq_lens"):
        case[name] = np.repeat(case[name], 2, axis=-1)[..., ::2]
    assert_agree(cpu.paged_attention(**case), expected, atol=0)


def test_arguments_are_left_as_they_were():
    case = random_case(7, dtype="float16")
    before = {name: array.copy() for name, array in case.items()}
    for kernel in (reference, cpu):
        kernel.paged_attention(**case)
    for name, array in case.items():
        np.testing.assert_array_equal(array, before[name])


# What is changed in a good case (2 KV heads, group 4, blocks of 16, 8 blocks, tables of 4), and what the error says.
BAD_INPUTS = {
    "block id past the pool": ("block_tables", lambda a: _put(a, (2, 1), 8), r"block_tables\[2, 1\] is 8.*0 to 7"),
    "block id below 0": ("block_tables", lambda a: _put(a, (0, 0), -1), r"block_tables\[0, 0\] is -1.*0 to 7"),
    "length 0": ("seq_lens", lambda a: _put(a, 1, 0), r"seq_lens\[1\] is 0.*1 to 64"),
    "negative length": ("seq_lens", lambda a: _put(a, 0, -5), r"seq_lens\[0\] is -5.*1 to 64"),
    "length past the table": ("seq_lens", lambda a: _put(a, 2, 65), r"seq_lens\[2\] is 65.*1 to 64"),
    "length far past it": ("seq_lens", lambda a: _put(a, 2, 2**31 - 1), r"seq_lens\[2\] is 2147483647.*1 to 64"),
    "query of 2 dimensions": ("query", lambda a: a[0], r"query has shape \(8, 64\).*3 dimensions"),
    "query in float64": ("query", lambda a: a.astype(np.float64), "query has dtype float64.*float32"),
    "query in foreign byte order": ("query", lambda a: a.astype(">f4"), "query has dtype >f4.*float32"),
    "query as a list": ("query", lambda a: a.tolist(), "query is a list.*NumPy array"),
    "query as a tensor": ("query", torch.from_numpy, "query is a Tensor.*NumPy array"),
    "empty batch": ("query", lambda a: a[:0], r"query has shape \(0, 8, 64\).*at least 1"),
    "heads no multiple of KV heads": ("query", lambda a: a[:, :7].copy(), "query has 7 heads.*multiples of.*2"),
    "keys in int8": ("key_cache", lambda a: np.zeros(a.shape, np.int8), "key_cache has dtype int8.*float32 or float16"),
    "keys of another head_dim": ("key_cache", lambda a: a[..., :32].copy(), "key_cache has head_dim 32.*64"),
    "keys of 3 dimensions": ("key_cache", lambda a: a[0], "key_cache has shape.*4 dimensions"),
    "values of another shape": ("value_cache", lambda a: a[:-1].copy(), "value_cache has shape.*key_cache's"),
    "values of another dtype": (
        "value_cache",
        lambda a: a.astype(np.float16),
        "value_cache has dtype float16.*float32",
    ),
    "tables in int64": ("block_tables", lambda a: a.astype(np.int64), "block_tables has dtype int64.*int32"),
    "a table too few": ("block_tables", lambda a: a[:2].copy(), "block_tables has 2 rows.*3"),
    "tables of 1 dimension": ("block_tables", lambda a: a[0], "block_tables has shape.*2 dimensions"),
    "lengths in int64": ("seq_lens", lambda a: a.astype(np.int64), "seq_lens has dtype int64.*int32"),
    "a length too many": ("seq_lens", lambda a: np.append(a, a[:1]), "seq_lens has 4 entries.*3"),
    "scale 0": ("scale", lambda _: 0, "scale is 0.*above 0"),
    "scale NaN": ("scale", lambda _: float("nan"), "scale is nan.*finite"),
    "scale as text": ("scale", lambda _: "0.1", "scale is '0.1'.*number"),
}
BAD_FOR_COMPILED = {
    "keys not contiguous": ("key_cache", lambda a: a.repeat(2, axis=2)[:, :, ::2], "key_cache has strides.*C-contig"),
    "values not contiguous": ("value_cache", np.asfortranarray, "value_cache has strides.*C-contiguous"),
}
KERNELS = {"reference": reference, "cpu": cpu, "cuda": cuda}


def _put(array, index, value):
    array[index] = value
    return array


@pytest.fixture
def nothing_runs(monkeypatch):
    """Fail if a kernel gets past its checks."""

    def ran(*_):
        raise AssertionError("the kernel ran")

    monkeypatch.setattr(reference.attention, "gather", ran)
    monkeypatch.setattr(cpu.attention, "compile_kernel", ran)
    monkeypatch.setattr(cuda.attention, "_compiled", ran)
    monkeypatch.setattr(cuda.attention, "require_device", lambda: None)


def _refused(kernel, bad):
    name, change, message = bad
    case = random_case(0) | {"scale": None}
    case[name] = change(case[name])
    with pytest.raises(ValueError, match=message):
        KERNELS[kernel].paged_attention(**case)


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("bad", BAD_INPUTS.values(), ids=BAD_INPUTS)
def test_bad_input_is_refused_before_anything_runs(kernel, bad):
    _refused(kernel, bad)


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize("kernel", ["cpu", "cuda"])
@pytest.mark.parametrize("bad", BAD_FOR_COMPILED.values(), ids=BAD_FOR_COMPILED)
def test_compiled_kernels_refuse_caches_they_would_have_to_copy(kernel, bad):
    _refused(kernel, bad)


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize("kernel", ["cpu", "cuda"])
def test_compiled_kernels_refuse_other_head_dims(kernel):
    with pytest.raises(ValueError, match="query has head_dim 96: allowed are 64 and 128"):
        KERNELS[kernel].paged_attention(**random_case(0, head_dim=96))


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize("kernel", KERNELS)
def test_good_input_gets_past_the_checks(kernel):
    with pytest.raises(AssertionError, match="the kernel ran"):
        KERNELS[kernel].paged_attention(**random_case(0))
