"""Run an experiment point by point; what is measured is on disk at once, and a second run goes on from there."""

import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

import servelab
from servelab import catalog, measure
from servelab.cost import StepCost
from servelab.experiments.experiment import Experiment, Subject

# What must agree for a report to be continued.
SAME_RUN = ("experiment", "servelab", "model", "device", "threads", "options")


def run(
    experiment: Experiment,
    subject: Subject,
    path: str | Path,
    options: dict | None = None,
    fresh: bool = False,
    on_row: Callable[[int, int], None] = lambda done, total: None,
) -> dict:
    """Measure the points that the report at `path` lacks, and write it after each; returns the report.

    `options` are arguments of `experiment.points`. `fresh` begins anew. `on_row(done, total)` is called after each
    point and once before. Raises `ValueError` if `path` holds another experiment, or this one with other options;
    `OSError` if a row cannot be written (the file then holds all rows before it). Ctrl-C loses one point at most.
    """
    path, options = Path(path), dict(options or {})
    points = experiment.points(**options)
    report = None if fresh else read_report(path)
    if report is None:
        report = new_report(experiment, subject, options)
    else:
        require_same(path, report, new_report(experiment, subject, options))
    rows = {point_key(row["point"]): row for row in report["rows"]}
    on_row(len(rows), len(points))
    for point in points:
        if point_key(point) in rows:
            continue
        row = measure_row(experiment, subject, point, report["step_cost"])
        rows[point_key(point)] = row
        report["rows"] = [rows[key] for key in map(point_key, points) if key in rows]
        write_report(path, report)
        on_row(len(rows), len(points))
    return report


def new_report(experiment: Experiment, subject: Subject, options: dict) -> dict:
    """A report without rows: everything that a reader needs to judge or to repeat it."""
    return {
        "experiment": experiment.name,
        "question": experiment.question,
        "servelab": servelab.__version__,
        "model": subject.name,
        "device": str(subject.model.device),
        "threads": torch.get_num_threads(),
        "options": json.loads(json.dumps(options)),  # as it comes back from a file: tuples are lists
        "machine": measure.machine("torch", "numba", "numpy"),
        "step_cost": fitted_step_cost(subject.name),
        "rows": [],
    }


def fitted_step_cost(model: str) -> dict | None:
    """The calibration of this machine for `model`, which predictions rest on; `None` if there is none."""
    if not catalog.calibration_file().exists():
        return None
    fits = {fit["model"]: fit for fit in catalog.calibration()["step_costs"]}
    if model not in fits:
        return None
    return {key: value for key, value in fits[model].items() if key != "steps"}  # those stay with the calibration


def measure_row(experiment: Experiment, subject: Subject, point: dict, fit: dict | None) -> dict:
    """One point measured and, with a calibration, predicted. `slowdown` is that of the machine since calibration."""
    reference_s = None if fit is None else reference_step_s(subject)
    began = time.perf_counter()
    row = {"point": point, "values": experiment.measure(subject, point)}
    row["seconds"] = round(time.perf_counter() - began, 3)
    if fit is not None:
        row["predicted"] = experiment.predict(StepCost.from_fit(fit), point)
        row["slowdown"] = round(reference_s / fit["reference_s"], 3)
    return row


@torch.inference_mode()
def reference_step_s(subject: Subject, rounds: int = 7) -> float:
    """Seconds that the model takes for 256 tokens, the median of `rounds`.

    A shared machine is now fast, now slow; a prediction from a fit can only be as good as this stays the same.
    """
    token_ids = torch.arange(256, device=subject.model.device) % subject.model.config.vocab_size
    samples = measure.interleave({"step": lambda: subject.model(token_ids)[-1, 0].item()}, rounds=rounds)
    return statistics.median(samples["step"])


def rows_of(report: dict) -> list[dict]:
    """What `Experiment.figure` takes: for each row its point and values in one dict, and "predicted" beside them."""
    return [{**row["point"], **row["values"], "predicted": row.get("predicted", {})} for row in report["rows"]]


def point_key(point: dict) -> str:
    return json.dumps(point, sort_keys=True)


def read_report(path: Path) -> dict | None:
    """The report at `path`, or `None` where there is no file. Raises `ValueError` if it is none of ours."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); --fresh begins anew") from error
    if not isinstance(report, dict) or not isinstance(report.get("rows"), list):
        raise ValueError(f"{path} holds no report of an experiment; name another file")
    return report


def require_same(path: Path, found: dict, wanted: dict) -> None:
    for name in SAME_RUN:
        if found.get(name) != wanted[name]:
            raise ValueError(
                f"{path}: {name} is {found.get(name)!r}, this run has {wanted[name]!r}; "
                f"name another file, or begin anew with --fresh"
            )


def write_report(path: Path, report: dict) -> None:
    """Replace the file in one go: a full disk or a crash leaves what was there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    try:
        part.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        os.replace(part, path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
