"""Experiment 8-8: eight questions with the KV cache in different formats; which answers change, and by how little?

Two lengths of document, four questions each; alone and four at a time; two runs. A wrong answer is asked once more
with the cache in float32, as a service would that checks its answers.
"""

from collections.abc import Sequence

from torch import Tensor

from servelab.checks import require_int
from servelab.engine import Request, Row
from servelab.experiments.experiment import Experiment, Subject, require_counts, require_names
from servelab.figures import experiments as figures
from servelab.model.kv_formats import FORMATS, KVFormat
from servelab.model.paged import PagedKV
from servelab.model.serve import serve

OUTPUT_TOKENS = 46
FALLBACK = "f32"


def points(
    formats=("f32", "q8_0", "q4_0", "fp8", "int2"), concurrencies=(1, 4), trials=2, questions=4, records=(128, 512)
) -> list[dict]:
    """A point for each run, concurrency and format; `questions` for each length of document, in `records`."""
    require_counts(concurrencies=concurrencies, records=records)
    require_int("trials", trials, minimum=1)
    require_int("questions", questions, minimum=1)
    require_names("formats", formats, FORMATS)
    return [
        {"trial": trial, "concurrency": concurrency, "format": name, "questions": questions, "records": list(records)}
        for trial in range(trials)
        for concurrency in concurrencies
        for name in formats
    ]


class Margins:
    """The smallest lead that a request's chosen logit ever had over the second best, by request id."""

    def __init__(self):
        self.least: dict[str, float] = {}

    def __call__(self, rows: list[Row], logits: Sequence[Tensor]) -> None:
        for row, own in zip(rows, logits, strict=True):
            if len(own):
                best = own[-1].topk(2).values.tolist()
                self.least[row.request.id] = min(best[0] - best[1], self.least.get(row.request.id, float("inf")))


def ask(subject: Subject, tasks: dict, kv_format: str | KVFormat, concurrency: int) -> list[dict]:
    """Answers to all tasks, `concurrency` at a time, all there at the start."""
    requests = [Request(name, 0.0, task.prompt_ids, OUTPUT_TOKENS) for name, task in tasks.items()]
    margins = Margins()
    trace, outputs = serve(
        subject.model, requests, max_running=concurrency, chunk=None, kv_dtype=kv_format, watch_logits=margins
    )
    return [
        {
            "task": name,
            "records": task.document.num_records,
            "correct": int(task.is_correct(outputs[name])),
            "margin": margins.least[name],
            "seconds": trace[name].finish_s - trace[name].admitted_s,
        }
        for name, task in tasks.items()
    ]


def measure(subject: Subject, point: dict) -> dict:
    tasks = {
        f"n{records}-r{i}": subject.task(records, seed=i)
        for records in point["records"]
        for i in range(point["questions"])
    }
    answers = ask(subject, tasks, point["format"], point["concurrency"])
    wrong = {answer["task"]: tasks[answer["task"]] for answer in answers if not answer["correct"]}
    retries = ask(subject, wrong, FALLBACK, 1) if wrong and point["format"] != FALLBACK else []
    return {
        "right": sum(answer["correct"] for answer in answers),
        "asked": len(answers),
        "answers": answers,
        "retries": retries,
        "kv_bytes_per_token": PagedKV(subject.model.config, 1, 1, point["format"]).nbytes,
    }


def predict(step_cost, point: dict) -> dict:
    """A cost model says nothing of answers."""
    return {}


EXPERIMENT = Experiment(
    name="kv-precision",
    question="Eight questions with the KV cache in different formats: which answers change, and by how little?",
    points=points,
    measure=measure,
    predict=predict,
    figure=figures.kv_precision,
)
