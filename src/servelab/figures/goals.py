"""Figures of section 8.1.3: how the gaps of a batch are spread, and throughput against how long a request takes."""

from functools import cache

import plotly.graph_objects as go

from servelab import catalog, latency
from servelab.engine import Request, Trace, simulate
from servelab.figures.style import COLORS, add_heading, color_key, describe, figure

BATCHES = [1, 4, 16, 64]
PERCENTILES = [50, 90, 95, 99, 100]
MEASURES = {"ITL, every gap": "itl", "TPOT, mean of a request": "tpot"}
NAMES = {"itl": "ITL", "tpot": "TPOT"}
LINE_COLORS = {"itl": COLORS["decode"], "tpot": COLORS["shared"]}


@cache
def batch_trace(batch: int) -> Trace:
    """The conditions of experiment 8-1 on the fitted step cost: `batch` short requests arrive together.

    2048 input and 256 output tokens each; a step has at most 4096 tokens, and prompts may be cut.
    """
    requests = [Request(f"r{i}", 0, 2048, 256) for i in range(batch)]
    step_cost = catalog.step_cost("rtx-pro-6000", "qwen3-8b")
    return simulate(requests, step_cost, "chunked", max_running=batch, token_budget=4096, chunk=None)


def values(trace: Trace, measure: str) -> list[float]:
    """All gaps of all requests ("itl"), or one mean a request ("tpot"); seconds."""
    if measure == "itl":
        return [gap for request in trace.requests for gap in request.itl_s]
    return [request.tpot_s for request in trace.requests]


@cache
def _curve(batch: int, measure: str) -> list[float]:
    """Milliseconds at the percentiles 0 to 100."""
    sample = sorted(values(batch_trace(batch), measure))
    return [1e3 * latency.percentile(sample, percent) for percent in range(101)]


def goals_explorer(batch, percentile, measure):
    """Percentiles of ITL and TPOT of one batch, calculated, with the step and the mean of experiment 8-1."""
    row = catalog.record("batch-sweep").row(condition="2k_no_prefix", batch=batch)
    recorded = {"itl": row["decode_step_ms"], "tpot": row["client_itl_ms_median"]}
    fig = figure(height=360)
    for name in NAMES:
        curve = _curve(batch, name)
        chosen = name == measure
        fig.add_trace(
            go.Scatter(
                x=list(range(101)),
                y=curve,
                mode="lines",
                line={"color": LINE_COLORS[name], "width": 4 if chosen else 1.5, "shape": "hv"},
                hovertemplate="%{x} %: at most %{y:.1f} ms, " + NAMES[name] + "<extra></extra>",
            )
        )
    fig.add_trace(
        go.Scatter(
            x=[50, 50],
            y=list(recorded.values()),
            mode="markers",
            marker={"symbol": "diamond-open", "size": 11, "color": [LINE_COLORS[name] for name in recorded]},
            hovertemplate="recorded: %{y:.1f} ms<extra></extra>",
        )
    )
    value = _curve(batch, measure)[percentile]
    fig.add_trace(
        go.Scatter(
            x=[percentile],
            y=[value],
            mode="markers",
            marker={"size": 13, "color": LINE_COLORS[measure]},
            cliponaxis=False,
            hovertemplate="p%{x}: %{y:.1f} ms<extra></extra>",
        )
    )
    fig.add_annotation(
        **{"x": percentile, "y": value, "text": f"<b>{value:.1f}</b>", "showarrow": False},
        **{"yshift": 16, "xanchor": "right" if percentile > 60 else "left"},
    )
    names = color_key((LINE_COLORS[name], label, "━") for name, label in NAMES.items())
    add_heading(fig, f"{names}   ◇ recorded")
    fig.update_xaxes(title_text="percentile", range=[0, 101], nticks=6, fixedrange=True)
    fig.update_yaxes(title_text="gap (ms)", range=[0, 195], nticks=5, fixedrange=True)
    table = [[f"p{p}", *(f"{_curve(batch, name)[p]:.1f}" for name in NAMES)] for p in PERCENTILES]
    table.append(["recorded: decode step, mean of a request", *(f"{recorded[name]:.1f}" for name in NAMES)])
    alt = (
        f"Batch {batch}: ITL is {_curve(batch, 'itl')[50]:.1f} ms at the median and {_curve(batch, 'itl')[100]:.1f} ms "
        f"at most; TPOT {_curve(batch, 'tpot')[50]:.1f} and {_curve(batch, 'tpot')[100]:.1f} ms."
    )
    describe(fig, alt, (["", "ITL (ms)", "TPOT (ms)"], table))
    return fig, _sentence(batch, percentile, measure, value, row)


def _sentence(batch, percentile, measure, value, row):
    count = len(values(batch_trace(batch), measure))
    share = "All" if percentile == 100 else f"{percentile} %"
    of = f"{share} of {count:,} {'gaps' if measure == 'itl' else 'means'} are" if count > 1 else "The one mean is"
    total_s = request_s(row)
    verdict = "within" if total_s <= 7 else "past"
    return (
        f"Batch {batch}: {of} at most {value:.1f} ms. Recorded: "
        f"{row['throughput_tok_per_s_median']:,.0f} tokens/s, first token after {row['ttft_ms_median'] / 1e3:.2f} s, "
        f"all done after {total_s:.1f} s, {verdict} the 7 s."
    )


def request_s(row, output_tokens: int = 256) -> float:
    """When the whole batch of a row of `batch-sweep` was done, from its throughput."""
    return row["batch"] * output_tokens / row["throughput_tok_per_s_median"]


def tradeoff(points, deadline_s: float | None = None):
    """Throughput against time: `points` are (batch, seconds until all are done, output tokens a second)."""
    fig = figure(height=320)
    batches, seconds, rates = zip(*points, strict=True)
    fig.add_trace(
        go.Scatter(
            x=seconds,
            y=rates,
            mode="lines+markers+text",
            text=[f"{batch}" for batch in batches],
            textposition=["top left", *["middle right"] * (len(points) - 1)],
            marker={"size": 10, "color": COLORS["decode"]},
            line={"color": COLORS["decode"], "width": 2},
            cliponaxis=False,
            hovertemplate="batch %{text}: %{y:,.0f} tokens/s, done after %{x:.3g} s<extra></extra>",
        )
    )
    if deadline_s is not None:
        fig.add_shape(
            **{"type": "line", "x0": deadline_s, "x1": deadline_s, "y0": 0, "y1": 1, "yref": "y domain"},
            line={"dash": "dash", "width": 2, "color": COLORS["cost"]},
        )
        fig.add_annotation(
            **{"x": deadline_s, "y": 1, "yref": "y domain", "yanchor": "top", "xanchor": "right", "xshift": -4},
            **{"text": f"{deadline_s:g} s", "showarrow": False, "font": {"size": 13}},
        )
    add_heading(fig, "the number at a point is the batch")
    fig.update_xaxes(title_text="time until all are done (s)", range=[0, 1.08 * max(seconds)], nticks=6)
    fig.update_yaxes(title_text="output tokens/s", range=[0, 1.15 * max(rates)], nticks=5)
    fig.update_xaxes(fixedrange=True)
    fig.update_yaxes(fixedrange=True)
    rows = [[batch, f"{second:.3g}", f"{rate:,.0f}"] for batch, second, rate in points]
    alt = (
        f"From batch {batches[0]} to {batches[-1]}, output grows from {rates[0]:,.0f} to {rates[-1]:,.0f} tokens a "
        f"second, and the time until all are done from {seconds[0]:.3g} to {seconds[-1]:.3g} s."
    )
    return describe(fig, alt, (["batch", "seconds until all are done", "output tokens/s"], rows))
