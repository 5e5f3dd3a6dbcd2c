"""Reads, work, rooflines, captured shapes and latencies. The chapter's own numbers: test_facts.py."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servelab import batching, catalog, cost, latency, memory
from servelab.cost import StepCost

QWEN = catalog.model("qwen3-8b")
CARD = catalog.accelerator("rtx-pro-6000")
SWEEP = catalog.record("batch-sweep").rows


@pytest.mark.parametrize("row", SWEEP, ids=lambda row: f"{row['condition']}-{row['batch']}")
def test_nominal_reads_and_work_of_every_measured_row(row):
    """The record's own byte and FLOP counts come out of the architecture."""
    batch, context, cached = row["batch"], row["context_tokens"], row["cached_prefix_tokens"]
    assert batching.step_read_bytes(QWEN, batch, context) == row["nominal_read_bytes_per_step"]
    prefill = [(context - cached, cached)] * batch
    assert cost.step_flops(QWEN, prefill) == row["prefill_matmul_flop"]
    mbu = cost.mbu(row["nominal_read_bytes_per_step"], row["decode_step_ms"] / 1e3, CARD)
    assert mbu == pytest.approx(row["decode_mbu"], abs=6e-4)
    mfu = cost.mfu(row["prefill_matmul_flop"], row["prefill_phase_ms"] / 1e3, CARD)
    assert mfu == pytest.approx(row["prefill_mfu"], abs=6e-4)


@pytest.mark.parametrize("row", catalog.record("chunk-history").rows, ids=lambda row: f"chunk{row['chunk']}")
def test_pairs_and_work_of_every_measured_chunk(row):
    assert cost.causal_pairs(row["new_tokens"], row["history_tokens"]) == row["causal_pairs"]
    work = cost.step_flops(QWEN, [(row["new_tokens"], row["history_tokens"])], logit_rows=0)
    assert work == row["backbone_matmul_flop"]


@given(st.integers(0, 60), st.integers(0, 60))
def test_causal_pairs_are_what_the_mask_leaves(new_tokens, context):
    assert cost.causal_pairs(new_tokens, context) == sum(context + i + 1 for i in range(new_tokens))


def test_chunks_add_up_to_the_whole():
    whole = cost.step_flops(QWEN, [(8192, 0)], logit_rows=0)
    assert sum(cost.step_flops(QWEN, [(512, h)], logit_rows=0) for h in range(0, 8192, 512)) == whole


@given(st.integers(1, 200), st.integers(1, 20000))
def test_crossover_is_the_first_batch(batch, context):
    kv, weights = batch * context * 147456, batching.weight_read_bytes(QWEN)
    assert (kv >= weights) == (batch >= batching.crossover_batch(QWEN, context))


def test_experts_are_read_as_tokens_reach_them():
    model = catalog.model("qwen3-235b-a22b")
    reads = [batching.weight_read_bytes(model, rows) for rows in (1, 2, 16, 17)]
    assert reads[1] - reads[0] == 8 * 94 * 3 * 4096 * 1536 * 2
    assert reads[2] == reads[3] == batching.weight_bytes(model) - 2 * model.embedding_parameters


def test_weights_in_rom_leave_the_kv_read():
    assert batching.read_bytes_per_token(QWEN, 7, 8192, weights_in_rom=True) == 8192 * 147456


def test_grouped_rows_of_adapters():
    rows = batching.rows_per_adapter(["a", "b", "a", None, "c"])
    assert rows == {"a": 2, "b": 1, None: 1, "c": 1}
    assert batching.grouped_blocks({"a": 20}, 16) == 2
    assert batching.grouped_blocks({"a": 17, "b": 1, "c": 1, "d": 1}, 16) == 5


def test_intensity():
    assert batching.weight_intensity(1) == 1
    assert batching.weight_intensity(16) == 16
    assert batching.weight_intensity(1, weight_element_bytes=0.5) == 4


def test_roofline_takes_the_longer_side():
    decode, prefill = cost.roofline(QWEN, CARD, [(1, 2048)]), cost.roofline(QWEN, CARD, [(2048, 0)])
    assert (decode.bound, prefill.bound) == ("read", "compute")
    assert decode.seconds == pytest.approx(8.62e-3, abs=5e-6)  # the record's floor
    assert cost.roofline(QWEN, CARD, [(2048, 0)], mfu=0.622).seconds == pytest.approx(94.8e-3, rel=1e-3)
    assert cost.roofline(QWEN, CARD, [(1, 0)], weights_in_rom=True).read_s == 0


@pytest.mark.parametrize(("context", "exists"), [(0, True), (128, True), (2048, False)])
def test_compute_bound_batch(context, exists):
    batch = cost.compute_bound_batch(QWEN, CARD, context)
    assert (batch is not None) == exists
    if exists:
        bounds = [cost.roofline(QWEN, CARD, [(1, context)] * rows).bound for rows in (batch - 1, batch)]
        assert bounds == ["read", "compute"]


def test_captured_shapes():
    assert [cost.padded_rows(rows, (32, 16)) for rows in (1, 16, 17, 32, 33)] == [16, 16, 32, 32, 33]


def test_step_cost():
    fit = catalog.step_cost("rtx-pro-6000", "qwen3-8b")
    assert fit == StepCost(26.22e-3, 30.4e-6, 3e-9)
    assert fit.seconds([]) == fit.fixed_s
    assert fit.seconds([(1, 2048), (1, 100)]) == pytest.approx(26.22e-3 + 2 * 30.4e-6 + (2049 + 101) * 3e-9)


def test_latency_of_one_request():
    times = [1.0, 1.5, 1.75, 3.0]
    assert latency.ttft(0.25, times) == 0.75
    assert latency.itl(times) == [0.5, 0.25, 1.25]
    assert latency.tpot(times) == pytest.approx(2 / 3)
    assert latency.request_time(0.75, latency.itl(times)) == 2.75
    assert latency.tpot([1.0]) == 0


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=30), st.integers(0, 100))
def test_percentile_is_the_nearest_rank(values, percent):
    result = latency.percentile(values, percent)
    assert sum(value <= result for value in values) >= percent / 100 * len(values)
    smaller = [value for value in values if value < result]
    assert not smaller or len(smaller) < percent / 100 * len(values)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: batching.step_read_bytes(QWEN, 0, 10), "batch is 0"),
        (lambda: batching.read_bytes_per_token(QWEN, 1, -1), "context is -1"),
        (lambda: batching.crossover_batch(QWEN, 0), "context is 0; it must be an integer of at least 1"),
        (lambda: batching.weight_intensity(1, 0), "weight_element_bytes is 0; it must be a finite number above 0"),
        (lambda: batching.lora_bytes(QWEN, 0), "rank is 0"),
        (lambda: batching.grouped_blocks({"a": 1}, 0), "rows_per_block is 0"),
        (lambda: batching.weight_read_bytes(QWEN, 0), "rows is 0"),
        (lambda: cost.causal_pairs(-1, 0), "new_tokens is -1"),
        (lambda: cost.step_flops(QWEN, [(1, 0)], logit_rows=2), "logit_rows is 2; it must be an integer from 0 to 1"),
        (lambda: cost.roofline(QWEN, CARD, [(1, 0)], mfu=1.5), "mfu is 1.5; it must be a finite number above 0 and"),
        (lambda: cost.roofline(QWEN, CARD, [(1, 0)], mbu=0), "mbu is 0"),
        (lambda: cost.compute_bound_batch(QWEN, CARD, 0, largest=0), "largest is 0"),
        (lambda: cost.padded_rows(0, [16]), "rows is 0"),
        (lambda: cost.padded_rows(1, [0]), "captured is 0"),
        (lambda: cost.mfu(1, 0, CARD), "seconds is 0"),
        (lambda: cost.mbu(1, float("nan"), CARD), "seconds is nan"),
        (lambda: StepCost(-1, 0, 0), "fixed_s is -1"),
        (lambda: latency.ttft(2.0, [1.0]), "must not decrease, nor start before 2.0"),
        (lambda: latency.itl([]), "token_times_s is empty"),
        (lambda: latency.tpot([2.0, 1.0]), "must not decrease"),
        (lambda: latency.request_time(-1, []), "ttft_s is -1"),
        (lambda: latency.request_time(1, [-0.5]), "itl_s is -0.5"),
        (lambda: latency.percentile([], 50), "values is empty"),
        (lambda: latency.percentile([1], 101), "percent is 101"),
        (lambda: latency.percentile([1, math.nan], 50), "values has a NaN"),
        (lambda: latency.ttft(0, [math.nan]), "token_times_s is nan"),
        (lambda: latency.itl([1, math.nan, 3]), "token_times_s is nan"),
        (lambda: memory.num_blocks(np.array([3, 4]), 2), "tokens is array([3, 4])"),
        (lambda: latency.uniform_request_time(0, 0, 0, 0), "output_tokens is 0"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
