"""Experiment 8-5: long answers with drafts from different sources and of different lengths; when do drafts pay?"""

import statistics

from servelab.checks import require_int
from servelab.engine import Request
from servelab.experiments.experiment import Experiment, Subject, require_counts, require_names
from servelab.figures import experiments as figures
from servelab.model.draft import DraftModelProposer
from servelab.model.load import load_retrieval_draft
from servelab.model.serve import serve
from servelab.speculation import NgramProposer

RECORDS = 64
OUTPUT_TOKENS = 46
SOURCES = ("n-gram", "model")


def points(lengths=(1, 2, 4, 8, 15), sources=SOURCES, batches=(1, 4), trials=3) -> list[dict]:
    """A point for each trial, batch, source and draft length, and one without drafts."""
    require_counts(lengths=lengths, batches=batches)
    require_int("trials", trials, minimum=1)
    require_names("sources", sources, SOURCES)
    return [
        {"trial": trial, "batch": batch, "source": source, "draft_length": length}
        for trial in range(trials)
        for batch in batches
        for source, length in (("none", 0), *((source, length) for source in sources for length in lengths))
    ]


def drafter(subject: Subject, point: dict):
    if point["source"] == "none":
        return None
    if point["source"] == "n-gram":
        return NgramProposer(point["draft_length"])
    return DraftModelProposer(load_retrieval_draft(), point["draft_length"])


def measure(subject: Subject, point: dict) -> dict:
    tasks = {f"r{i}": subject.task(RECORDS, seed=100 * point["trial"] + i) for i in range(point["batch"])}
    requests = [Request(name, 0.0, task.prompt_ids, OUTPUT_TOKENS) for name, task in tasks.items()]
    trace, outputs = serve(
        subject.model, requests, max_running=point["batch"], chunk=None, drafter=drafter(subject, point)
    )
    decodes = [step for step in trace.steps if step.is_decode]
    drafted, accepted = trace.num_drafted, trace.num_accepted
    output_tokens = sum(request.num_output_tokens for request in trace.requests)
    decode_s = sum(step.seconds for step in decodes)
    return {
        "drafted": drafted,
        "accepted": accepted,
        "tokens_per_round": (output_tokens - point["batch"]) / sum(len(step.rows) for step in decodes),
        "s_per_token": decode_s / (output_tokens - point["batch"]) * point["batch"],
        "round_s": statistics.median(step.seconds for step in decodes),
        "right": sum(task.is_correct(outputs[name]) for name, task in tasks.items()),
    }


def predict(step_cost, point: dict) -> dict:
    """The round alone: a cost model cannot know how many drafts are accepted, nor what drafting takes."""
    context = 3 + 4 * RECORDS + OUTPUT_TOKENS // 2
    return {"round_s": step_cost.seconds([(1 + point["draft_length"], context)] * point["batch"])}


EXPERIMENT = Experiment(
    name="drafts",
    question="Long answers with drafts of different sources and lengths: when do drafts pay?",
    points=points,
    measure=measure,
    predict=predict,
    figure=figures.drafts,
)
