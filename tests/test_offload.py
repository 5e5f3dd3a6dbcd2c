"""The pipeline of copies and computations, and what offloading frees and costs. Facts: facts_formats.py."""

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servelab import catalog, offload
from servelab.offload import COMPUTE, COPY

QWEN = catalog.model("qwen3-8b")
LAYERS = offload.every_nth(36, 4)
LAYER_BYTES = offload.ffn_bytes(QWEN)
LAYER_S = 0.729444e-3  # a 36th of 26.26 ms
PCIE5_S = offload.copy_s(LAYER_BYTES, catalog.link("pcie5-x16").bandwidth)
C2C_S = offload.copy_s(LAYER_BYTES, catalog.link("nvlink-c2c").bandwidth)


def book(copy_s, buffers, steps=1):
    return offload.pipeline([LAYER_S] * 36, LAYERS, copy_s, buffers, steps)


def test_one_buffer_over_pcie_gen5_gives_the_companion_s_step():
    """49.032 ms a step, of which the device waits 22.772 ms: mechanism_numbers.json of the companion's calculations."""
    timeline = book(PCIE5_S, buffers=1)
    assert timeline.total_s == pytest.approx(49.032324e-3, abs=1e-9)
    assert timeline.wait_s == pytest.approx(22.77234e-3, abs=1e-9)
    assert timeline.copy_s == pytest.approx(42.467328e-3, abs=1e-9)


def test_two_buffers_keep_the_link_busy():
    first, second, third = book(PCIE5_S, buffers=2, steps=3).step_s
    assert first == pytest.approx(9 * PCIE5_S + LAYER_S)  # the last layer still has to be computed
    assert second == pytest.approx(third)
    assert third == pytest.approx(offload.step_lower_bound_s(9 * PCIE5_S, 36 * LAYER_S))  # the link sets the pace


def test_one_buffer_makes_each_copy_wait_for_the_layer_before():
    steps = book(PCIE5_S, buffers=1, steps=3).step_s
    assert steps == pytest.approx([9 * (PCIE5_S + LAYER_S)] * 3)


def test_a_fast_link_hides_the_copies():
    assert book(C2C_S, buffers=1, steps=2).wait_s == pytest.approx(0, abs=1e-12)
    assert book(C2C_S, buffers=1).total_s == pytest.approx(36 * LAYER_S)


def test_the_first_layer_cannot_hide_its_copy():
    timeline = offload.pipeline([1.0, 1.0], [0], copy_s=3.0)
    assert timeline.events == (
        offload.Event(COPY, 0, 0, 0, 0.0, 3.0),
        offload.Event(COMPUTE, 0, 0, 0, 3.0, 4.0),
        offload.Event(COMPUTE, 0, 1, None, 4.0, 5.0),
    )
    assert timeline.wait_s == 3.0


def test_resident_layers_need_no_copy():
    timeline = offload.pipeline([1.0] * 4, [], copy_s=3.0)
    assert (timeline.total_s, timeline.wait_s, timeline.copy_s) == (4.0, 0.0, 0.0)
    assert all(event.buffer is None for event in timeline.events)


@st.composite
def pipelines(draw):
    times = st.integers(0, 40).map(lambda eighths: eighths / 8)  # exact in binary
    compute_s = draw(st.lists(times, min_size=1, max_size=8))
    offloaded = draw(st.sets(st.integers(0, len(compute_s) - 1)))
    return {
        "compute_s": compute_s,
        "offloaded": offloaded,
        "copy_s": draw(times),
        "buffers": draw(st.integers(1, 4)),
        "steps": draw(st.integers(1, 3)),
    }


@settings(deadline=None)
@given(pipelines())
def test_order_of_copies_and_computations(case):
    timeline = offload.pipeline(**case)
    copies, computations = timeline.of_kind(COPY), timeline.of_kind(COMPUTE)
    used = [event for event in computations if event.buffer is not None]

    # Each layer of each step once, in order; a copy for each offloaded one.
    layers = range(len(case["compute_s"]))
    everything = [(step, layer) for step in range(case["steps"]) for layer in layers]
    assert [(event.step, event.layer) for event in computations] == everything
    assert [(event.step, event.layer, event.buffer) for event in copies] == [
        (event.step, event.layer, event.buffer) for event in used
    ]

    # A layer starts after its copy; device and link do one thing at a time.
    assert all(copy.end_s <= use.start_s for copy, use in zip(copies, used, strict=True))
    for events in (copies, computations):
        assert all(one.end_s <= other.start_s for one, other in pairwise(events))

    # No buffer is overwritten between its copy and the end of its use.
    for buffer in range(case["buffers"]):
        mine = [index for index, copy in enumerate(copies) if copy.buffer == buffer]
        assert all(used[one].end_s <= copies[other].start_s for one, other in pairwise(mine))


@settings(deadline=None)
@given(pipelines())
def test_total_lies_between_the_bounds_and_serial_time(case):
    timeline = offload.pipeline(**case)
    compute = case["steps"] * sum(case["compute_s"])
    copy = case["steps"] * len(case["offloaded"]) * case["copy_s"]
    assert (timeline.compute_s, timeline.copy_s) == (compute, copy)
    assert offload.step_lower_bound_s(copy, compute) <= timeline.total_s <= copy + compute
    assert sum(timeline.step_s) == timeline.total_s
    assert timeline.wait_s == timeline.total_s - compute


@settings(deadline=None)
@given(pipelines())
def test_another_buffer_never_slows_a_step(case):
    more = offload.pipeline(**{**case, "buffers": case["buffers"] + 1})
    assert more.total_s <= offload.pipeline(**case).total_s


def test_what_the_pool_had_left_over_can_make_room_for_one_more():
    mib = 2**20
    assert offload.extra_requests(2304 * mib, 1188 * mib) == 1
    assert offload.extra_requests(2304 * mib, 1188 * mib, pool_bytes=12288 * mib) == 2  # 408 MiB were left over


def test_as_many_buffers_as_layers_free_nothing():
    assert offload.net_bytes(100, 3, buffers=3) == 0


@pytest.mark.parametrize(("link_gb_per_s", "raw_ms", "packed_ms"), [(0.125, 805.306, 301.99), (25, 4.027, 101.67)])
def test_a_slow_decoder_pays_on_a_slow_link_only(link_gb_per_s, raw_ms, packed_ms):
    """96 MiB at a quarter, decoded at 1 GB/s: `tensor_codec` of mechanism_numbers.json."""
    size, link = 96 * 2**20, link_gb_per_s * 1e9
    assert 1e3 * offload.copy_s(size, link) == pytest.approx(raw_ms, abs=0.001)
    assert 1e3 * offload.compressed_copy_s(size, 0.25, link, decoder=1e9) == pytest.approx(packed_ms, abs=0.005)
    assert (offload.min_decoder(link, 0.25) < 1e9) == (packed_ms < raw_ms)


@settings(deadline=None)
@given(st.integers(1, 10**12), st.floats(0.01, 0.99), st.floats(1e6, 1e12))
def test_compression_breaks_even_at_min_decoder(size, ratio, bandwidth):
    decoder = offload.min_decoder(bandwidth, ratio)
    assert offload.compressed_copy_s(size, ratio, bandwidth, decoder) == pytest.approx(offload.copy_s(size, bandwidth))
    overlapped = offload.compressed_copy_s(size, ratio, bandwidth, decoder, overlapped=True)
    assert overlapped <= offload.compressed_copy_s(size, ratio, bandwidth, decoder)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: offload.every_nth(0, 1), "num_layers is 0"),
        (lambda: offload.every_nth(36, 37), "n is 37; it must be an integer from 1 to 36"),
        (lambda: offload.pipeline([], [], 1.0), "compute_s is empty"),
        (lambda: offload.pipeline([1.0, -1.0], [], 1.0), "compute_s is -1.0; it must be a finite number of at least 0"),
        (lambda: offload.pipeline([1.0], [1], 1.0), "offloaded is 1; it must be an integer from 0 to 0"),
        (lambda: offload.pipeline([1.0, 1.0], [1, 1], 1.0), r"offloaded is \[1, 1\]; it must name each layer once"),
        (lambda: offload.pipeline([1.0], [0], float("inf")), "copy_s is inf"),
        (lambda: offload.pipeline([1.0], [0], 1.0, buffers=0), "buffers is 0"),
        (lambda: offload.pipeline([1.0], [0], 1.0, steps=0), "steps is 0"),
        (lambda: offload.freed_bytes(0, 9), "layer_bytes is 0"),
        (lambda: offload.freed_bytes(1, 0), "layers is 0"),
        (lambda: offload.net_bytes(1, 9, 0), "buffers is 0; it must be an integer from 1 to 9"),
        (lambda: offload.net_bytes(1, 9, 10), "buffers is 10"),
        (lambda: offload.extra_requests(-1, 1), "extra_bytes is -1"),
        (lambda: offload.extra_requests(1, 0), "request_bytes is 0"),
        (lambda: offload.extra_requests(1, 1, -1), "pool_bytes is -1"),
        (lambda: offload.copy_s(1.5, 1), "num_bytes is 1.5"),
        (lambda: offload.copy_s(1, 0), "bandwidth is 0; it must be a finite number above 0"),
        (lambda: offload.step_lower_bound_s(-1, 1), "step_copy_s is -1"),
        (lambda: offload.step_lower_bound_s(1, -1), "step_compute_s is -1"),
        (lambda: offload.max_throughput(0, 1), "batch is 0"),
        (lambda: offload.max_throughput(1, 0), "step_s is 0"),
        (lambda: offload.min_bandwidth(-1, 1, 1), "step_bytes is -1"),
        (lambda: offload.min_bandwidth(1, 0, 1), "steps is 0"),
        (lambda: offload.min_bandwidth(1, 1, 0), "budget_s is 0"),
        (lambda: offload.compressed_copy_s(1, 1, 1, 1), "ratio is 1; it must be a number above 0 and below 1"),
        (lambda: offload.compressed_copy_s(1, 0.5, 1, 0), "decoder is 0"),
        (lambda: offload.min_decoder(0, 0.5), "bandwidth is 0"),
        (lambda: offload.min_decoder(1, 0), "ratio is 0"),
        (lambda: book(C2C_S, 1).of_kind("cpy"), "kind is 'cpy'"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=re.compile(message)):
        call()
