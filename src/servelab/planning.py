"""Choosing a configuration within memory and deadline, and what it costs (section 8.6.3).

A plan answers for one batch of equal requests that arrive together: prefill, then rounds in which each request gets
`tokens_per_round` tokens on average. Times are seconds, sizes bytes.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass

from servelab import memory
from servelab.catalog import Model
from servelab.checks import require_int, require_number
from servelab.units import format_bytes


@dataclass(frozen=True)
class Workload:
    """Equal requests that arrive together, and how long each may take from arrival to its last token."""

    requests: int
    input_tokens: int
    output_tokens: int
    deadline_s: float
    shared_prefix: int = 0

    def __post_init__(self):
        for name in ("requests", "input_tokens", "output_tokens"):
            require_int(name, getattr(self, name), minimum=1)
        require_int("shared_prefix", self.shared_prefix, maximum=self.input_tokens)
        require_number("deadline_s", self.deadline_s, above=True)


@dataclass(frozen=True)
class Configuration:
    """One way to run a workload: how its state is kept, and the times it was measured or estimated to take."""

    name: str
    prefill_s: float  # the whole batch, until all first tokens are out
    round_s: float
    tokens_per_round: float = 1  # of each request; more than one with speculation
    kv_dtype: str = "bf16"
    shares_prefix: bool = False
    extra_bytes: int = 0  # a draft model and its buffers
    block_size: int = 16

    def __post_init__(self):
        require_number("prefill_s", self.prefill_s)
        require_number("round_s", self.round_s, above=True)
        require_number("tokens_per_round", self.tokens_per_round, minimum=1)
        require_int("extra_bytes", self.extra_bytes)


@dataclass(frozen=True)
class Plan:
    """A configuration's answer to a workload: what it takes, and why it is rejected, if it is."""

    configuration: Configuration
    memory_bytes: int
    rounds: int
    total_s: float
    reasons: tuple[str, ...]  # why it is not feasible; empty if it is
    good_results: int
    power_w: float

    @property
    def feasible(self) -> bool:
        return not self.reasons

    @property
    def gpu_s_per_good(self) -> float:
        """Seconds of the accelerator for each good result; infinite without one."""
        return self.total_s / self.good_results if self.good_results else math.inf

    @property
    def joules_per_good(self) -> float:
        """Energy of each good result if the accelerator draws `power_w` throughout: an upper bound."""
        return self.power_w * self.gpu_s_per_good if self.good_results else math.inf


def evaluate(configuration, workload: Workload, model: Model, pool_bytes: int, power_w: float, accuracy=1.0) -> Plan:
    """The `Plan` of `workload` under `configuration` with `pool_bytes` for KV and auxiliary buffers.

    A batch that does not fit, or ends after its deadline, gives no good result; else the share `accuracy` is good.
    """
    require_int("pool_bytes", pool_bytes)
    require_number("power_w", power_w)
    require_number("accuracy", accuracy, maximum=1)
    kv = memory.batch_kv_bytes(
        *(model, workload.requests, workload.input_tokens, workload.output_tokens),
        block_size=configuration.block_size,
        kv_dtype=configuration.kv_dtype,
        shared_prefix=workload.shared_prefix if configuration.shares_prefix else 0,
    )
    memory_bytes = kv + configuration.extra_bytes
    rounds = math.ceil((workload.output_tokens - 1) / configuration.tokens_per_round)
    total_s = configuration.prefill_s + rounds * configuration.round_s
    reasons = []
    if memory_bytes > pool_bytes:
        reasons.append(f"needs {format_bytes(memory_bytes, 'GiB', 2)} of {format_bytes(pool_bytes, 'GiB', 2)}")
    if total_s > workload.deadline_s:
        reasons.append(f"takes {total_s:.2f} s of {workload.deadline_s:g} s")
    good = 0 if reasons else round(workload.requests * accuracy)
    return Plan(configuration, memory_bytes, rounds, total_s, tuple(reasons), good, power_w)


def choose(plans: Iterable[Plan]) -> Plan | None:
    """The feasible plan with the least accelerator time for each good result; None if none is feasible."""
    feasible = [plan for plan in plans if plan.feasible and plan.good_results]
    return min(feasible, key=lambda plan: plan.gpu_s_per_good, default=None)


def gpu_seconds(new_tokens: int, output_tokens: int, prefill_rate: float, decode_rate: float) -> float:
    """Accelerator seconds of one request, at `prefill_rate` new tokens and `decode_rate` decode calls a second."""
    require_int("new_tokens", new_tokens)
    require_int("output_tokens", output_tokens, minimum=1)
    require_number("prefill_rate", prefill_rate, above=True)
    require_number("decode_rate", decode_rate, above=True)
    return new_tokens / prefill_rate + (output_tokens - 1) / decode_rate


def interpolate(x: float, points: Sequence[tuple[float, float]]) -> float:
    """The value at `x` on the line through the two measured points around it; `x` must lie between the outer ones."""
    points = sorted(points)
    if len({x for x, _ in points}) < max(2, len(points)):
        raise ValueError(f"points is {points!r}; it must have two points or more, no two at one x")
    require_number("x", x, minimum=points[0][0], maximum=points[-1][0])
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        if x <= x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    raise AssertionError("unreachable: x lies between the outer points")


def amdahl(fraction: float, speedup: float, preparation: float = 0.0) -> float:
    """Speed-up of a whole task when `fraction` of its time runs `speedup` times as fast (Amdahl's law).

    `preparation`: time that the speed-up adds, as a share of the original time.
    """
    require_number("fraction", fraction, maximum=1)
    require_number("speedup", speedup, above=True)
    require_number("preparation", preparation)
    return 1 / ((1 - fraction) + fraction / speedup + preparation)


def break_even_preparation(fraction: float, speedup: float) -> float:
    """The preparation, as a share of the original time, at which a speed-up no longer saves time."""
    require_number("fraction", fraction, maximum=1)
    require_number("speedup", speedup, minimum=1)
    return fraction - fraction / speedup


def sweep(function: Callable, points: Iterable, executor: Executor | None = None) -> list:
    """`[function(point) for point in points]` on any `concurrent.futures.Executor`; local processes if None.

    An executor of Dask (`client.get_executor()`) or Ray takes the points to more than one machine. `function` and the
    points must pickle: name the function, do not write it inline.
    """
    if executor is not None:
        return list(executor.map(function, points))
    with ProcessPoolExecutor() as local:
        return list(local.map(function, points))
