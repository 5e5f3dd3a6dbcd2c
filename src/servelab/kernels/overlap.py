"""Weights copied in while earlier layers compute, for real: threads on a CPU, streams on a GPU (section 8.4.3).

The measured counterpart of `servelab.offload.pipeline`: the same arguments, the same rules, the same `Timeline`, with
times that a clock saw. On a CPU it pays as far as copies and matrix products leave Python's lock and each other's
memory bandwidth alone.
"""

import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from servelab.checks import require_int, require_name
from servelab.kernels.checks.arrays import require_array, require_shape
from servelab.offload import COMPUTE, COPY, Event, Timeline

DEVICES = ("cpu", "cuda")


def run(num_layers, offloaded, copy, compute, buffers=1, steps=1, device="cpu") -> Timeline:
    """Run `steps` passes over the layers, with copies into `buffers` buffers behind the computations.

    offloaded: the layers whose weights are copied in for each pass. `copy(layer, buffer)` fills a buffer;
    `compute(layer, buffer)` computes a layer, from that buffer or, where `buffer` is None, from resident weights.
    Copies run one after the other in the order of use, also ahead into the next pass. The i-th goes into buffer
    i % buffers once the layer that used it is done; a layer starts once its copy and the layer before it are done.

    device: "cpu" runs `copy` in a thread of its own and times with `time.perf_counter`. "cuda" calls both functions
    from this thread, `copy` with a CUDA stream of its own as the current one, and times with CUDA events; they must
    only enqueue work there (copies `non_blocking`, from pinned memory).

    Returns when all is done; times count from the start. A bad argument raises ValueError and "cuda" without a GPU
    RuntimeError, both before anything runs. What `copy` or `compute` raises comes out once the copy under way ended.
    """
    require_int("num_layers", num_layers, minimum=1)
    offloaded = list(offloaded)
    for layer in offloaded:
        require_int("offloaded", layer, maximum=num_layers - 1)
    require_int("buffers", buffers, minimum=1)
    require_int("steps", steps, minimum=1)
    require_name("device", device, DEVICES)
    plan = []  # (step, layer, buffer), in the order of use
    copies = 0
    for step in range(steps):
        for layer in range(num_layers):
            buffer = copies % buffers if layer in offloaded else None
            copies += layer in offloaded
            plan.append((step, layer, buffer))
    with _Threads(copy, compute) if device == "cpu" else _Streams(copy, compute) as workers:
        return _walk(plan, buffers, workers)


def _walk(plan, buffers, workers):
    """Start each copy as soon as its buffer is free, and each computation behind its copy."""
    waiting = deque(item for item in plan if item[2] is not None)
    started = deque(workers.copy(*waiting.popleft(), None) for _ in range(min(buffers, len(waiting))))
    timed = []
    for step, layer, buffer in plan:
        copied = None
        if buffer is not None:
            copied = started.popleft()
            timed.append((COPY, step, layer, buffer, copied))
        computed = workers.compute(step, layer, buffer, copied)
        timed.append((COMPUTE, step, layer, buffer, computed))
        if buffer is not None and waiting:  # the next in line goes into the buffer that is now free
            started.append(workers.copy(*waiting.popleft(), computed))
    return Timeline(tuple(Event(*what, *workers.times(handle)) for *what, handle in timed))


class _Threads:
    """Copies in one thread, in order; computations in the caller's. A handle is a future of (start, end)."""

    def __init__(self, copy, compute):
        self.functions = {COPY: copy, COMPUTE: compute}
        self.copier = ThreadPoolExecutor(1, thread_name_prefix="copy")

    def __enter__(self):
        self.origin = time.perf_counter()
        return self

    def __exit__(self, *_):
        self.copier.shutdown(cancel_futures=True)

    def copy(self, step, layer, buffer, used_by):
        """`used_by` is done: computations are, when `compute` returns."""
        return self.copier.submit(self._timed, COPY, layer, buffer)

    def compute(self, step, layer, buffer, copied):
        if copied is not None:
            copied.result()  # waits, and raises what the copy raised
        return self._timed(COMPUTE, layer, buffer)

    def _timed(self, kind, layer, buffer):
        start = time.perf_counter()
        self.functions[kind](layer, buffer)
        return start - self.origin, time.perf_counter() - self.origin

    def times(self, handle):
        return handle if isinstance(handle, tuple) else handle.result()


class _Streams:
    """Copies in a CUDA stream of their own; computations in the current one. A handle is a pair of CUDA events."""

    def __init__(self, copy, compute):
        import torch

        if not torch.cuda.is_available():
            raise RuntimeError("PyTorch finds no CUDA GPU: device='cpu' runs the same with threads")
        self.cuda = torch.cuda
        self.functions = {COPY: copy, COMPUTE: compute}

    def __enter__(self):
        self.compute_stream = self.cuda.current_stream()
        self.copy_stream = self.cuda.Stream()
        self.origin = self.cuda.Event(enable_timing=True)
        self.origin.record(self.compute_stream)
        self.copy_stream.wait_stream(self.compute_stream)  # which may still be filling the weights
        return self

    def __exit__(self, *_):
        self.cuda.synchronize()

    def copy(self, step, layer, buffer, used_by):
        if used_by is not None:
            self.copy_stream.wait_event(used_by[1])
        return self._timed(COPY, layer, buffer, self.copy_stream)

    def compute(self, step, layer, buffer, copied):
        if copied is not None:
            self.compute_stream.wait_event(copied[1])
        return self._timed(COMPUTE, layer, buffer, self.compute_stream)

    def _timed(self, kind, layer, buffer, stream):
        start, end = (self.cuda.Event(enable_timing=True) for _ in range(2))
        with self.cuda.stream(stream):
            start.record(stream)
            self.functions[kind](layer, buffer)
            end.record(stream)
        return start, end

    def times(self, handle):
        handle[1].synchronize()
        return tuple(self.origin.elapsed_time(event) / 1e3 for event in handle)  # CUDA gives milliseconds


def forward(weights, hidden, offloaded, buffers=1, steps=1, device="cpu"):
    """`steps` passes of hidden = tanh(hidden @ weights[layer]) over all layers; (hidden, Timeline).

    - `weights`: (num_layers, width, width) float32, in host memory.
    - `hidden`: (rows, width) float32; what a pass puts out goes into the next.
    - `offloaded`, `buffers`, `steps`, `device`: as in `run`. With "cuda" the other layers are copied to the GPU first.

    Where the computation and the copy of a layer take about as long, there is most to gain. On a CPU leave the copies
    a core (OPENBLAS_NUM_THREADS=1 before NumPy is imported, on two cores).
    """
    for name, array, ndim in (("weights", weights, 3), ("hidden", hidden, 2)):
        require_array(name, array, ndim, (np.float32,))
    num_layers, width, _ = weights.shape
    require_shape("weights", weights, (num_layers, width, width), "a square matrix a layer")
    require_shape("hidden", hidden, (hidden.shape[0], width), "(rows, width) of weights")
    require_int("buffers", buffers, minimum=1)
    require_name("device", device, DEVICES)
    offloaded = list(offloaded)
    make = _cpu_layers if device == "cpu" else _gpu_layers
    copy, compute, result = make(weights, hidden, offloaded, buffers)
    timeline = run(num_layers, offloaded, copy, compute, buffers, steps, device)
    return result(), timeline


def _cpu_layers(weights, hidden, offloaded, buffers):
    slots = np.zeros((buffers, *weights.shape[1:]), np.float32)  # zeros touched, so that no copy pays for new pages
    slots += 0
    state = [hidden]

    def copy(layer, buffer):
        np.copyto(slots[buffer], weights[layer])

    def compute(layer, buffer):
        matrix = weights[layer] if buffer is None else slots[buffer]
        state[0] = np.tanh(state[0] @ matrix)

    return copy, compute, lambda: state[0]


def _gpu_layers(weights, hidden, offloaded, buffers):
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError("PyTorch finds no CUDA GPU: device='cpu' runs the same with threads")
    host = torch.from_numpy(weights).pin_memory()  # only from pinned memory is a copy asynchronous
    resident = {layer: host[layer].cuda() for layer in range(len(weights)) if layer not in offloaded}
    slots = torch.zeros((buffers, *weights.shape[1:]), device="cuda")
    state = [torch.from_numpy(hidden).cuda()]
    torch.tanh(state[0] @ slots[0])  # loads the libraries, so that the first layer does not pay for it

    def copy(layer, buffer):
        slots[buffer].copy_(host[layer], non_blocking=True)

    def compute(layer, buffer):
        matrix = resident[layer] if buffer is None else slots[buffer]
        state[0] = torch.tanh(state[0] @ matrix)

    return copy, compute, lambda: state[0].cpu().numpy()
