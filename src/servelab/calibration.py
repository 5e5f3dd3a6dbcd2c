"""Measure this machine: bandwidth, matmul rate, and the `StepCost` of a model on it.

The fit is made from whole engine steps of the real model, prefill, decode and mixed, as the experiments run them.
Times on a shared machine drift, so all workloads take turns and each kind of step counts by its median.
"""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import combinations
from pathlib import Path

import numpy as np
import torch

from servelab import catalog, measure
from servelab.cost import StepCost, causal_pairs
from servelab.engine import Request
from servelab.experiments.experiment import Subject
from servelab.experiments.run import reference_step_s, write_report
from servelab.model.serve import serve

ROUNDS = 2
MATRIX = 2048  # rows and columns of the float32 matrices multiplied
# (requests, prompt tokens of each, output tokens, token budget): prefill alone, decode of several batches and contexts,
# and mixed steps where the budget cuts prompts.
WORKLOADS = (
    (1, 64, 16, 2048),
    (1, 512, 16, 512),
    (1, 2048, 16, 2048),
    (2, 1024, 16, 256),
    (4, 256, 24, 1024),
    (4, 1024, 16, 512),
    (8, 512, 24, 512),
    (16, 128, 24, 512),
    (16, 512, 16, 1024),
)


def calibrate(subject: Subject, on_part: Callable[[int, int], None] = lambda done, total: None) -> dict:
    """Measure; returns what `save` keeps. `on_part(done, total)` is called after each part and once before."""
    total = ROUNDS * len(WORKLOADS) + 3
    done = 0

    def tick():
        nonlocal done
        on_part(done, total)
        done += 1

    tick()
    bandwidth = measure.streaming_read_bandwidth() if subject.model.device.type == "cpu" else device_bandwidth(subject)
    tick()
    flops = matmul_flops(subject)
    tick()
    for workload in WORKLOADS:  # compiles kernels, touches memory
        engine_steps(subject, *workload)
    reference_s = reference_step_s(subject)
    tick()
    steps = []
    for _ in range(ROUNDS):
        for workload in WORKLOADS:
            steps += engine_steps(subject, *workload)
            tick()
    samples = median_steps(steps)
    fit = fit_step_cost(samples)
    machine = measure.machine("torch", "numba", "numpy")
    source = f"python -m servelab calibrate, {machine['date']}, {machine['cpu']}"
    return {
        "machine": machine,
        "threads": torch.get_num_threads(),
        "accelerator": {
            "name": f"your machine ({machine['cpu']})",
            "memory_gb": memory_gb(subject),
            "bandwidth_gb_per_s": round(bandwidth / 1e9, 2),
            "bf16_tflops": round(flops / 1e12, 4),  # of the model's own dtype: float32 on a CPU
            "power_w": None,
            "host_link": None,
            "source": source,
        },
        "step_costs": [
            {
                "accelerator": catalog.YOUR_MACHINE,
                "model": subject.name,
                "fixed_s": fit.fixed_s,
                "per_new_token_s": fit.per_new_token_s,
                "per_causal_pair_s": fit.per_causal_pair_s,
                "reference_s": reference_s,
                "source": source,
                "steps": [  # what the fit rests on, and how far it is off there
                    {**sample, "predicted_s": predicted_s(fit, sample)} for sample in samples
                ],
            }
        ],
    }


def device_bandwidth(subject: Subject, num_bytes: int = 2**30) -> float:
    """Bytes a second of a copy on the accelerator, read and write counted."""
    source = torch.empty(num_bytes // 4, dtype=torch.float32, device=subject.model.device)
    target = torch.empty_like(source)

    def copy():
        target.copy_(source)
        torch.cuda.synchronize()

    return 2 * num_bytes / statistics.median(measure.interleave({"copy": copy})["copy"])


def matmul_flops(subject: Subject) -> float:
    """Operations a second of a large matrix product in the model's dtype, on the threads that PyTorch has."""
    a, b = (torch.randn(MATRIX, MATRIX, dtype=subject.model.dtype, device=subject.model.device) for _ in range(2))
    samples = measure.interleave({"matmul": lambda: (a @ b)[0, 0].item()}, rounds=5)
    return 2 * MATRIX**3 / statistics.median(samples["matmul"])


def memory_gb(subject: Subject) -> float:
    """Memory of the device that holds the model, decimal GB."""
    if subject.model.device.type == "cuda":
        return round(torch.cuda.get_device_properties(subject.model.device).total_memory / 1e9, 1)
    import psutil

    return round(psutil.virtual_memory().total / 1e9, 1)


def engine_steps(subject: Subject, num_requests: int, prompt: int, max_tokens: int, token_budget: int) -> list[dict]:
    """Every step of one engine run: its new tokens, causal pairs, rows, kind, and seconds."""
    requests = [Request(f"r{i}", 0.0, subject.prompt(prompt, i), max_tokens) for i in range(num_requests)]
    trace, _ = serve(
        subject.model, requests, max_running=num_requests, token_budget=token_budget, chunk=None, block_size=16
    )
    return [describe_step(step) for step in trace.steps]


def describe_step(step) -> dict:
    kinds = {row.kind for row in step.rows}
    return {
        "kind": kinds.pop() if len(kinds) == 1 else "mixed",
        "rows": len(step.rows),
        "new_tokens": step.num_tokens,
        "causal_pairs": sum(causal_pairs(row.num_tokens, row.num_computed_tokens) for row in step.rows),
        "seconds": step.seconds,
    }


def median_steps(steps: Iterable[dict]) -> list[dict]:
    """One sample for each group of like steps, with the medians of the group.

    Alike: of one kind, equally many rows and new tokens, and causal pairs within a factor of 1.25. So 16 decode
    steps weigh as much as one prefill.
    """
    groups = defaultdict(list)
    for step in steps:
        size = round(np.log(max(1, step["causal_pairs"])) / np.log(1.25))
        groups[step["kind"], step["rows"], step["new_tokens"], size].append(step)
    return [
        group[0]
        | {
            "causal_pairs": statistics.median(step["causal_pairs"] for step in group),
            "seconds": statistics.median(step["seconds"] for step in group),
            "count": len(group),
        }
        for group in groups.values()
    ]


def fit_step_cost(samples: Iterable[dict]) -> StepCost:
    """The `StepCost` with the least squared relative errors, no part of which is negative.

    Relative, because a step of 1 ms that is off by 1 ms matters more than one of 100 ms. With three parts, trying
    all sets of parts that may be positive finds the best. Raises `ValueError` with fewer than three samples.
    """
    samples = list(samples)
    if len(samples) < 3:
        raise ValueError(f"samples has {len(samples)}; it must have at least 3")
    seconds = np.array([sample["seconds"] for sample in samples])  # (samples,)
    terms = np.array([[1, sample["new_tokens"], sample["causal_pairs"]] for sample in samples]) / seconds[:, None]
    best, least = None, np.inf
    for size in (3, 2, 1):
        for columns in map(list, combinations(range(3), size)):
            parts = np.zeros(3)
            parts[columns] = np.linalg.lstsq(terms[:, columns], np.ones(len(samples)), rcond=None)[0]
            error = np.square(terms @ parts - 1).sum()
            if parts.min() >= 0 and error < least:
                best, least = parts, error
    return StepCost(*map(float, best))


def predicted_s(fit: StepCost, sample: dict) -> float:
    """Seconds that the fit gives a sample."""
    return fit.fixed_s + fit.per_new_token_s * sample["new_tokens"] + fit.per_causal_pair_s * sample["causal_pairs"]


def save(result: dict) -> Path:
    """Keep a calibration where `catalog.calibration` finds it; fits of other models stay. Returns the path."""
    path = catalog.calibration_file()
    models = {fit["model"] for fit in result["step_costs"]}
    others = [fit for fit in earlier_fits(path) if fit["model"] not in models]
    write_report(path, result | {"step_costs": [*result["step_costs"], *others]})
    return path


def earlier_fits(path: Path) -> list[dict]:
    return catalog.calibration()["step_costs"] if path.exists() else []


def describe(result: dict) -> str:
    """What was measured, for the command line."""
    accelerator, fit = result["accelerator"], result["step_costs"][0]
    errors = [sample["predicted_s"] / sample["seconds"] - 1 for sample in fit["steps"]]
    return (
        f"{accelerator['name']}: reads {accelerator['bandwidth_gb_per_s']:g} GB/s, "
        f"computes {1e3 * accelerator['bf16_tflops']:.0f} GFLOP/s.\n"
        f"A step of {fit['model']}: {1e3 * fit['fixed_s']:.3g} ms, {1e6 * fit['per_new_token_s']:.3g} us a new token, "
        f"{1e9 * fit['per_causal_pair_s']:.3g} ns a causal pair.\n"
        f"{len(errors)} kinds of step: the fit is off by {100 * statistics.median(map(abs, errors)):.0f} % "
        f"in the median, from {100 * min(errors):+.0f} % to {100 * max(errors):+.0f} %."
    )
