"""Drawing a `Trace`: who computed when, one row a request (sections 8.1.1 and 8.2.2 to 8.2.4), and who sat where."""

from typing import NamedTuple

import plotly.graph_objects as go

from servelab.engine import Trace
from servelab.figures.slots import HATCH, plural
from servelab.figures.style import COLORS, add_heading, color_key, describe, figure

LABELS = {"waiting": "waiting", "prefill": "prefill", "decode": "decode"}
FILLS = {"waiting": COLORS["unused"], "prefill": COLORS["prefill"], "decode": COLORS["decode"]}
MOST_STEPS = 80  # beyond this a run of decodes is one bar
BAR_HEIGHT = 0.56


class Bar(NamedTuple):
    """A stretch of time in which a request waited, or was in steps of one kind."""

    request: int  # its index in the trace
    kind: str  # "waiting", "prefill" or "decode"
    start_s: float
    end_s: float
    num_tokens: int


def bars(trace: Trace) -> list[Bar]:
    """All bars of a trace: one a request and step; in long traces one for a run of decodes.

    Only the wait before the first step is drawn; a request that was preempted leaves a hole.
    """
    index = {request.id: i for i, request in enumerate(trace.requests)}
    drawn = [
        Bar(index[request.id], "waiting", request.arrival_s, request.admitted_s, 0)
        for request in trace.requests
        if request.admitted_s is not None and request.admitted_s > request.arrival_s
    ]
    last: dict[int, int] = {}  # request: position of its last bar
    for step in trace.steps:
        for row in step.rows:
            bar = Bar(index[row.request_id], row.kind, step.start_s, step.end_s, row.num_tokens)
            before = last.get(bar.request)
            if len(trace.steps) > MOST_STEPS and before is not None and _continues(drawn[before], bar):
                drawn[before] = drawn[before]._replace(
                    end_s=bar.end_s, num_tokens=drawn[before].num_tokens + bar.num_tokens
                )
            else:
                last[bar.request] = len(drawn)
                drawn.append(bar)
    return drawn


def _continues(before: Bar, bar: Bar) -> bool:
    return before.kind == bar.kind == "decode" and before.end_s == bar.start_s


def timeline(trace: Trace, end_s: float | None = None) -> go.Figure:
    """Counterpart of figures 8-5, 8-6 and 8-7: each request's waiting, prefill and decode, as wide as its steps.

    Triangles are arrivals; the longest gap between two tokens is marked. `end_s` fixes the time axis, so that traces
    can be compared.
    """
    end_s = end_s or trace.total_s
    scale, unit = (1e3, "ms") if end_s < 2 else (1, "s")
    count = len(trace.requests)
    fig = figure(height=120 + 46 * count, barmode="overlay", uniformtext={"minsize": 10, "mode": "hide"})
    drawn = bars(trace)
    for kind in LABELS:
        _add_bars(fig, [bar for bar in drawn if bar.kind == kind], kind, trace, end_s, scale, unit)
    fig.add_trace(
        go.Scatter(
            x=[scale * request.arrival_s for request in trace.requests],
            y=[count - 1 - i - BAR_HEIGHT / 2 - 0.1 for i in range(count)],
            mode="markers",
            marker={"symbol": "triangle-up", "size": 9, "color": COLORS["free"]},
            cliponaxis=False,
            hovertemplate="arrival at %{x:.4g} " + unit + "<extra></extra>",
        )
    )
    _mark_longest_gap(fig, trace, scale, end_s)
    kinds = [kind for kind in LABELS if any(bar.kind == kind for bar in drawn)]
    names = color_key((FILLS[kind], LABELS[kind], "▨" if kind == "waiting" else "■") for kind in kinds)
    add_heading(fig, f"{names}   ▲ arrival")
    fig.update_xaxes(title_text=f"time ({unit})", range=[0, 1.01 * scale * end_s], nticks=6, fixedrange=True)
    fig.update_yaxes(
        tickvals=[count - 1 - i for i in range(count)],
        ticktext=[request.id for request in trace.requests],
        **{"range": [-0.6, count - 0.3], "showgrid": False, "fixedrange": True},
    )
    return describe(fig, _alt(trace), request_table(trace))


def _add_bars(fig, drawn, kind, trace, end_s, scale, unit):
    gap = 0.0012 * end_s  # parts the steps, where a border would need the page's colour
    starts = [bar.start_s + min(gap, 0.1 * (bar.end_s - bar.start_s)) for bar in drawn]
    fig.add_trace(
        go.Bar(
            orientation="h",
            width=BAR_HEIGHT,
            y=[len(trace.requests) - 1 - bar.request for bar in drawn],
            base=[scale * start for start in starts],
            x=[
                scale * max(0.001 * end_s, bar.end_s - start - (start - bar.start_s))
                for bar, start in zip(drawn, starts, strict=True)
            ],
            text=[f"{bar.num_tokens}" if kind == "prefill" else "" for bar in drawn],
            textposition="inside",
            textangle=0,
            insidetextanchor="middle",
            insidetextfont={"color": "white", "size": 11},
            marker={"color": FILLS[kind], "pattern": HATCH if kind == "waiting" else {}},
            customdata=[
                [trace.requests[bar.request].id, plural(bar.num_tokens, "token"), scale * (bar.end_s - bar.start_s)]
                for bar in drawn
            ],
            hovertemplate="%{customdata[0]}: "
            + LABELS[kind]
            + ("" if kind == "waiting" else ", %{customdata[1]}")
            + ", %{customdata[2]:.4g} "
            + unit
            + "<extra></extra>",
        )
    )


def longest_gap(trace: Trace) -> tuple[str, float, float] | None:
    """(request id, time of the token before, time of the token after) of the longest gap; `None` without one."""
    gaps = [
        (later - earlier, request.id, earlier, later)
        for request in trace.requests
        for earlier, later in zip(request.token_s, request.token_s[1:], strict=False)
    ]
    return max(gaps, key=lambda gap: gap[0])[1:] if gaps else None


def _mark_longest_gap(fig, trace, scale, end_s):
    gap = longest_gap(trace)
    if gap is None:
        return
    request_id, earlier, later = gap
    row = len(trace.requests) - 1 - [request.id for request in trace.requests].index(request_id)
    y = row + BAR_HEIGHT / 2 + 0.09
    fig.add_shape(
        type="line", x0=scale * earlier, x1=scale * later, y0=y, y1=y, line={"width": 3, "color": COLORS["cost"]}
    )
    at_right = earlier + later > end_s
    fig.add_annotation(
        **{"x": scale * (later if at_right else earlier), "y": y, "yshift": 9, "showarrow": False},
        **{"text": f"longest gap {1e3 * (later - earlier):.0f} ms", "xanchor": "right" if at_right else "left"},
        font={"size": 12},
    )


def request_table(trace: Trace):
    """(columns, rows) of what each request waited for, in milliseconds."""
    columns = ["request", "arrival (ms)", "first step (ms)", "first token (ms)", "last token (ms)", "longest gap (ms)"]
    rows = [
        [
            request.id,
            *(
                "-" if seconds is None else f"{1e3 * seconds:.1f}"
                for seconds in (
                    request.arrival_s,
                    request.admitted_s,
                    request.first_token_s,
                    request.finish_s,
                    request.max_itl_s,
                )
            ),
        ]
        for request in trace.requests
    ]
    return columns, rows


def _alt(trace: Trace) -> str:
    gap = longest_gap(trace)
    longest = f" The longest gap between two tokens is {1e3 * (gap[2] - gap[1]):.0f} ms, of {gap[0]}." if gap else ""
    return (
        f"{plural(len(trace.requests), 'request')} in {plural(len(trace.steps), 'step')} of policy "
        f"{trace.config['policy']}; the last one ends at {1e3 * trace.total_s:.0f} ms.{longest}"
    )


def places(trace: Trace) -> list[dict[int, str]]:
    """For each step {place: request id}: a request keeps its place until it leaves; newcomers take the lowest free."""
    seated: dict[str, int] = {}
    by_step = []
    for step in trace.steps:
        present = [row.request_id for row in step.rows]
        seated = {request_id: place for request_id, place in seated.items() if request_id in present}
        for request_id in present:
            if request_id not in seated:
                seated[request_id] = next(i for i in range(len(present) + 1) if i not in seated.values())
        by_step.append({place: request_id for request_id, place in seated.items()})
    return by_step


def places_by_step(trace: Trace) -> go.Figure:
    """Counterpart of figure 8-1: which request sits in which place of the batch in each step, and what it computes."""
    seats = places(trace)
    num_places = 1 + max(max(by_place) for by_place in seats)
    fig = figure(height=110 + 60 * num_places, barmode="overlay")
    rows = {(step.index, row.request_id): row for step in trace.steps for row in step.rows}
    cells = [
        (step, place, rows[step, request_id])
        for step, by_place in enumerate(seats)
        for place, request_id in by_place.items()
    ]
    for kind in ("prefill", "decode"):
        own = [cell for cell in cells if cell[2].kind == kind]
        fig.add_trace(
            go.Bar(
                x=[step + 1 for step, _, _ in own],
                base=[num_places - 1 - place - 0.4 for _, place, _ in own],
                y=[0.8] * len(own),
                width=0.92,
                text=[f"{row.request_id}<br>{row.num_tokens}" for _, _, row in own],
                textposition="inside",
                textangle=0,
                insidetextanchor="middle",
                insidetextfont={"color": "white", "size": 12},
                marker={"color": COLORS[kind]},
                hovertemplate="step %{x}: %{text} tokens, " + kind + "<extra></extra>",
            )
        )
    names = color_key((COLORS[kind], kind) for kind in ("prefill", "decode"))
    add_heading(fig, f"request and new tokens   {names}")
    fig.update_xaxes(title_text="step", range=[0.4, len(seats) + 0.6], dtick=1, showgrid=False, fixedrange=True)
    fig.update_yaxes(
        **{"title_text": "place", "tickvals": list(range(num_places)), "showgrid": False, "fixedrange": True},
        **{"ticktext": [str(num_places - i) for i in range(num_places)], "range": [-0.5, num_places - 0.45]},
    )
    by_step = [[by_place.get(place, "empty") for place in range(num_places)] for by_place in seats]
    spoken = "; ".join(f"step {step}: {', '.join(names)}" for step, names in enumerate(by_step, start=1))
    columns = ["step", *(f"place {place + 1}" for place in range(num_places))]
    return describe(fig, f"Who sits in each place. {spoken}.", (columns, [[i, *n] for i, n in enumerate(by_step, 1)]))
