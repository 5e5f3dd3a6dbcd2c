"""Experiment 8-2: six requests arrive one after another; who waits, and how long is the longest gap, by token budget?

Lengths and distances are those of the chapter's replay, which measured budgets of 512 and 8192 only.
"""

import statistics

from servelab.checks import require_int
from servelab.engine import simulate
from servelab.experiments.experiment import Experiment, Subject, require_counts
from servelab.experiments.recorded import replay_requests
from servelab.figures import experiments as figures
from servelab.model.serve import serve


def points(budgets=(128, 256, 512, 1024, 2048, 4096, 8192), trials=2) -> list[dict]:
    """A point for each trial and token budget."""
    require_counts(budgets=budgets)
    require_int("trials", trials, minimum=1)
    return [{"trial": trial, "budget": budget} for trial in range(trials) for budget in budgets]


def settings(point: dict) -> dict:
    return {"max_running": 6, "token_budget": point["budget"], "chunk": None, "block_size": 16}


def times(trace) -> dict:
    """What the chapter's replay lists. r4 came after the longest prompt; its queue is what a small budget costs."""
    queues = {request.id: request.admitted_s - request.arrival_s for request in trace.requests}
    gaps = sorted(gap for request in trace.requests for gap in request.itl_s)
    return {
        "max_itl_s": gaps[-1],
        "median_itl_s": statistics.median(gaps),
        "r3_ttft_s": trace["r3"].ttft_s,
        "r4_queue_s": queues["r4"],
        "max_queue_s": max(queues.values()),
        "total_s": trace.total_s,
        "steps": len(trace.steps),
    }


def measure(subject: Subject, point: dict) -> dict:
    trace, _ = serve(
        subject.model, replay_requests(lambda tokens: subject.prompt(tokens, point["trial"])), **settings(point)
    )
    return times(trace)


def predict(step_cost, point: dict) -> dict:
    return times(simulate(replay_requests(), step_cost, **settings(point)))


EXPERIMENT = Experiment(
    name="token-budget",
    question="Six requests arrive one after another: how long is the longest gap between tokens, by token budget?",
    points=points,
    measure=measure,
    predict=predict,
    figure=figures.token_budget,
)
