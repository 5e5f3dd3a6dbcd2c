"""Weights that live in host memory and are copied in for each step (section 8.4.3).

Offloaded layers leave room on the device, less the buffers that their copies land in; each decode step pays for it
with all the bytes again. Times are seconds, sizes `int` bytes, bandwidths bytes a second in one direction.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from servelab.batching import BF16_BYTES
from servelab.catalog import Model
from servelab.checks import require_int, require_name, require_number

COPY, COMPUTE = "copy", "compute"


@dataclass(frozen=True)
class Event:
    """A copy into a buffer, or the computation of a layer; `buffer` is None where its weights are resident."""

    kind: str
    step: int
    layer: int
    buffer: int | None
    start_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True)
class Timeline:
    """What the link and the device did: copies and computations, each layer's copy before its computation."""

    events: tuple[Event, ...]

    def of_kind(self, kind: str) -> list[Event]:
        """Its copies ("copy") or its computations ("compute"), in order."""
        require_name("kind", kind, (COPY, COMPUTE))
        return [event for event in self.events if event.kind == kind]

    @property
    def total_s(self) -> float:
        return self.events[-1].end_s

    @property
    def copy_s(self) -> float:
        """Seconds in which the link was busy."""
        return sum(event.seconds for event in self.of_kind(COPY))

    @property
    def compute_s(self) -> float:
        """Seconds in which the device was busy."""
        return sum(event.seconds for event in self.of_kind(COMPUTE))

    @property
    def wait_s(self) -> float:
        """Seconds in which the device waited for copies: what overlap did not hide."""
        return self.total_s - self.compute_s

    @property
    def step_s(self) -> list[float]:
        """Seconds from the end of one step to that of the next; the first from 0."""
        ends = [0.0] + [0.0] * (self.events[-1].step + 1)
        for event in self.events:
            ends[event.step + 1] = event.end_s
        return [later - earlier for earlier, later in itertools.pairwise(ends)]


def every_nth(num_layers: int, n: int) -> list[int]:
    """The last of each `n` layers, so that the copy of each has the layers before it to hide behind."""
    require_int("num_layers", num_layers, minimum=1)
    require_int("n", n, minimum=1, maximum=num_layers)
    return list(range(n - 1, num_layers, n))


def pipeline(
    compute_s: Sequence[float], offloaded: Iterable[int], copy_s: float, buffers: int = 1, steps: int = 1
) -> Timeline:
    """Copies and computations of `steps` decode steps, each started as soon as it may.

    compute_s: seconds of each layer. offloaded: the layers that are copied in for each step. copy_s: seconds of one
    such copy. The link copies in the order of use, one after the other, also ahead into the next step, since weights
    do not depend on its token. The i-th copy goes into buffer i % buffers, once the layer that used it is done; a
    layer starts once its copy and the layer before it are done. Resident layers need no copy.
    """
    compute_s = list(compute_s)
    if not compute_s:
        raise ValueError("compute_s is empty; it must have a time for each layer, one or more")
    for seconds in compute_s:
        require_number("compute_s", seconds)
    offloaded = _require_layers(offloaded, len(compute_s))
    require_number("copy_s", copy_s)
    require_int("buffers", buffers, minimum=1)
    require_int("steps", steps, minimum=1)

    events = []
    device_free = link_free = 0.0
    buffer_free = [0.0] * buffers
    copies = 0
    for step in range(steps):
        for layer, seconds in enumerate(compute_s):
            buffer, start = None, device_free
            if layer in offloaded:
                buffer, copies = copies % buffers, copies + 1
                copy_start = max(link_free, buffer_free[buffer])
                link_free = copy_start + copy_s
                events.append(Event(COPY, step, layer, buffer, copy_start, link_free))
                start = max(start, link_free)
            device_free = start + seconds
            if buffer is not None:
                buffer_free[buffer] = device_free
            events.append(Event(COMPUTE, step, layer, buffer, start, device_free))
    return Timeline(tuple(events))


def _require_layers(layers, num_layers):
    layers = list(layers)
    for layer in layers:
        require_int("offloaded", layer, maximum=num_layers - 1)
    if len(set(layers)) < len(layers):
        raise ValueError(f"offloaded is {layers!r}; it must name each layer once")
    return set(layers)


def ffn_bytes(model: Model) -> int:
    """Bytes of one layer's FFN in BF16, all experts: what is offloaded with a layer."""
    return model.ffn_parameters_per_layer * BF16_BYTES


def freed_bytes(layer_bytes: int, layers: int) -> int:
    """Bytes that no longer lie on the device; as many are copied in each step."""
    require_int("layer_bytes", layer_bytes, minimum=1)
    require_int("layers", layers, minimum=1)
    return layers * layer_bytes


def net_bytes(layer_bytes: int, layers: int, buffers: int = 1) -> int:
    """Bytes that become free for KV: `layers` offloaded, less `buffers` of one layer each."""
    freed = freed_bytes(layer_bytes, layers)
    require_int("buffers", buffers, minimum=1, maximum=layers)  # with as many as layers, nothing is gained
    return freed - buffers * layer_bytes


def extra_requests(extra_bytes: int, request_bytes: int, pool_bytes: int = 0) -> int:
    """How many more requests of `request_bytes` fit when the pool grows from `pool_bytes` by `extra_bytes`.

    A pool of 0 counts what fits into the extra bytes alone; what a real pool had left over can make it one more.
    """
    require_int("extra_bytes", extra_bytes)
    require_int("request_bytes", request_bytes, minimum=1)
    require_int("pool_bytes", pool_bytes)
    return (pool_bytes + extra_bytes) // request_bytes - pool_bytes // request_bytes


def copy_s(num_bytes: int, bandwidth: float) -> float:
    """Seconds that a copy takes at least: its bytes over what the link moves in one direction."""
    require_int("num_bytes", num_bytes)
    require_number("bandwidth", bandwidth, above=True)
    return num_bytes / bandwidth


def step_lower_bound_s(step_copy_s: float, step_compute_s: float) -> float:
    """The shortest step that any number of buffers allows: copies and computations fully overlapped."""
    require_number("step_copy_s", step_copy_s)
    require_number("step_compute_s", step_compute_s)
    return max(step_copy_s, step_compute_s)


def max_throughput(batch: int, step_s: float) -> float:
    """Tokens a second when each step gives one token to each of `batch` requests."""
    require_int("batch", batch, minimum=1)
    require_number("step_s", step_s, above=True)
    return batch / step_s


def min_bandwidth(step_bytes: int, steps: int, budget_s: float) -> float:
    """Bytes a second that the link must move so that the copies of `steps` steps take no more than `budget_s`."""
    require_int("step_bytes", step_bytes)
    require_int("steps", steps, minimum=1)
    require_number("budget_s", budget_s, above=True)
    return step_bytes * steps / budget_s


def compressed_copy_s(
    num_bytes: int, ratio: float, bandwidth: float, decoder: float, overlapped: bool = False
) -> float:
    """Seconds to move `num_bytes` compressed to `ratio` of their size, and to decompress them.

    decoder: bytes a second that the decompressor puts out. One after the other; `overlapped`: the lower bound when
    blocks are decompressed while later ones arrive.
    """
    arrive = copy_s(num_bytes, bandwidth) * _require_ratio(ratio)
    require_number("decoder", decoder, above=True)
    decode = num_bytes / decoder
    return max(arrive, decode) if overlapped else arrive + decode


def min_decoder(bandwidth: float, ratio: float) -> float:
    """Bytes a second that a decompressor must put out for compression to pay: bandwidth / (1 - ratio), exclusive.

    For decompression after the transfer; overlapped, it only has to beat `bandwidth`.
    """
    require_number("bandwidth", bandwidth, above=True)
    return bandwidth / (1 - _require_ratio(ratio))


def _require_ratio(ratio):
    require_number("ratio", ratio, above=True)
    if ratio >= 1:
        raise ValueError(f"ratio is {ratio!r}; it must be a number above 0 and below 1: compressed over original size")
    return ratio
