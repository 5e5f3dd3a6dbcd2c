"""8-9e and 8-9f: goodput by the chapter's formula, and of the learner's own runs.

In wrong answers, d is the deadline.
"""

import math
from collections.abc import Mapping

from servelab import service
from servelab.exercises.part import Measured, Part, Wrong

TIMES = ("arrival_s", "first_token_s", "finish_s")


def goodput(requests, deadline_s):
    results = [service.Outcome(each["arrival_s"], each["finish_s"], bool(each["correct"])) for each in requests]
    return service.goodput(results, deadline_s, window_s(requests))


def window_s(requests):
    """From the first arrival to the last completion."""
    return max(each["finish_s"] for each in requests) - min(each["arrival_s"] for each in requests)


def per_window(is_good, seconds=lambda requests, d: window_s(requests)):
    """Requests a second that `is_good(request, d)` accepts."""
    return lambda requests, d: sum(bool(is_good(each, d)) for each in requests) / (seconds(requests, d) or 1)


def latency_s(request):
    return request["finish_s"] - request["arrival_s"]


def in_time(request, d):
    return latency_s(request) <= d


def is_good(request, d):
    return request["correct"] and in_time(request, d)


def request(arrival_s, first_token_s, finish_s, correct):
    return {"arrival_s": arrival_s, "first_token_s": first_token_s, "finish_s": finish_s, "correct": correct}


def draw_requests(random):
    """Arrivals from 0 on or later, some late, some wrong."""
    arrival, requests = random.randint(0, 4) / 4, []
    for _ in range(random.randint(1, 8)):
        first = arrival + random.randint(1, 8) / 8
        requests.append(request(arrival, first, first + random.randint(1, 16) / 8, random.randint(0, 3) > 0))
        arrival += random.randint(0, 8) / 8
    return requests, random.randint(2, 20) / 8


WRONG = (
    Wrong("late ones count", per_window(lambda each, d: each["correct"]),
          "you count right answers that came too late."),
    Wrong("wrong ones count", per_window(in_time), "you count wrong answers that came in time."),
    Wrong("completed", per_window(lambda each, d: True),
          "these are completed requests a second. Only right ones in time are good."),
    Wrong("deadline from the start", per_window(lambda each, d: each["correct"] and each["finish_s"] <= d),
          "a deadline counts from the request's own arrival, not from the start of the run."),
    Wrong("first token in time", per_window(
        lambda each, d: each["correct"] and each["first_token_s"] - each["arrival_s"] <= d),
        "the whole answer must be there in time, not its first token."),
    Wrong("share", per_window(is_good, lambda requests, d: len(requests)),
          "this is the share of good requests. Requests a second are wanted."),
    Wrong("number", per_window(is_good, lambda requests, d: 1),
          "this is how many are good. How many a second is that?"),
    Wrong("by the deadline", per_window(is_good, lambda requests, d: d),
          "you divide by the deadline. The window runs from the first arrival to the last completion."),
    Wrong("window from zero", per_window(is_good, lambda requests, d: max(each["finish_s"] for each in requests)),
          "the window begins with the first arrival, which need not be at 0."),
    Wrong("sum of latencies", per_window(is_good, lambda requests, d: sum(map(latency_s, requests))),
          "you divide by all waiting times together. Requests run at the same time."),
)  # fmt: skip

BOOK = (
    [request(i / 4, i / 4 + 0.5 * (i + 1), i / 4 + 0.7 * (i + 1), i not in (2, 9)) for i in range(16)],
    [request(i / 4, i / 4 + 0.4, i / 4 + 1.5 + i / 8, i not in (2, 9)) for i in range(16)],
)

GOODPUT = Part(
    id="8-9e",
    title="Goodput",
    returns="one number, in requests a second",
    expected=goodput,
    book=tuple((requests, 3) for requests in BOOK),
    others=(([request(0, 1, 2, True)], 2), ([request(0, 1, 2, False)], 2), ([request(1, 2, 3, True)], 1),
            ([request(1, 2, 3, True), request(2, 3, 5, True)], 2),
            ([request(0, 1, 4, True), request(2, 3, 4, True)], 3)),
    draw=draw_requests,
    wrong=WRONG,
    hints=(
        "Which requests are good? Right, and complete within deadline_s of their own arrival.",
        "The window runs from the first arrival to the last completion.",
        "sum(r[\"correct\"] and r[\"finish_s\"] - r[\"arrival_s\"] <= deadline_s for r in requests) / window.",
    ),
)  # fmt: skip


def judge_own(answer) -> tuple[str, str]:
    """Of (runs, deadline_s, goodputs): `runs` and `goodputs` by configuration. (kind, message) as of a verdict."""
    problem = form_problem(answer) or trace_problem(answer[0])
    if problem:
        return "misuse", problem
    runs, deadline_s, mine = answer
    for name, requests in runs.items():
        if math.isclose(mine[name], goodput(requests, deadline_s), rel_tol=1e-9):
            continue
        for wrong in WRONG:
            if math.isclose(mine[name], wrong.compute(requests, deadline_s), rel_tol=1e-9):
                return "known mistake", f"{name}: {wrong.message}"
        return "off", f"{name}: your goodput is not that of your records. Does your function of part e get them?"
    return "right", "right."


def form_problem(answer) -> str | None:
    """Why the answer cannot be read, or None."""
    if not isinstance(answer, tuple | list) or len(answer) != 3:
        return "give three things: (runs, deadline_s, goodputs)."
    runs, deadline_s, mine = answer
    if not isinstance(runs, Mapping) or len(runs) < 2:
        return "runs must be a dict of two configurations or more, each with its list of requests."
    if not isinstance(deadline_s, int | float) or deadline_s <= 0:
        return "deadline_s must be a number of seconds above 0."
    if not isinstance(mine, Mapping) or mine.keys() != runs.keys():
        return f"goodputs must be a dict with {', '.join(map(str, runs))}, as runs is."
    numbers = all(isinstance(value, int | float) for value in mine.values())
    return None if numbers else "each of the goodputs must be a number, in requests a second."


def trace_problem(runs) -> str | None:
    """Why the runs are no runs of the same requests, or None."""
    for name, requests in runs.items():
        for each in requests:
            if missing := [key for key in (*TIMES, "correct") if key not in each]:
                return f"{name}: a request lacks {', '.join(missing)}."
            if not each["arrival_s"] <= each["first_token_s"] <= each["finish_s"]:
                return f"{name}: a request must arrive, then give its first token, then finish."
    arrivals = [sorted(each["arrival_s"] for each in requests) for requests in runs.values()]
    if not all(arrivals) or any(other != arrivals[0] for other in arrivals):
        return "all configurations must get the same requests at the same times, one or more."
    return None


OWN = Measured(
    id="8-9f",
    title="Two configurations, measured",
    judge=judge_own,
    right=(dict(zip(("one", "two"), BOOK, strict=True)), 3,
           {name: goodput(requests, 3) for name, requests in zip(("one", "two"), BOOK, strict=True)}),
    hints=(
        "Run the cell that measures, then your function of part e on each list of requests.",
        "Both configurations must get the same tasks at the same arrival times.",
        "{name: goodput(requests, deadline_s) for name, requests in runs.items()}.",
    ),
)  # fmt: skip
