"""Copies behind computations: no buffer is overwritten while in use, results are right, the clock is read honestly."""

import itertools
import random
import threading
import time
import types

import numpy as np
import pytest
import torch

from servelab import offload
from servelab.kernels import overlap
from servelab.offload import COMPUTE, COPY

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here; the CPU ran the same walk")
CASES = [
    (6, range(6), 1, 2),
    (6, range(6), 2, 2),
    (7, [1, 3, 6], 2, 3),
    (3, [2], 2, 1),
    (2, [], 1, 2),
    (4, range(4), 9, 1),
]


class Buffers:
    """Buffers whose content is the layer last copied in, for functions that take random time and look for mix-ups."""

    def __init__(self, buffers, seed, longest_s=2e-3):
        self.content = [None] * buffers
        self.in_use = [threading.Lock() for _ in range(buffers)]
        self.random = random.Random(seed)
        self.longest_s = longest_s
        self.computed = []

    def copy(self, layer, buffer):
        assert self.in_use[buffer].acquire(blocking=False), f"buffer {buffer} is overwritten while in use"
        self.content[buffer] = "half copied"
        time.sleep(self.random.uniform(0, self.longest_s))
        self.content[buffer] = layer
        self.in_use[buffer].release()

    def compute(self, layer, buffer):
        if buffer is not None:
            assert self.in_use[buffer].acquire(blocking=False), f"buffer {buffer} is read while it is written"
            assert self.content[buffer] == layer
        time.sleep(self.random.uniform(0, self.longest_s))
        if buffer is not None:
            assert self.content[buffer] == layer
            self.in_use[buffer].release()
        self.computed.append(layer)


@pytest.mark.parametrize(("num_layers", "offloaded", "buffers", "steps"), CASES)
def test_no_buffer_is_overwritten_while_in_use(num_layers, offloaded, buffers, steps):
    for seed in range(5):
        state = Buffers(buffers, seed)
        overlap.run(num_layers, offloaded, state.copy, state.compute, buffers, steps)
        assert state.computed == list(range(num_layers)) * steps


@pytest.mark.parametrize(("num_layers", "offloaded", "buffers", "steps"), CASES)
def test_the_timeline_is_the_models_with_times_of_its_own(num_layers, offloaded, buffers, steps):
    state = Buffers(buffers, seed=1)
    measured = overlap.run(num_layers, offloaded, state.copy, state.compute, buffers, steps)
    model = offload.pipeline([1.0] * num_layers, offloaded, 1.0, buffers, steps)
    assert [event_of(e) for e in measured.events] == [event_of(e) for e in model.events]
    for event in measured.events:
        assert 0 <= event.start_s <= event.end_s
    for kind in (COPY, COMPUTE):  # one after the other, in the order of use
        for earlier, later in itertools.pairwise(measured.of_kind(kind)):
            assert earlier.end_s <= later.start_s
    last_use = {}
    for event in measured.events:
        if event.buffer is not None:
            assert last_use.get(event.buffer, 0) <= event.start_s
            last_use[event.buffer] = event.end_s


def event_of(event):
    return event.kind, event.step, event.layer, event.buffer


def test_two_buffers_hide_copies_and_one_does_not():
    """Copies and computations that sleep: on any machine they overlap."""

    def sleep(layer, buffer):
        time.sleep(0.01)

    one, two = (overlap.run(8, range(8), sleep, sleep, buffers=buffers) for buffers in (1, 2))
    assert one.total_s > 0.16
    assert two.total_s < 0.75 * one.total_s  # 9 * 10 ms of 16 * 10 ms, but for late wake-ups


@pytest.mark.parametrize("failing", ["copy", "compute"])
def test_an_error_comes_out_and_nothing_hangs(failing):
    def fail(layer, buffer):
        if layer == 2:
            raise OSError("no such layer")

    functions = {"copy": lambda layer, buffer: None, "compute": lambda layer, buffer: None, failing: fail}
    before = threading.active_count()
    with pytest.raises(OSError, match="no such layer"):
        overlap.run(5, range(5), buffers=2, steps=3, **functions)
    assert threading.active_count() == before


def layers(num_layers=5, width=64, rows=3):
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((num_layers, width, width), dtype=np.float32) / np.float32(np.sqrt(width))
    return weights, rng.standard_normal((rows, width), dtype=np.float32)


def resident(weights, hidden, steps):
    for _ in range(steps):
        for matrix in weights:
            hidden = np.tanh(hidden @ matrix)
    return hidden


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
@pytest.mark.parametrize("offloaded", [range(5), [1, 4], []])
@pytest.mark.parametrize("buffers", [1, 2, 3])
def test_results_equal_the_resident_computation(buffers, offloaded, device):
    weights, hidden = layers()
    result, timeline = overlap.forward(weights, hidden, offloaded, buffers, steps=3, device=device)
    np.testing.assert_allclose(result, resident(weights, hidden, steps=3), rtol=0, atol=1e-5)
    assert len(timeline.of_kind(COMPUTE)) == 15
    assert len(timeline.of_kind(COPY)) == 3 * len(offloaded)
    assert timeline.total_s > 0


class RecordedCuda:
    """Stands in for torch.cuda: streams that note what they are told, for the order of commands where no GPU is."""

    def __init__(self):
        self.log = []
        self.current = self.Stream("compute")
        self.names = itertools.count()

    def is_available(self):
        return True

    def current_stream(self):
        return self.current

    def synchronize(self):
        self.log.append("synchronize")

    def stream(self, stream):
        outer = self

        class Context:
            def __enter__(self):
                self.before, outer.current = outer.current, stream

            def __exit__(self, *_):
                outer.current = self.before

        return Context()

    def Stream(self, name="copy"):
        stream = types.SimpleNamespace(name=name)
        stream.wait_stream = lambda other: None
        stream.wait_event = lambda event: self.log.append((name, "waits for", event.name))
        return stream

    def Event(self, enable_timing):
        event = types.SimpleNamespace(name=None, synchronize=lambda: None, elapsed_time=lambda other: 1000.0)

        def record(stream):
            event.name = next(self.names)
            self.log.append((stream.name, "records", event.name))

        event.record = record
        return event


def test_on_a_gpu_each_copy_waits_for_the_layer_that_used_its_buffer(monkeypatch):
    """Replays the commands of each stream as freely as their waits allow: each use must come behind its copy."""
    recorded = RecordedCuda()
    monkeypatch.setattr(torch, "cuda", recorded)

    def note(kind):
        return lambda layer, buffer: recorded.log.append((recorded.current.name, kind, layer, buffer))

    timeline = overlap.run(4, [0, 1, 3], note(COPY), note(COMPUTE), buffers=2, steps=2, device="cuda")
    assert {(event.start_s, event.end_s) for event in timeline.events} == {(1.0, 1.0)}
    assert recorded.log[-1] == "synchronize"
    commands = recorded.log[:-1]
    for first in ("copy", "compute"):  # whichever stream is the faster one
        content = {}
        for kind, layer, buffer in replay(commands, first):
            if kind == COPY:
                assert content.get(buffer) is None, "the buffer is still waiting to be used"
                content[buffer] = layer
            elif buffer is not None:
                assert content[buffer] == layer
                content[buffer] = None


def replay(commands, first):
    """The order of copies and computations when stream `first` runs as far ahead as its waits allow."""
    queues = {
        name: [c[1:] for c in commands if c[0] == name]
        for name in (first, {"copy", "compute"}.difference({first}).pop())
    }
    recorded, order = set(), []
    while any(queues.values()):
        queue = next(q for q in queues.values() if q and not (q[0][0] == "waits for" and q[0][1] not in recorded))
        command = queue.pop(0)
        if command[0] == "records":
            recorded.add(command[1])
        elif command[0] != "waits for":
            order.append(command)
    return order


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA GPU is here")
def test_without_a_gpu_the_error_says_what_to_do():
    weights, hidden = layers()
    with pytest.raises(RuntimeError, match="device='cpu' runs the same with threads"):
        overlap.forward(weights, hidden, range(5), device="cuda")
    with pytest.raises(RuntimeError, match="device='cpu' runs the same with threads"):
        overlap.run(1, [0], print, print, device="cuda")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_layers": 0}, "num_layers is 0"),
        ({"offloaded": [5]}, "offloaded is 5; it must be an integer from 0 to 4"),
        ({"buffers": 0}, "buffers is 0"),
        ({"steps": 0}, "steps is 0"),
        ({"device": "tpu"}, "device is 'tpu', which is not known"),
    ],
)
def test_bad_arguments_are_refused_before_anything_runs(change, message):
    def ran(layer, buffer):
        raise AssertionError("it ran")

    with pytest.raises(ValueError, match=message):
        overlap.run(**{"num_layers": 5, "offloaded": [0], "copy": ran, "compute": ran} | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": np.zeros((2, 3, 4), np.float32)}, r"weights has shape \(2, 3, 4\).*square"),
        ({"weights": np.zeros((2, 3, 3))}, "weights has dtype float64"),
        ({"hidden": np.zeros((2, 3), np.float32)}, r"hidden has shape \(2, 3\).*\(2, 64\)"),
        ({"hidden": [1.0]}, "hidden is a list"),
        ({"buffers": 0}, "buffers is 0"),
        ({"offloaded": [9]}, "offloaded is 9"),
    ],
)
def test_forward_refuses_bad_arguments(change, message):
    weights, hidden = layers()
    with pytest.raises(ValueError, match=message):
        overlap.forward(**{"weights": weights, "hidden": hidden, "offloaded": range(5)} | change)
