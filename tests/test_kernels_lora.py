"""Low-rank updates: the reference against PyTorch, grouped kernels against the reference, every bad input refused."""

import numpy as np
import pytest
import torch
from canaries import Guarded, guard_results
from gpu_compiler import GPUS, needs_compiler, ptx_for
from hypothesis import given, settings
from hypothesis import strategies as st
from lora_cases import random_case
from numba import float32, int32, types

from servelab import batching
from servelab.kernels import cpu, cuda, reference
from servelab.kernels.reference.lora import ROWS_PER_TILE, group_rows

KERNELS = {"reference": reference, "cpu": cpu, "cuda": cuda}
RUNNABLE = [reference, cpu, *([cuda] if cuda.is_available() else [])]
# Results are about 1, up to 5; sums of thousands of float32 products in another order moved them by up to 3e-6.
ATOL = 2e-5


def assert_agree(actual, expected):
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, expected, rtol=0, atol=ATOL)  # fails on NaN, the mark of what must not be read


def test_reference_agrees_with_torch_on_merged_weights():
    """The update is what the merged matrix scale * B A does."""
    case = random_case(0, adapter_ids=(2, 2, 0), scale=2.0)
    merged = 2.0 * torch.from_numpy(case["lora_b"]) @ torch.from_numpy(case["lora_a"])  # (num_adapters, out, hidden)
    expected = [merged[adapter] @ torch.from_numpy(row) for adapter, row in zip((2, 2, 0), case["x"], strict=True)]
    assert_agree(reference.lora_update(**case), torch.stack(expected).numpy())


@settings(max_examples=60, deadline=None)  # the first call compiles
@given(
    seed=st.integers(0, 2**32 - 1),
    adapter_ids=st.lists(st.integers(-1, 3), min_size=1, max_size=60),
    rank=st.sampled_from([1, 3, 4, 8, 17]),
    hidden=st.integers(1, 200),
    out=st.integers(1, 200),
    scale=st.sampled_from([1.0, 0.25, -3]),
)
def test_kernels_agree_with_the_reference(**options):
    case = random_case(**options)
    expected = reference.lora_update(**case)
    assert not expected[case["adapter_ids"] == -1].any()
    for kernel in RUNNABLE[1:]:
        assert_agree(kernel.lora_update(**case), expected)


def test_kernels_agree_at_the_size_of_a_projection():
    adapter_ids = np.random.default_rng(1).integers(-1, 4, 64)
    case = random_case(1, adapter_ids=adapter_ids, rank=16, hidden=4096, out=1024)
    for kernel in RUNNABLE[1:]:
        assert_agree(kernel.lora_update(**case), reference.lora_update(**case))


@settings(max_examples=200, deadline=None)
@given(adapter_ids=st.lists(st.integers(-1, 3), max_size=80))
def test_groups_hold_each_row_once_and_are_as_many_as_counted(adapter_ids):
    ids = np.array(adapter_ids, np.int32)
    order, tiles = group_rows(ids)
    assert sorted(order.tolist()) == np.flatnonzero(ids >= 0).tolist()
    covered = []
    for adapter, start, end in tiles.tolist():
        assert 0 < end - start <= ROWS_PER_TILE
        assert set(ids[order[start:end]].tolist()) == {adapter}
        covered += range(start, end)
    assert covered == list(range(len(order)))
    groups = batching.rows_per_adapter(ids[ids >= 0].tolist())
    assert len(tiles) == batching.grouped_blocks(groups, ROWS_PER_TILE)


def test_rows_and_ids_may_be_any_view():
    case = random_case(2)
    expected = cpu.lora_update(**case)
    case["x"] = np.repeat(case["x"], 2, axis=1)[:, ::2]
    case["adapter_ids"] = np.repeat(case["adapter_ids"], 2)[::2]
    np.testing.assert_array_equal(cpu.lora_update(**case), expected)


@pytest.mark.parametrize("kernel", RUNNABLE, ids=lambda room: room.__name__)
def test_nothing_outside_is_read_or_written(kernel, monkeypatch):
    for seed, ids in enumerate([(0, -1, 2, 0), (1,) * 17 + (3,), (-1,), (3, 2, 1, 0, 3)]):
        case = random_case(seed, adapter_ids=ids)
        arrays = {name: value for name, value in case.items() if name != "scale"}
        expected = kernel.lora_update(**case)  # compiled before results are guarded
        guards = {name: Guarded(array) for name, array in arrays.items()}
        with monkeypatch.context() as patch:
            results = guard_results(patch)
            actual = kernel.lora_update(**case | {name: guard.array for name, guard in guards.items()})
        assert_agree(actual, expected)
        assert results
        for guard in [*guards.values(), *results]:
            guard.assert_untouched_around()
        for name, guard in guards.items():
            assert guard.array.tobytes() == arrays[name].tobytes()


def with_id(row, adapter):
    def change(adapter_ids):
        adapter_ids[row] = adapter
        return adapter_ids

    return change


# What is changed in a good case (4 rows, 4 adapters, rank 5, hidden 70, out 140), and what the error says.
BAD_INPUTS = {
    "adapter past the last": ("adapter_ids", with_id(2, 4), r"adapter_ids\[2\] is 4.*-1 for none to 3"),
    "adapter below -1": ("adapter_ids", with_id(0, -2), r"adapter_ids\[0\] is -2.*-1 for none to 3"),
    "ids in int64": ("adapter_ids", lambda a: a.astype("i8"), "adapter_ids has dtype int64.*int32"),
    "an id too few": ("adapter_ids", lambda a: a[:3], r"adapter_ids has shape \(3,\).*one a row of x, \(4,\)"),
    "rows in float16": ("x", lambda a: a.astype("f2"), "x has dtype float16.*float32"),
    "rows of 1 dimension": ("x", lambda a: a[0], r"x has shape \(70,\).*2 dimensions"),
    "no rows": ("x", lambda a: a[:0], r"x has shape \(0, 70\).*at least 1"),
    "rows as a tensor": ("x", torch.from_numpy, "x is a Tensor"),
    "A of another width": ("lora_a", lambda a: a[..., :64].copy(), "lora_a takes 64 values.*70"),
    "A in float64": ("lora_a", lambda a: a.astype("f8"), "lora_a has dtype float64"),
    "A of 2 dimensions": ("lora_a", lambda a: a[0], "lora_a has shape.*3 dimensions"),
    "B of another rank": ("lora_b", lambda a: a[..., :4].copy(), r"lora_b has shape \(4, 140, 4\).*\(4, 140, 5\)"),
    "B of fewer adapters": ("lora_b", lambda a: a[:3], r"lora_b has shape \(3, 140, 5\)"),
    "scale NaN": ("scale", lambda _: float("nan"), "scale is nan.*finite"),
    "scale as text": ("scale", lambda _: "1", "scale is '1'"),
}
BAD_FOR_COMPILED = {
    "A not contiguous": ("lora_a", np.asfortranarray, "lora_a has strides.*C-contiguous"),
    "B not contiguous": ("lora_b", np.asfortranarray, "lora_b has strides.*C-contiguous"),
}


def refused(kernel, bad, monkeypatch):
    def ran(*_):
        raise AssertionError("the kernel ran")

    name, change, message = bad
    case = random_case(0)
    case[name] = change(case[name])
    monkeypatch.setattr(np, "zeros", ran)  # what comes behind the checks
    monkeypatch.setattr(cuda.lora, "require_device", ran)
    with pytest.raises(ValueError, match=message):
        kernel.lora_update(**case)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("bad", BAD_INPUTS.values(), ids=BAD_INPUTS)
def test_bad_input_is_refused_before_anything_runs(kernel, bad, monkeypatch):
    refused(kernel, bad, monkeypatch)


@pytest.mark.parametrize("kernel", [cpu, cuda], ids=["cpu", "cuda"])
@pytest.mark.parametrize("bad", BAD_FOR_COMPILED.values(), ids=BAD_FOR_COMPILED)
def test_compiled_kernels_refuse_adapters_they_would_have_to_copy(kernel, bad, monkeypatch):
    refused(kernel, bad, monkeypatch)


@pytest.mark.parametrize("kernel", [cpu, cuda], ids=["cpu", "cuda"])
def test_compiled_kernels_refuse_a_rank_past_their_limit(kernel):
    with pytest.raises(ValueError, match="lora_a has rank 129: allowed are at most 128"):
        kernel.lora_update(**random_case(0, rank=129))


@needs_compiler
@pytest.mark.parametrize("compute_capability", GPUS)
def test_kernels_compile_for_gpus(compute_capability):
    rows, ids, tiles, adapters = float32[:, ::1], int32[::1], int32[:, ::1], float32[:, :, ::1]
    shrink = ptx_for(cuda.lora.shrink_kernel, types.void(rows, ids, tiles, adapters, float32, rows), compute_capability)
    expand = ptx_for(cuda.lora.expand_kernel, types.void(rows, ids, tiles, adapters, rows), compute_capability)
    for ptx in (shrink, expand):
        assert "bar.sync" in ptx
        assert ".shared" in ptx
        assert ".f64" not in ptx  # float64 arithmetic is 64 times as slow on consumer GPUs, and easily slips in
