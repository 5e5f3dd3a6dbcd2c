"""Experiment 8-1: requests of equal length arrive together; how fast is the batch, and the step?"""

import statistics

from servelab.checks import require_int
from servelab.engine import Request, simulate
from servelab.experiments.experiment import Experiment, Subject, require_counts
from servelab.figures import experiments as figures
from servelab.model.serve import serve


def points(batches=(1, 2, 4, 8, 16), contexts=(256, 1024), output_tokens=64, trials=3) -> list[dict]:
    """A point for each trial, context and batch. All in tokens but `batches` and `trials`."""
    require_counts(batches=batches, contexts=contexts)
    require_int("trials", trials, minimum=1)
    require_int("output_tokens", output_tokens, minimum=2)  # one has no gap
    return [
        {"trial": trial, "context": context, "batch": batch, "output_tokens": output_tokens}
        for trial in range(trials)
        for context in contexts
        for batch in batches
    ]


def settings(point: dict) -> dict:
    """One step may hold all prompts, as in the chapter's runs up to its cap."""
    return {"max_running": point["batch"], "token_budget": 4096, "chunk": None, "block_size": 16}


def requests(point: dict, prompt) -> list[Request]:
    return [Request(f"r{i}", 0.0, prompt(i), point["output_tokens"]) for i in range(point["batch"])]


def times(trace) -> dict:
    """Throughput of the whole batch, times of a request, and the median of the steps that only decode."""
    decodes = [step.seconds for step in trace.steps if step.is_decode]
    return {
        "throughput_tok_per_s": sum(request.num_output_tokens for request in trace.requests) / trace.total_s,
        "ttft_s": statistics.median(request.ttft_s for request in trace.requests),
        "decode_step_s": statistics.median(decodes),
        "total_s": trace.total_s,
    }


def measure(subject: Subject, point: dict) -> dict:
    prompts = requests(point, lambda i: subject.prompt(point["context"], i + 100 * point["trial"]))
    trace, _ = serve(subject.model, prompts, **settings(point))
    return times(trace)


def predict(step_cost, point: dict) -> dict:
    return times(simulate(requests(point, lambda _: point["context"]), step_cost, **settings(point)))


EXPERIMENT = Experiment(
    name="batch-sweep",
    question="How many tokens a second does a batch get, and how long is its decode step, as the batch grows?",
    points=points,
    measure=measure,
    predict=predict,
    figure=figures.batch_sweep,
)
