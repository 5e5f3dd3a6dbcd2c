"""Figures of section 8.6.2: answers completed against answers that are right and in time (experiment 8-9)."""

from statistics import median

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from servelab import catalog, service
from servelab.checks import require_name
from servelab.figures.style import COLORS, TEMPLATE, add_heading, color_key, describe, figure

POLICIES = {"one at a time": "serial", "up to four together": "continuous", "all sent at once": "all_at_once"}
NAMES = {policy: name for name, policy in POLICIES.items()}
RATES = [1, 4, 16]
DEADLINES_S = [1, 2, 3, 4, 6, 8, 12]
COLUMNS = {"completed_req_per_s": "completed", "goodput_req_per_s": "right and within 3 s"}
FATES = {  # what becomes of an answer: colour, marker
    "good": (COLORS["shared"], "circle"),
    "late": (COLORS["cost"], "triangle-up"),
    "wrong": (COLORS["unused"], "x"),
}


def recorded(policy: str, rate: int | None) -> tuple[list[dict], list[service.Outcome], float]:
    """The 16 requests of window 1 of a condition, their outcomes, and the window in seconds."""
    rate = None if policy == "all_at_once" else rate
    condition = {"admission": policy, "arrival_rate_req_per_s": rate}
    rows = catalog.record("service-requests").where(**condition)
    window_s = catalog.record("service-windows").row(**condition, window=1)["window_s"]
    outcomes = [service.Outcome(row["planned_arrival_s"], row["finish_s"], bool(row["correct"])) for row in rows]
    return rows, outcomes, window_s


def fate(outcome: service.Outcome, deadline_s: float) -> str:
    """A wrong answer is wrong, whenever it comes."""
    if not outcome.correct:
        return "wrong"
    return "good" if outcome.is_good(deadline_s) else "late"


def goodput_explorer(policy, rate, deadline):
    """The 16 recorded requests of a condition against a deadline, and the rates that come of it at each arrival rate.

    `policy` is a value of `POLICIES`; requests that are sent all at once have no rate.
    """
    require_name("policy", policy, POLICIES.values())
    _, outcomes, window_s = recorded(policy, rate)
    fig = make_subplots(rows=2, row_heights=[0.62, 0.38], vertical_spacing=0.24)
    fig.update_layout(template=TEMPLATE, height=500, barmode="group", showlegend=False)
    fates = [fate(outcome, deadline) for outcome in outcomes]
    _add_requests(fig, outcomes, fates, deadline)
    bars = _rates(policy, deadline)
    _add_rates(fig, bars)
    counts = {name: fates.count(name) for name in FATES}
    completed = service.completion_rate(outcomes, window_s)
    good = service.goodput(outcomes, deadline, window_s)
    what = NAMES[policy] + (f", {rate}/s" if policy != "all_at_once" else "")
    rows = [
        [number, f"{outcome.finish_s - outcome.arrival_s:.2f}", name]
        for number, (outcome, name) in enumerate(zip(outcomes, fates, strict=True), start=1)
    ]
    alt = (
        f"{what.capitalize()}, deadline {deadline} s: of 16 answers {counts['good']} are right and in time, "
        f"{counts['late']} right but late, {counts['wrong']} wrong."
    )
    table = [[name, f"{rate_completed:.2f}", f"{rate_good:.2f}"] for name, rate_completed, rate_good in bars]
    describe(
        fig,
        alt,
        (["request", "after (s)", "answer"], rows),
        (["arrivals", "completed (req/s)", "good (req/s)"], table),
    )
    text = (
        f"{what.capitalize()}, deadline {deadline} s: {counts['good']} of 16 are right and in time, "
        f"{counts['late']} late, {counts['wrong']} wrong. {completed:.2f} a second are completed, "
        f"{good:.2f} are good."
    )
    return fig, text + (" All are there from the start: no arrival rate." if policy == "all_at_once" else "")


def _rates(policy, deadline):
    """(arrivals, completed a second, good a second) of window 1, for each arrival rate of the policy."""
    rows = []
    for rate in RATES if policy != "all_at_once" else [None]:
        _, outcomes, window_s = recorded(policy, rate)
        rates = (service.completion_rate(outcomes, window_s), service.goodput(outcomes, deadline, window_s))
        rows.append((f"{rate}/s" if rate else "at once", *rates))
    return rows


def _add_requests(fig, outcomes, fates, deadline):
    for name, (color, symbol) in FATES.items():
        own = [number for number, its in enumerate(fates, start=1) if its == name]
        fig.add_trace(
            go.Scatter(
                x=own,
                y=[round(outcomes[number - 1].finish_s - outcomes[number - 1].arrival_s, 2) for number in own],
                mode="markers",
                marker={"color": color, "symbol": symbol, "size": 10},
                cliponaxis=False,
                hovertemplate=f"request %{{x}}: {name}, after %{{y:.2f}} s<extra></extra>",
            )
        )
    fig.add_hline(y=deadline, line={"dash": "dash", "width": 2, "color": COLORS["cost"]}, row=1, col=1)
    glyphs = {"good": "●", "late": "▲", "wrong": "✕"}
    add_heading(fig, color_key((FATES[name][0], name, glyph) for name, glyph in glyphs.items()))
    top = 1.06 * max(deadline, *(outcome.finish_s - outcome.arrival_s for outcome in outcomes))
    fig.update_xaxes(
        title_text="request, in order of arrival", range=[0.3, 16.7], tickvals=[1, 4, 8, 12, 16], row=1, col=1
    )
    fig.update_yaxes(title_text="completed after (s)", range=[0, top], nticks=6, row=1, col=1)


def _add_rates(fig, bars):
    names = [name for name, *_ in bars]
    for index, color in ((1, COLORS["unused"]), (2, COLORS["shared"])):
        fig.add_trace(
            go.Bar(
                x=names,
                y=[round(bar[index], 3) for bar in bars],
                marker={"color": color},
                text=[f"{bar[index]:.2f}" for bar in bars],
                textposition="outside",
                cliponaxis=False,
                hovertemplate="%{x}: %{y:.2f} req/s<extra></extra>",
            ),
            row=2,
            col=1,
        )
    key = ((COLORS["unused"], "completed"), (COLORS["shared"], "good"))
    add_heading(fig, color_key(key), axis="2", yshift=6)
    fig.update_xaxes(title_text="arrivals", type="category", row=2, col=1)
    fig.update_yaxes(title_text="req/s", range=[0, 2.9], nticks=4, row=2, col=1)
    fig.update_xaxes(fixedrange=True)
    fig.update_yaxes(fixedrange=True)


def windows(column: str):
    """Counterpart of figures 8-33 and 8-34: medians (bars) and the three windows (dots) of each condition.

    `column` of the record: "completed_req_per_s" or "goodput_req_per_s". Both have the same order and axis.
    """
    require_name("column", column, COLUMNS)
    record = catalog.record("service-windows")
    conditions = [("serial", rate) for rate in RATES] + [("continuous", rate) for rate in RATES]
    conditions.append(("all_at_once", None))
    names, values = [], []
    for policy, rate in conditions:
        short = {"serial": "one", "continuous": "four", "all_at_once": "at once"}[policy]
        names.append(f"{short}, {rate}/s" if rate else short)
        values.append([row[column] for row in record.where(admission=policy, arrival_rate_req_per_s=rate)])
    color = COLORS["unused" if column == "completed_req_per_s" else "shared"]
    fig = figure(height=330, margin={"l": 80})
    medians = [median(each) for each in values]
    fig.add_trace(
        go.Bar(
            **{"orientation": "h", "y": names, "x": medians, "marker": {"color": color, "opacity": 0.6}},
            hovertemplate="%{y}: median %{x:.2f} req/s<extra></extra>",
        )
    )
    fig.add_trace(
        go.Scatter(
            x=[value for each in values for value in each],
            y=[name for name, each in zip(names, values, strict=True) for _ in each],
            mode="markers",
            marker={"color": COLORS["cost"], "size": 8, "symbol": "circle-open", "line": {"width": 2}},
            hovertemplate="%{y}: a window of %{x:.2f} req/s<extra></extra>",
        )
    )
    key = ((color, "median"), (COLORS["cost"], "one window", "○"))
    add_heading(fig, f"{COLUMNS[column]}   {color_key(key)}")
    fig.update_xaxes(title_text="req/s", range=[0, 2.6], nticks=6, fixedrange=True)
    fig.update_yaxes(autorange="reversed", fixedrange=True)
    rows = [
        [name, f"{middle:.2f}", ", ".join(f"{value:.2f}" for value in each)]
        for name, middle, each in zip(names, medians, values, strict=True)
    ]
    listed = "; ".join(f"{name} {middle}" for name, middle, _ in rows)
    alt = f"Requests a second, {COLUMNS[column]}, median of three windows: {listed}."
    return describe(fig, alt, (["condition", "median (req/s)", "windows (req/s)"], rows))


def load_curves(curves):
    """Goodput against arrival rate: `curves` is {name: [service.Load, ...]}; the knee of each has a ring."""
    fig = figure(height=330)
    colors = [COLORS[name] for name in ("shared", "cost", "decode")]
    rows, spoken = [], []
    for (name, curve), color in zip(curves.items(), colors, strict=False):
        knee = service.knee(curve)
        fig.add_trace(
            go.Scatter(
                x=[load.arrival_rate for load in curve],
                y=[round(load.goodput, 4) for load in curve],  # a fit's last digits differ between processors
                mode="lines+markers",
                marker={
                    "color": color,
                    "size": [12 if load == knee else 6 for load in curve],
                    "symbol": ["circle-open" if load == knee else "circle" for load in curve],
                    "line": {"width": 2, "color": color},
                },
                line={"color": color, "width": 2},
                hovertemplate=name + ", %{x}/s: %{y:.2f} good req/s<extra></extra>",
            )
        )
        rows += [[name, load.arrival_rate, f"{load.completed:.2f}", f"{load.goodput:.2f}"] for load in curve]
        spoken.append(
            f"{name}: goodput is highest, {knee.goodput:.2f}, at {knee.arrival_rate:g} arrivals a second and "
            f"{curve[-1].goodput:.2f} at {curve[-1].arrival_rate:g}"
        )
    add_heading(fig, color_key((color, name, "━") for name, color in zip(curves, colors, strict=False)))
    rates = [load.arrival_rate for curve in curves.values() for load in curve]
    ticks = [rate for rate in (0.25, 0.5, 1, 2, 4, 8, 16, 32) if min(rates) <= rate <= max(rates)]
    fig.update_xaxes(title_text="arrivals a second", type="log", tickvals=ticks, fixedrange=True)
    fig.update_yaxes(title_text="good req/s", rangemode="tozero", nticks=5, fixedrange=True)
    columns = ["requests", "arrivals (req/s)", "completed (req/s)", "good (req/s)"]
    return describe(fig, "; ".join(spoken) + ".", (columns, rows))
