"""A service under load: arrivals, Little's law, admission, goodput and where it starts to fall (sections 8.6.1, 8.6.2).

Times are seconds, rates requests a second.
"""

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from servelab import memory
from servelab.checks import require_int, require_number
from servelab.engine import BlockPool, CostExecutor, Engine, Request, Scheduler, Trace


def fixed_arrivals(rate: float, count: int) -> list[float]:
    """`count` arrivals at equal distance, the first at 0."""
    require_number("rate", rate, above=True)
    require_int("count", count)
    return [i / rate for i in range(count)]


def poisson_arrivals(rate: float, count: int, seed: int) -> list[float]:
    """`count` arrivals of a Poisson process: gaps are independent and exponential, with mean 1 / rate."""
    require_number("rate", rate, above=True)
    require_int("count", count)
    gaps, now, times = random.Random(seed), 0.0, []
    for _ in range(count):
        now += gaps.expovariate(rate)
        times.append(now)
    return times


def requests_at(arrivals_s: Iterable[float], prompt: int | Callable[[int], int], max_tokens: int) -> list[Request]:
    """A request for each arrival time, from a process above or from a recorded trace, named r0, r1, ...

    `prompt`: tokens of every prompt, or a function from the request's number to them.
    """
    length = prompt if callable(prompt) else lambda _: prompt
    return [Request(f"r{i}", arrival_s, length(i), max_tokens) for i, arrival_s in enumerate(arrivals_s)]


def mean_in_system(arrival_rate: float, time_in_system_s: float) -> float:
    """Little's law: requests in the system on average, waiting ones included."""
    require_number("arrival_rate", arrival_rate)
    require_number("time_in_system_s", time_in_system_s)
    return arrival_rate * time_in_system_s


@dataclass(frozen=True)
class LittlesLaw:
    """The three quantities of Little's law, each measured on its own over one observation."""

    mean_in_system: float  # from the count over time
    arrival_rate: float
    mean_time_s: float

    @property
    def holds(self) -> bool:
        return math.isclose(self.mean_in_system, self.arrival_rate * self.mean_time_s, rel_tol=1e-9, abs_tol=1e-12)


def littles_law(trace: Trace) -> LittlesLaw:
    """Measure both sides of Little's law on a finished trace, from its first arrival to its last departure."""
    stays = [(request.arrival_s, request.finish_s) for request in trace.requests]
    if not stays or any(finish_s is None for _, finish_s in stays):
        raise ValueError("trace has requests that have not left; it must be finished and not empty")
    start_s, end_s = min(arrival for arrival, _ in stays), max(finish for _, finish in stays)
    changes = sorted([(arrival, 1) for arrival, _ in stays] + [(finish, -1) for _, finish in stays])
    area, in_system, last_s = 0.0, 0, start_s
    for time_s, change in changes:
        area += in_system * (time_s - last_s)
        in_system, last_s = in_system + change, time_s
    window_s = end_s - start_s
    if window_s == 0:
        raise ValueError("trace has no duration; it must have a request that takes time")
    mean_time_s = sum(finish - arrival for arrival, finish in stays) / len(stays)
    return LittlesLaw(area / window_s, len(stays) / window_s, mean_time_s)


@dataclass(frozen=True)
class Outcome:
    """What became of one request, timed from its planned arrival, so that waiting outside the engine counts."""

    arrival_s: float
    finish_s: float | None  # None: rejected or cancelled
    correct: bool = True

    def is_good(self, deadline_s: float) -> bool:
        """Correct, and complete within `deadline_s` of its arrival."""
        return self.correct and self.finish_s is not None and self.finish_s - self.arrival_s <= deadline_s


def outcomes(trace: Trace, correct: Callable[[str], bool] = lambda request_id: True) -> list[Outcome]:
    """The outcome of each request of a trace; `correct` says by id whether its answer was."""
    return [
        Outcome(record.arrival_s, record.finish_s if record.status == "finished" else None, correct(record.id))
        for record in trace.requests
    ]


def completion_rate(results: Sequence[Outcome], window_s: float) -> float:
    """Requests that were completed, well or badly, for each second of the window."""
    require_number("window_s", window_s, above=True)
    return sum(result.finish_s is not None for result in results) / window_s


def goodput(results: Sequence[Outcome], deadline_s: float, window_s: float) -> float:
    """Requests that were completed correctly and in time, for each second of the window."""
    require_number("deadline_s", deadline_s, above=True)
    require_number("window_s", window_s, above=True)
    return sum(result.is_good(deadline_s) for result in results) / window_s


@dataclass(frozen=True)
class Admission:
    """Refuses, on arrival, what cannot be kept or cannot end in time.

    The check is the simple one of section 8.6.1: whole memory for input and output must be left beside what was
    admitted, and the time already promised to others plus this request's own must end before its deadline.
    """

    num_blocks: int
    block_size: int
    deadline_s: float
    own_time_s: Callable[[Request], float]  # TTFT and all gaps of a request on its own
    wait_s: Callable[[int], float]  # expected wait behind this many requests in the system

    def refusal(self, request: Request, in_system: Sequence[Request]) -> str | None:
        """Why `request` is refused now, or None if it is admitted."""
        blocks = sum(self._blocks(other) for other in in_system)
        if blocks + self._blocks(request) > self.num_blocks:
            return f"needs {self._blocks(request)} blocks, {self.num_blocks - blocks} of {self.num_blocks} are left"
        time_s = self.wait_s(len(in_system)) + self.own_time_s(request)
        if time_s > self.deadline_s:
            return f"would take {time_s:.2f} s of {self.deadline_s:g} s"
        return None

    def _blocks(self, request: Request) -> int:
        return memory.num_blocks(request.max_written_tokens, self.block_size)


def serve(
    requests: Iterable[Request], scheduler: Scheduler, step_cost, admission: Admission | None = None
) -> tuple[Trace, dict[str, str]]:
    """Serve `requests` in order of arrival; returns the trace of the admitted ones and the refusals by id."""
    engine = Engine(scheduler, CostExecutor(step_cost), jump=admission is None)
    refused = {}
    for request in sorted((request.fresh() for request in requests), key=lambda request: request.arrival_s):
        if admission is not None:
            # An idle engine is not stepped: it would wait for the cancellation of a request that has left.
            while (in_system := _in_system(engine)) and engine.executor.now() < request.arrival_s:
                engine.step()
            reason = admission.refusal(request, in_system)
            if reason is not None:
                refused[request.id] = reason
                continue
        engine.add(request)
    return engine.run(), refused


def _in_system(engine: Engine) -> list[Request]:
    return [request for request in engine.requests.values() if not request.status.is_final]


@dataclass(frozen=True)
class Load:
    """Goodput and completion rate at one arrival rate."""

    arrival_rate: float
    completed: float
    goodput: float


def load_curve(rates, count, prompt, max_tokens, step_cost, deadline_s, max_running, policy="chunked", **scheduler):
    """The `Load` at each of `rates`: `count` requests at fixed distance, served on the virtual clock.

    The window runs from the first arrival to the last completion, as in experiment 8-9. `scheduler`: further
    arguments of `Scheduler`, such as token_budget and chunk.
    """
    curve = []
    for rate in rates:
        requests = requests_at(fixed_arrivals(rate, count), prompt, max_tokens)
        blocks = max(1, sum(memory.num_blocks(request.max_written_tokens, 16) for request in requests))
        trace, _ = serve(requests, Scheduler(BlockPool(blocks, 16), policy, max_running, **scheduler), step_cost)
        results = outcomes(trace)
        curve.append(Load(rate, completion_rate(results, trace.total_s), goodput(results, deadline_s, trace.total_s)))
    return curve


def knee(curve: Sequence[Load]) -> Load:
    """The load with the highest goodput: beyond it more arrivals mostly wait. The lowest such rate if several tie."""
    if not curve:
        raise ValueError("curve is empty; it must have at least one load")
    return max(curve, key=lambda load: (load.goodput, -load.arrival_rate))
