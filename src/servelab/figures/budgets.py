"""Figures of section 8.2.4: six requests under token budgets, and rows padded to captured shapes."""

from functools import cache
from statistics import median
from typing import NamedTuple

import plotly.graph_objects as go

from servelab import catalog
from servelab.checks import require_int, require_name
from servelab.cost import padded_rows
from servelab.engine import Trace
from servelab.experiments import recorded
from servelab.figures.chunks import step_cost
from servelab.figures.slots import HATCH, listing, plural
from servelab.figures.style import COLORS, add_heading, color_key, describe, figure

MEASURED = (512, 8192)  # budgets of experiment 8-2
BUDGETS = [128, 256, 512, 1024, 2048, 4096, 8192]
WATCHED = {"r3, 4096 tokens": "r3", "r4, 512 behind r3": "r4", "r5, 1024 behind r4": "r5"}
GOAL_MS = 50  # exercise 8-2's limit for a gap
PARTS = {"step under way": (COLORS["free"], {}, "■"), "queue": (COLORS["free"], HATCH, "▨")}
PARTS["prefill"] = (COLORS["prefill"], {}, "■")


class Waits(NamedTuple):
    """What a request's first token waited for; seconds."""

    under_way_s: float  # a step that had begun before it came
    queue_s: float  # from then on until its first step: what vLLM's engine reports as its queue
    prefill_s: float


def waits(trace: Trace, request_id: str) -> Waits:
    """The parts of a request's time to first token. An engine looks for arrivals between steps."""
    request = trace[request_id]
    seen_s = next(start_s for start_s in trace.steps.start_s if start_s >= request.arrival_s)
    return Waits(seen_s - request.arrival_s, request.admitted_s - seen_s, request.first_token_s - request.admitted_s)


@cache
def replayed(budget: int, fixed_ms: float) -> tuple[float, dict[str, Waits]]:
    """(longest gap in seconds, waits of each watched request) of the six requests on the step cost."""
    trace = recorded.replay(step_cost(fixed_ms), budget)
    return trace.max_itl_s, {name: waits(trace, name) for name in WATCHED.values()}


@cache
def measured(budget: int, request: str) -> tuple[float, float, float]:
    """(longest gap of all, first token, queue of `request`) in ms as experiment 8-2 recorded them, medians of three."""
    configuration = f"budget{budget}_chunked_eager"
    rows = catalog.record("six-requests").where(configuration=configuration, request=request)
    gaps = catalog.record("six-requests-itl").row(configuration=configuration)
    return (gaps["itl_ms_max"], *(median(row[name] for row in rows) for name in ("client_ttft_ms", "engine_queue_ms")))


def budget_explorer(budget, request, fixed_part):
    """The longest gap of six requests and one request's wait for its first token, by token budget."""
    require_name("request", request, WATCHED.values())
    gaps_ms = [1e3 * replayed(size, fixed_part)[0] for size in BUDGETS]
    parts_ms = [[1e3 * seconds for seconds in replayed(size, fixed_part)[1][request]] for size in BUDGETS]
    seen = {size: measured(size, request) for size in MEASURED}
    fig = figure(height=470, barmode="stack")
    labels = [str(size) for size in BUDGETS]
    opacity = [1.0 if size == budget else 0.5 for size in BUDGETS]
    _add_bars(fig, labels, gaps_ms, COLORS["decode"], {}, opacity, "longest gap", "")
    for i, (name, (color, pattern, _)) in enumerate(PARTS.items()):
        _add_bars(fig, labels, [parts[i] for parts in parts_ms], color, pattern, opacity, name, "2")
    for which, axis in ((0, ""), (1, "2")):
        fig.add_trace(
            go.Scatter(
                x=[str(size) for size in seen], y=[found[which] for found in seen.values()], mode="markers",
                marker={"symbol": "diamond", "size": 9, "color": "#111111", "line": {"width": 1, "color": "white"}},
                xaxis=f"x{axis}", yaxis=f"y{axis}", hovertemplate="recorded: %{y:.0f} ms<extra></extra>",
            )
        )  # fmt: skip
    fig.add_shape(
        **{"type": "line", "x0": 0, "x1": 1, "xref": "x domain", "y0": GOAL_MS, "y1": GOAL_MS, "yref": "y"},
        line={"dash": "dash", "width": 2, "color": COLORS["cost"]},
    )
    add_heading(fig, f"longest gap; dashed: {GOAL_MS} ms; ◆ recorded")
    key = color_key((color, name, glyph) for name, (color, _, glyph) in PARTS.items())
    add_heading(fig, f"first token of {request}, waiting for<br>{key}", axis="2", align="left")
    plain = {"type": "category", "fixedrange": True, "showgrid": False}
    fig.update_layout(xaxis={"anchor": "y", "showticklabels": False, **plain}, xaxis2={"anchor": "y2", **plain})
    fig.update_layout(
        xaxis2_title_text="token budget of a step",
        yaxis={"domain": [0.6, 1], "title": {"text": "ms"}, "range": [0, 200], "nticks": 5, "fixedrange": True},
        yaxis2={"domain": [0, 0.42], "title": {"text": "ms"}, "rangemode": "tozero", "nticks": 5, "fixedrange": True},
    )
    table = [
        [
            size, f"{gap:.0f}", *(f"{part:.0f}" for part in parts), f"{sum(parts):.0f}",
            *(f"{value:.0f}" for value in seen.get(size, ())),
        ]
        for size, gap, parts in zip(BUDGETS, gaps_ms, parts_ms, strict=True)
    ]  # fmt: skip
    table = [[*row, *[""] * (9 - len(row))] for row in table]
    columns = ["budget", "longest gap (ms)", *(f"{name} (ms)" for name in PARTS), "first token (ms)"]
    columns += ["recorded gap (ms)", "recorded first token (ms)", "recorded queue (ms)"]
    alt = (
        f"From budget {BUDGETS[0]} to {BUDGETS[-1]} the longest gap grows from {gaps_ms[0]:.0f} to "
        f"{gaps_ms[-1]:.0f} ms, and the first token of {request} comes after {sum(parts_ms[0]):.0f} and "
        f"{sum(parts_ms[-1]):.0f} ms."
    )
    at = BUDGETS.index(budget)
    text = _sentence(budget, request, gaps_ms[at], parts_ms[at], seen.get(budget))
    return describe(fig, alt, (columns, table)), text


def _add_bars(fig, x, y, color, pattern, opacity, name, axis):
    fig.add_trace(
        go.Bar(
            x=x, y=[round(value, 1) for value in y], xaxis=f"x{axis}", yaxis=f"y{axis}",
            marker={"color": color, "pattern": pattern, "opacity": opacity},
            hovertemplate="budget %{x}: %{y:.0f} ms, " + name + "<extra></extra>",
        )
    )  # fmt: skip


def _sentence(budget, request, gap_ms, parts_ms, found):
    under_way, queue, prefill = (f"{part:.0f}" for part in parts_ms)
    verdict = "within" if gap_ms < GOAL_MS else "past"
    text = (
        f"Budget {budget}: longest gap {gap_ms:.0f} ms, {verdict} the {GOAL_MS}. {request}'s first token comes after "
        f"{sum(parts_ms):.0f} ms: {under_way} of a step under way, {queue} in the queue, {prefill} of prefill."
    )
    if found:
        text += f" Recorded: {found[0]:.0f} ms; {found[1]:.0f} ms, of them {found[2]:.0f} in the queue."
    return text


CAPTURED = {
    **{"16 and 32": (16, 32), "16, 17 and 32": (16, 17, 32), "1, 2, 4, 8, 16, 32": (1, 2, 4, 8, 16, 32)},
    **{"1, 2, 4, then every 8": (1, 2, 4, 8, 16, 24, 32, 40), "none": ()},
}
ROWS = [1, 5, 8, 15, 16, 17, 18, 24, 31, 32, 33, 40]


def shapes_explorer(rows, captured):
    """Rows of a step, and the rows that are computed for them in the smallest captured shape that holds them."""
    require_int("rows", rows, minimum=1, maximum=max(ROWS))
    counts = list(range(1, max(ROWS) + 1))
    padding = [padded_rows(count, captured) - count for count in counts]
    fig = figure(height=310, barmode="stack", bargap=0.15)
    for name, values, color, pattern in (
        ("rows of requests", counts, COLORS["decode"], {}),
        ("padding", padding, COLORS["unused"], {**HATCH, "size": 4}),
    ):
        fig.add_trace(
            go.Bar(
                x=counts, y=values, hovertemplate="%{x} rows: %{y} " + name + "<extra></extra>",
                marker={
                    "color": color, "pattern": pattern, "opacity": [1.0 if n == rows else 0.45 for n in counts],
                },
            )
        )  # fmt: skip
    add_heading(fig, color_key(((COLORS["decode"], "rows of requests"), (COLORS["unused"], "padding", "▨"))))
    fig.update_xaxes(
        title_text="rows that the step needs", range=[0, max(ROWS) + 1], nticks=6, fixedrange=True, showgrid=False
    )
    fig.update_yaxes(title_text="rows computed", range=[0, max(ROWS) + 2], nticks=5, fixedrange=True)
    table = [[count, count + extra, extra] for count, extra in zip(counts, padding, strict=True) if count in ROWS]
    named = f"shapes {listing(captured)}" if captured else "no shape"
    alt = f"With {named} captured, steps of 1 to {counts[-1]} rows compute {sum(padding)} rows of padding in all."
    return describe(fig, alt, (["rows", "computed", "padding"], table)), _shape_sentence(rows, captured)


def _shape_sentence(rows, captured):
    computed = padded_rows(rows, captured)
    if computed not in captured:
        beyond = f"beyond the largest shape, {max(captured)}" if captured else "nothing is captured"
        return f"{plural(rows, 'row')}: {beyond}. The step runs unpadded, and its kernels are launched one by one."
    padding, runs = computed - rows, "runs" if rows == 1 else "run"
    share = f": {padding} of {computed} rows {'is' if padding == 1 else 'are'} padding" if padding else ", unpadded"
    text = f"{plural(rows, 'row')} {runs} as {computed}{share}."
    if rows > 1:
        fewer = padded_rows(rows - 1, captured)
        text += f" One row less would run as {fewer}" + (", and save nothing." if fewer == computed else ".")
    return text
