"""What the chapter's cost model says of the chapter's own recorded experiments, beside what was recorded there.

The model is the `StepCost` fitted to experiment 8-1 at batch 1 and nothing else, so every other figure is a test of it.
`comparisons(fixed_s=...)` puts another fixed part in: the one number in which the experiments differ most.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from statistics import median

from servelab import catalog
from servelab.cost import StepCost
from servelab.engine import Request, Trace, simulate


@dataclass(frozen=True)
class Comparison:
    """One quantity, predicted and recorded, in milliseconds."""

    experiment: str  # of the chapter
    quantity: str
    setting: str
    predicted_ms: float
    measured_ms: float

    @property
    def error(self) -> float:
        """Signed and relative: +0.5 says half too long."""
        return self.predicted_ms / self.measured_ms - 1


EXPERIMENTS = ("8-1", "8-2, chunks", "8-2, six requests", "8-4", "8-9, serial")


def comparisons(fixed_s: float | None = None) -> list[Comparison]:
    """All of them, in the order of the chapter; `fixed_s` replaces the fitted fixed part of a step, in seconds."""
    cost = catalog.step_cost("rtx-pro-6000", "qwen3-8b")
    if fixed_s is not None:
        cost = replace(cost, fixed_s=fixed_s)
    parts = (batch_sweep, chunk_history, six_requests, agent_turns, serial_service)
    return [comparison for part in parts for comparison in part(cost)]


def batch_sweep(cost: StepCost) -> Iterator[Comparison]:
    """Experiment 8-1: the decode step and the prefill of whole batches, prompts in steps of up to 4096 tokens."""
    for row in catalog.record("batch-sweep").rows:
        context, cached, batch = row["context_tokens"], row["cached_prefix_tokens"], row["batch"]
        setting = f"batch {batch}, {context} tokens" + (f", {cached} cached" if cached else "")
        decode_s = cost.seconds([(1, context)] * batch)
        yield Comparison("8-1", "decode step", setting, 1e3 * decode_s, row["decode_step_ms"])
        prefill_ms = 1e3 * prefill_s(cost, batch, context - cached, cached, token_budget=4096)
        yield Comparison("8-1", "prefill", setting, prefill_ms, row["prefill_phase_ms"])


def prefill_s(cost: StepCost, batch: int, new_tokens: int, context: int, token_budget: int) -> float:
    """Seconds to prefill `batch` prompts one behind the other, `token_budget` tokens a step."""
    computed, seconds = [0] * batch, 0.0
    while computed[-1] < new_tokens:
        rows, left = [], token_budget
        for i in range(batch):
            count = min(left, new_tokens - computed[i])
            if count:
                rows.append((count, context + computed[i]))
                computed[i] += count
                left -= count
        seconds += cost.seconds(rows)
    return seconds


def chunk_history(cost: StepCost) -> Iterator[Comparison]:
    """Section 8.2.3: a chunk of 512 tokens behind ever more context."""
    for row in catalog.record("chunk-history").rows:
        seconds = cost.seconds([(row["new_tokens"], row["history_tokens"])])
        setting = f"{row['history_tokens']} tokens before"
        yield Comparison("8-2, chunks", "chunk of 512", setting, 1e3 * seconds, row["step_ms_median"])


def replay_requests(prompt: Callable[[int], object] = int) -> list[Request]:
    """The six requests of experiment 8-2, 80 ms apart, with `prompt(tokens)` as prompts."""
    rows = catalog.record("six-requests").where(configuration="budget512_chunked_eager", trial=0)
    return [
        Request(row["request"], row["planned_arrival_ms"] / 1e3, prompt(row["input_tokens"]), row["output_tokens"])
        for row in rows
    ]


def replay(cost: StepCost, token_budget: int) -> Trace:
    """The six requests on the virtual clock, all running at once if they are there."""
    return simulate(replay_requests(), cost, max_running=6, token_budget=token_budget, chunk=None)


def six_requests(cost: StepCost) -> Iterator[Comparison]:
    """Experiment 8-2: first token and end of each request on the scheduler of this library, both token budgets."""
    record = catalog.record("six-requests")
    for budget in (512, 8192):
        rows = record.where(configuration=f"budget{budget}_chunked_eager")
        for request in replay(cost, budget).requests:
            runs, setting = [row for row in rows if row["request"] == request.id], f"{request.id}, budget {budget}"
            first_ms = median(run["client_ttft_ms"] for run in runs)
            last_ms = median(run["client_e2e_ms"] for run in runs)
            yield Comparison("8-2, six requests", "first token", setting, 1e3 * request.ttft_s, first_ms)
            yield Comparison("8-2, six requests", "whole request", setting, 1e3 * request.latency_s, last_ms)


def agent_turns(cost: StepCost) -> Iterator[Comparison]:
    """Experiment 8-4: first token of each turn, what was found in the cache being known."""
    for row in catalog.record("agent-turns").rows:
        for condition in ("6gib_no_load", "6gib_cache_off"):
            hits = row[f"hit_tokens_{condition}"]
            seconds = cost.seconds([(row["input_tokens"] - hits, hits)])
            setting = f"turn {row['turn']}, {hits} of {row['input_tokens']} tokens found"
            yield Comparison("8-4", "first token", setting, 1e3 * seconds, row[f"ttft_ms_{condition}"])


def serial_service(cost: StepCost) -> Iterator[Comparison]:
    """Experiment 8-9, one request at a time: completion from planned arrival. 46 output tokens each."""
    record = catalog.record("service-requests")
    for rate in (1, 4, 16):
        rows = record.where(admission="serial", arrival_rate_req_per_s=rate)
        requests = [
            Request(f"r{row['request']}", row["planned_arrival_s"], row["input_tokens"], max_tokens=46) for row in rows
        ]
        trace = simulate(requests, cost, policy="serial")
        for row, request in zip(rows, trace.requests, strict=True):
            setting = f"{rate} req/s, request {row['request']}"
            measured_ms = 1e3 * row["completion_from_planned_arrival_s"]
            yield Comparison("8-9, serial", "whole request", setting, 1e3 * request.latency_s, measured_ms)
