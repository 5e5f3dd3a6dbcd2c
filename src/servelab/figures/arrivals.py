"""Figure of section 8.6.1: requests in the system over time, running and waiting, and Little's law on them."""

from functools import cache

import plotly.graph_objects as go

from servelab import catalog, memory, service
from servelab.engine import BlockPool, Request, Scheduler, Trace
from servelab.figures.style import COLORS, add_heading, color_key, describe, figure

PROMPT = 2048
MAX_RUNNING = 4
DEADLINE_S = 7
NUM_REQUESTS = 40
SEED = 3
STEP_COST = catalog.step_cost("rtx-pro-6000", "qwen3-8b")
RATES = [0.5, 1, 1.5, 2, 3, 4]
OUTPUTS = [32, 64, 128]
PALE = {"decode": "rgba(43, 131, 186, 0.4)", "cost": "rgba(208, 97, 14, 0.35)"}


def alone_s(max_tokens: int) -> float:
    """From arrival to the last token of a request that meets nobody."""
    return serve([Request("r0", 0, PROMPT, max_tokens)])[0].total_s


@cache
def busy_s(max_tokens: int) -> float:
    """The same while all places are taken and each that comes free is filled at once."""
    requests = service.requests_at([0] * NUM_REQUESTS, PROMPT, max_tokens)
    return MAX_RUNNING * serve(requests)[0].total_s / NUM_REQUESTS


def serve(requests, admission=None):
    """Trace and refusals, by id, of requests on the chapter's card, at most `MAX_RUNNING` at a time."""
    blocks = sum(memory.num_blocks(request.max_written_tokens, 16) for request in requests)
    scheduler = Scheduler(BlockPool(blocks, 16), "chunked", MAX_RUNNING, token_budget=4096, chunk=2048)
    return service.serve(requests, scheduler, STEP_COST, admission)


def by_deadline(max_tokens: int, estimate: float = 1.0) -> service.Admission:
    """Refuses who would be late: `estimate` times the time under load for itself and for each four ahead of it."""
    own_s = estimate * busy_s(max_tokens)
    return service.Admission(
        num_blocks=10**6,  # memory is no limit here
        block_size=16,
        deadline_s=DEADLINE_S,
        own_time_s=lambda request: own_s,
        wait_s=lambda in_system: max(0, in_system + 1 - MAX_RUNNING) * own_s / MAX_RUNNING,
    )


@cache
def run(rate: float, max_tokens: int, refuse: bool, give_up: bool) -> tuple[Trace, int]:
    """Trace of random arrivals at `rate` a second, and how many were refused.

    `refuse`: who would be late by the deadline. `give_up`: callers leave at the deadline, done or not.
    """
    requests = [
        Request(f"r{i}", time_s, PROMPT, max_tokens, cancel_s=time_s + DEADLINE_S if give_up else None)
        for i, time_s in enumerate(service.poisson_arrivals(rate, NUM_REQUESTS, SEED))
    ]
    trace, refused = serve(requests, by_deadline(max_tokens) if refuse else None)
    return trace, len(refused)


def counts(intervals) -> tuple[list[float], list[int]]:
    """Times of change, and how many of the `intervals` (from, to) are open from then on."""
    changes = sorted([(start, 1) for start, _ in intervals] + [(end, -1) for _, end in intervals])
    times, numbers, number = [0.0], [0], 0
    for time, change in changes:
        number += change
        if round(time, 2) == times[-1]:
            numbers[-1] = number
        else:
            times.append(round(time, 2))
            numbers.append(number)
    return times, numbers


def queue_explorer(rate, service_time, admission, cancel):
    """Running and waiting requests over time. `service_time`: output tokens; the others as `run` takes them."""
    trace, refused = run(rate, service_time, admission, cancel)
    law = service.littles_law(trace)
    stays = [(request.arrival_s, request.finish_s) for request in trace.requests]
    runs = [(request.admitted_s, request.finish_s) for request in trace.requests if request.admitted_s is not None]
    waits = [
        (request.arrival_s, request.finish_s if request.admitted_s is None else request.admitted_s)
        for request in trace.requests
    ]
    fig = figure(height=330)
    for name, spans, color, fill, width in (
        ("running", runs, "decode", "tozeroy", 1.5),
        ("in the system", stays, "cost", "tonexty", 0),  # its edge would hide that of "running" where nobody waits
    ):
        times, numbers = counts(spans)
        fig.add_trace(
            go.Scatter(
                **{"x": times, "y": numbers, "mode": "lines", "fill": fill, "fillcolor": PALE[color]},
                line={"shape": "hv", "width": width, "color": COLORS[color]},
                hovertemplate=name + ": %{y} at %{x} s<extra></extra>",
            )
        )
    mean = law.mean_in_system
    fig.add_hline(y=mean, line={"dash": "dash", "width": 2, "color": COLORS["shared"]})
    colors = ((COLORS["decode"], "running"), (COLORS["cost"], "waiting"), (COLORS["shared"], f"mean {mean:.1f}", "━"))
    add_heading(fig, color_key(colors))
    most = max(counts(stays)[1])
    fig.update_xaxes(title_text="time (s)", range=[0, max(end for _, end in stays)], nticks=6, fixedrange=True)
    fig.update_yaxes(title_text="requests", range=[0, 1.08 * max(most, MAX_RUNNING)], nticks=5, fixedrange=True)
    longest = max(counts(waits)[1])
    good = sum(outcome.is_good(DEADLINE_S) for outcome in service.outcomes(trace))
    gone = sum(request.status == "cancelled" for request in trace.requests)
    rows = [
        ["admitted a second (λ)", f"{law.arrival_rate:.2f}"],
        ["mean time in the system (W, s)", f"{law.mean_time_s:.2f}"],
        ["mean in the system, counted (L)", f"{mean:.2f}"],
        ["λW", f"{law.arrival_rate * law.mean_time_s:.2f}"],
        ["longest queue", longest],
        [f"done within {DEADLINE_S} s", good],
        ["refused", refused],
        ["gave up", gone],
    ]
    alt = (
        f"Up to {most} requests in the system, {mean:.1f} on average, and up to {longest} of them waiting, while at "
        f"most {MAX_RUNNING} run. {good} of {NUM_REQUESTS} are done within {DEADLINE_S} s."
    )
    describe(fig, alt, (["quantity", "value"], rows))
    text = (
        f"{rate:g} a second arrive, each {alone_s(service_time):.1f} s alone: {law.arrival_rate:.2f} a second get in "
        f"and stay {law.mean_time_s:.2f} s, so {mean:.2f} are there on average, and at most {longest} wait. "
        f"{good} of {NUM_REQUESTS} are in time; {refused} refused, {gone} gave up."
    )
    return fig, text
