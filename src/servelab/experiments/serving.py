"""Experiment 8-9: questions arrive at rising rates; how many are answered, and how many rightly and in time?"""

from servelab import service
from servelab.checks import require_int, require_number
from servelab.engine import Request, simulate
from servelab.experiments.experiment import Experiment, Subject, require_counts, require_list, require_names
from servelab.figures import experiments as figures
from servelab.model.serve import serve

# "serial": one request at a time. "continuous": up to `max_running`, prompts cut. "all at once": the same, but every
# request is there at the start, as when a benchmark sends all it has.
POLICIES = ("serial", "continuous", "all at once")
OUTPUT_TOKENS = 46


def points(
    rates=(1, 2, 4, 8), policies=POLICIES, requests=16, deadline_s=3.0, trials=2, records=(128, 512)
) -> list[dict]:
    """A point for each trial, policy and arrival rate (requests a second; one for "all at once").

    `records` are the lengths of the documents, taking turns.
    """
    require_counts(records=records)
    require_int("requests", requests, minimum=1)
    require_int("trials", trials, minimum=1)
    require_list("rates", rates)
    for rate in rates:
        require_number("rates", rate, above=True)
    require_number("deadline_s", deadline_s, above=True)
    require_names("policies", policies, POLICIES)
    return [
        {"trial": trial, "policy": policy, "rate": rate}
        | {"requests": requests, "deadline_s": deadline_s, "records": list(records)}
        for trial in range(trials)
        for policy in policies
        for rate in (rates if policy != "all at once" else rates[-1:])
    ]


def arrivals_s(point: dict) -> list[float]:
    if point["policy"] == "all at once":
        return [0.0] * point["requests"]
    return service.fixed_arrivals(point["rate"], point["requests"])


def records_of(point: dict, request: int) -> int:
    return point["records"][request % len(point["records"])]


def settings(point: dict) -> dict:
    if point["policy"] == "serial":
        return {"policy": "serial", "max_running": 1}
    return {"policy": "chunked", "max_running": 4, "token_budget": 1024, "chunk": None}


def results(trace, correct: dict[str, bool], point: dict) -> dict:
    """Rates over the window from the first arrival to the last completion, and every request's own times."""
    outcomes = service.outcomes(trace, correct.__getitem__)
    window_s, deadline_s = trace.total_s, point["deadline_s"]
    return {
        "completed_per_s": service.completion_rate(outcomes, window_s),
        "goodput_per_s": service.goodput(outcomes, deadline_s, window_s),
        "window_s": window_s,
        "peak_blocks": trace.config["num_blocks"] - min(trace.steps.num_free_blocks),
        "requests_detail": [
            {
                "id": record.id,
                "arrival_s": record.arrival_s,
                "first_token_s": record.first_token_s,
                "finish_s": record.finish_s,
                "correct": correct[record.id],
            }
            for record in trace.requests
        ],
    }


def measure(subject: Subject, point: dict) -> dict:
    tasks = {
        f"r{i}": subject.task(records_of(point, i), seed=1000 * point["trial"] + i) for i in range(point["requests"])
    }
    asked = [
        Request(name, arrival, task.prompt_ids, OUTPUT_TOKENS)
        for (name, task), arrival in zip(tasks.items(), arrivals_s(point), strict=True)
    ]
    trace, outputs = serve(subject.model, asked, **settings(point))
    return results(trace, {name: task.is_correct(outputs[name]) for name, task in tasks.items()}, point)


def predict(step_cost, point: dict) -> dict:
    """A cost model answers nothing: every answer counts as correct."""
    asked = [
        Request(f"r{i}", arrival, 3 + 4 * records_of(point, i), OUTPUT_TOKENS)
        for i, arrival in enumerate(arrivals_s(point))
    ]
    trace = simulate(asked, step_cost, **settings(point))
    return results(trace, {request.id: True for request in asked}, point)


EXPERIMENT = Experiment(
    name="serving",
    question="Questions arrive at rising rates: how many are answered a second, and how many rightly and in time?",
    points=points,
    measure=measure,
    predict=predict,
    figure=figures.serving,
)
