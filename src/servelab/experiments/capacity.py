"""Experiment 8-7: how many requests a pool holds by context, and what a prompt of that length costs to compute."""

import statistics

from servelab import catalog, memory
from servelab.checks import require_int
from servelab.engine import Request, simulate
from servelab.experiments.experiment import Experiment, Subject, require_counts
from servelab.figures import experiments as figures
from servelab.model.serve import serve

BLOCK_SIZE = 16
OUTPUT_TOKENS = 16


def points(contexts=(256, 512, 1024, 2048, 4096), pool_tokens=16384, trials=2) -> list[dict]:
    """A point for each trial and context; `pool_tokens` is the pool, in tokens."""
    require_counts(contexts=contexts)
    require_int("pool_tokens", pool_tokens, minimum=1)
    require_int("trials", trials, minimum=1)
    return [
        {"trial": trial, "context": context, "pool_tokens": pool_tokens}
        for trial in range(trials)
        for context in contexts
    ]


def fitting(point: dict) -> int:
    """How many requests the memory arithmetic of section 8.1.2 lets in."""
    model = catalog.model("retrieval")
    pool_bytes = point["pool_tokens"] * memory.kv_bytes_per_token(model, "f32")
    return memory.max_requests(pool_bytes, model, point["context"], OUTPUT_TOKENS, BLOCK_SIZE, "f32")


def requests(point: dict, prompt) -> list[Request]:
    """One more than fit: the last must wait until another has gone."""
    return [Request(f"r{i}", 0.0, prompt(i), OUTPUT_TOKENS) for i in range(fitting(point) + 1)]


def settings(point: dict) -> dict:
    return {
        "policy": "chunked",
        "max_running": fitting(point) + 1,
        "token_budget": 4096,
        "chunk": None,
        "num_blocks": point["pool_tokens"] // BLOCK_SIZE,
        "block_size": BLOCK_SIZE,
    }


def counts(trace, point: dict) -> dict:
    """`fit` is counted in the run: the most requests that had a row in one step."""
    decodes = [step for step in trace.steps if step.is_decode]
    most = max(len(step.rows) for step in decodes)
    return {
        "fit": most,
        "preemptions": sum(request.num_preemptions for request in trace.requests),
        "decode_step_s": statistics.median(step.seconds for step in decodes if len(step.rows) == most),
        "first_ttft_s": trace["r0"].ttft_s,
    }


def measure(subject: Subject, point: dict) -> dict:
    asked = requests(point, lambda i: subject.prompt(point["context"], i + 100 * point["trial"]))
    trace, _ = serve(subject.model, asked, **settings(point))
    return counts(trace, point)


def predict(step_cost, point: dict) -> dict:
    trace = simulate(requests(point, lambda _: point["context"]), step_cost, **settings(point))
    return counts(trace, point) | {"fit": fitting(point)}


EXPERIMENT = Experiment(
    name="capacity",
    question="How many requests does a pool hold as contexts grow, and how long are their steps?",
    points=points,
    measure=measure,
    predict=predict,
    figure=figures.capacity,
)
