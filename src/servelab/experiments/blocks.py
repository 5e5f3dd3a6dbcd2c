"""Experiment 8-3: what blocks do when branches share them, when a request is cancelled, when the pool is too small.

Lengths, pools and budget are the chapter's, so the counts must be the chapter's too, whatever the machine. Branches
here are forks of one request; vLLM's, separate requests, compute the last prompt token again each, and share one block
fewer (95 for 96).
"""

from servelab import catalog
from servelab.checks import require_int
from servelab.engine import Engine, Request, simulate
from servelab.engine.engine import make_scheduler
from servelab.experiments.experiment import Experiment, Subject
from servelab.figures import experiments as figures
from servelab.model.executor import TorchExecutor
from servelab.model.serve import serve

BLOCK_SIZE = 16
PROMPT = 1536
CANCEL_AFTER = 128  # output tokens


def points(trials=1) -> list[dict]:
    """Branches, two pools of the same four requests, and a cancelled one, `trials` times."""
    require_int("trials", trials, minimum=1)
    # vLLM never hands out block 0 of its pool.
    pools = {row["name"]: row["pool_blocks"] - 1 for row in catalog.record("pool-pressure").rows}
    return [
        point | {"trial": trial}
        for trial in range(trials)
        for point in (
            {"case": "branches", "requests": 1, "n": 4, "output_tokens": 128, "blocks": pools["large"]},
            {"case": "large pool", "requests": 4, "n": 1, "output_tokens": 512, "blocks": pools["large"]},
            {"case": "small pool", "requests": 4, "n": 1, "output_tokens": 512, "blocks": pools["small"]},
            {"case": "cancel", "requests": 4, "n": 1, "output_tokens": 512, "blocks": pools["small"]},
        )
    ]


def requests(point: dict, prompt) -> list[Request]:
    return [
        Request(f"r{i}", 0.0, prompt(i), point["output_tokens"], n=point["n"], seed=i) for i in range(point["requests"])
    ]


def settings(point: dict) -> dict:
    max_running = point["requests"] * point["n"]
    return {"policy": "chunked", "max_running": max_running, "token_budget": 512, "chunk": None} | {
        "num_blocks": point["blocks"],
        "block_size": BLOCK_SIZE,
        "prefix_caching": False,
    }


def counts(trace, point: dict) -> dict:
    return {
        "preemptions": sum(request.num_preemptions for request in trace.requests),
        "scheduled_tokens": sum(step.num_tokens for step in trace.steps),
        "peak_blocks": point["blocks"] - min(trace.steps.num_free_blocks),
        "total_s": trace.total_s,
    }


def measure(subject: Subject, point: dict) -> dict:
    asked = requests(point, lambda i: subject.prompt(PROMPT, i))
    if point["case"] == "cancel":
        return cancelled(subject, asked, point)
    trace, _ = serve(subject.model, asked, **settings(point))
    return counts(trace, point)


def cancelled(subject: Subject, asked: list[Request], point: dict) -> dict:
    """Cancel r0 while a step runs, after `CANCEL_AFTER` of its tokens: its blocks come back when that step ends."""
    scheduler = make_scheduler(asked, **settings(point))
    engine = Engine(scheduler, TorchExecutor(subject.model, point["blocks"], BLOCK_SIZE))
    for request in asked:
        engine.add(request)
    target = engine.requests["r0"]
    while target.num_output_tokens < CANCEL_AFTER:
        engine.step()
    held, called_s = len(target.table.block_ids), engine.executor.now()
    engine.cancel("r0", called_s + 1e-6)  # the next step is under way by then
    engine.step()
    released_s = engine.executor.now() - called_s
    trace = engine.run()
    return counts(trace, point) | {"blocks_released": held, "released_after_s": released_s}


def predict(step_cost, point: dict) -> dict:
    """The counts are the scheduler's, so they are predicted exactly; not the cancellation, whose time is measured."""
    if point["case"] == "cancel":
        return {}
    trace = simulate(requests(point, lambda _: PROMPT), step_cost, **settings(point))
    return counts(trace, point)


EXPERIMENT = Experiment(
    name="blocks",
    question="How many blocks do branches share, what does a small pool preempt, when are cancelled blocks free?",
    points=points,
    measure=measure,
    predict=predict,
    figure=figures.blocks,
)
