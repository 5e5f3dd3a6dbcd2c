"""Figures of section 8.1.1: one request's time line against its deadline."""

from dataclasses import dataclass

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from servelab import catalog, latency
from servelab.figures.slots import HATCH, plural
from servelab.figures.style import COLORS, TEMPLATE, add_heading, color_key, describe

DEADLINE_S = 7.0
SHORT = 2048  # input tokens of a short request, the one that experiment 8-1 ran alone
QUEUES = [0, 0.1, 0.2, 0.5, 1, 2]
PROMPTS = [512, 2048, 8192]
OUTPUTS = [1, 128, 256, 512]
INSERTED = [0, 1, 2, 4]


@dataclass(frozen=True)
class Life:
    """One request's times as its client sees them, in seconds."""

    queue_s: float
    prefill_s: float
    gaps_s: tuple[float, ...]  # before each output token but the first
    inserted_s: float  # what one prefill in between adds to a gap
    interrupted: tuple[int, ...]  # which gaps hold one

    @property
    def ttft_s(self) -> float:
        return self.queue_s + self.prefill_s

    @property
    def total_s(self) -> float:
        return latency.request_time(self.ttft_s, self.gaps_s)


def prefill_s(prompt: int) -> float:
    """A prompt alone, until the client has its first token: 96 ms as experiment 8-1 saw it with 2048 tokens.

    Other prompts add or save what the fitted step cost says. The medians are rounded to what they are worth.
    """
    seen_ms = round(catalog.record("batch-sweep").row(condition="2k_no_prefix", batch=1)["ttft_ms_median"])
    step = catalog.step_cost("rtx-pro-6000", "qwen3-8b")
    return seen_ms / 1e3 + step.seconds([(prompt, 0)]) - step.seconds([(SHORT, 0)])


def gap_s(prompt: int) -> float:
    """The gap between two tokens at the client, alone: 26.5 ms in experiment 8-1, and what more context costs."""
    seen_ms = round(catalog.record("batch-sweep").row(condition="2k_no_prefix", batch=1)["client_itl_ms_median"], 1)
    step = catalog.step_cost("rtx-pro-6000", "qwen3-8b")
    return seen_ms / 1e3 + step.seconds([(1, prompt)]) - step.seconds([(1, SHORT)])


def life(queue_s: float, prompt: int, output: int, inserted: int = 0) -> Life:
    """A request that runs alone but for `inserted` prefills of short requests, each a step of its own between two
    of its tokens, spread evenly. Without a gap there is nothing to insert them in, and they are left out."""
    gaps = [gap_s(prompt)] * (output - 1)
    inserted = min(inserted, len(gaps))
    interrupted = tuple((i + 1) * len(gaps) // (inserted + 1) for i in range(inserted))
    for position in interrupted:
        gaps[position] += prefill_s(SHORT)
    return Life(queue_s, prefill_s(prompt), tuple(gaps), prefill_s(SHORT), interrupted)


def life_explorer(queue, prompt, output, inserted):
    """Counterpart of figure 8-2: queue, prefill and decode on one time line against 7 s, and the gap before each token.

    Prefills of others that come in between have a row of their own.
    """
    story = life(queue, prompt, output, inserted)
    fig = make_subplots(rows=2, row_heights=[0.55, 0.45], vertical_spacing=0.26)
    fig.update_layout(template=TEMPLATE, height=500, barmode="overlay")
    _add_time_line(fig, story)
    _add_gaps(fig, story, output)
    rows = [["in the queue", f"{story.queue_s:.3f}"], ["prefill", f"{story.prefill_s:.3f}"]]
    rows += [[f"{len(story.gaps_s)} gaps", f"{sum(story.gaps_s):.3f}"], ["in all", f"{story.total_s:.3f}"]]
    longest_ms = 1e3 * max(story.gaps_s, default=0)
    alt = (
        f"A line from 0 to {story.total_s:.2f} s, with 7 s marked: {story.queue_s:g} s of waiting, "
        f"{story.prefill_s:.3f} s of prefill, {plural(len(story.gaps_s), 'gap')} of at most {longest_ms:.1f} ms."
    )
    describe(fig, alt, (["part", "seconds"], rows))
    return fig, _sentence(story, output, inserted)


def _sentence(story: Life, output: int, inserted: int) -> str:
    left = DEADLINE_S - story.total_s
    verdict = f"in time, {left:.2f} s to spare" if left >= 0 else f"{-left:.2f} s too late"
    if output == 1:
        return f"The only token after {story.ttft_s:.3f} s: {verdict}. There is no gap, and nothing to interrupt."
    text = f"First token after {story.ttft_s:.3f} s, last after {story.total_s:.2f} s: {verdict}."
    gap_ms = 1e3 * story.gaps_s[0]
    if inserted:
        return f"{text} {plural(inserted, 'gap')} of {1e3 * max(story.gaps_s):.1f} ms, the others of {gap_ms:.1f} ms."
    return f"{text} {plural(output - 1, 'gap')} of {gap_ms:.1f} ms."


def _add_time_line(fig, story: Life):
    ends = [story.ttft_s + sum(story.gaps_s[: position + 1]) for position in story.interrupted]
    # Another's prefill runs in the first part of a gap, then this request's own step follows.
    others = [(end - story.gaps_s[0] - story.inserted_s, story.inserted_s) for end in ends]
    starts = [story.ttft_s, *(start + length for start, length in others)]
    stops = [*(start for start, _ in others), story.total_s]
    own = [(start, stop - start) for start, stop in zip(starts, stops, strict=True)] if story.gaps_s else []
    parts = [
        ("waiting", "yours", [(0, story.queue_s)], "unused"),
        ("prefill", "yours", [(story.queue_s, story.prefill_s)], "prefill"),
        ("decode", "yours", own, "decode"),
        ("another's prefill", "others", others, "prefill"),
    ]
    for name, row, spans, color in parts:
        fig.add_trace(
            go.Bar(
                orientation="h",
                y=[row] * len(spans),
                base=[start for start, _ in spans],
                x=[length for _, length in spans],
                width=0.5,
                marker={"color": COLORS[color], "pattern": HATCH if name == "waiting" else {}},
                hovertemplate=name + ": %{x:.3f} s<extra></extra>",
            ),
            row=1,
            col=1,
        )
    tokens = [story.ttft_s, story.total_s] if story.gaps_s else [story.ttft_s]
    fig.add_trace(
        go.Scatter(
            x=tokens,
            y=["yours"] * len(tokens),
            mode="markers",
            marker={"size": 11, "color": COLORS["shared"], "symbol": "diamond", "line": {"width": 1, "color": "white"}},
            cliponaxis=False,
            hovertemplate="token at %{x:.3f} s<extra></extra>",
        ),
        row=1,
        col=1,
    )
    end = max(8.0, 1.04 * story.total_s)
    late = story.total_s > DEADLINE_S
    fig.add_shape(
        **{"type": "line", "x0": DEADLINE_S, "x1": DEADLINE_S, "y0": 0, "y1": 1, "xref": "x", "yref": "y domain"},
        line={"dash": "dash", "width": 2, "color": COLORS["cost"] if late else COLORS["free"]},
    )
    labels = [(story.ttft_s, f"first {story.ttft_s:.3f} s", "left", -32)]  # below the bar, the last one above it
    if story.gaps_s:
        labels.append((story.total_s, f"last {story.total_s:.2f} s", "right", 32))
    for x, text, anchor, shift in labels:
        fig.add_annotation(
            **{"x": x, "y": 0, "xref": "x", "yref": "y", "yshift": shift, "xanchor": anchor, "showarrow": False},
            **{"text": f"<b>{text}</b>", "font": {"size": 13}},
        )
    fig.add_annotation(
        **{"x": DEADLINE_S, "y": 1, "xref": "x", "yref": "y domain", "yanchor": "top", "showarrow": False},
        **{"text": "7 s", "font": {"size": 13}, "xanchor": "left", "xshift": 2},
    )
    kinds = (("unused", "waiting", "▨"), ("prefill", "prefill"), ("decode", "decode"))
    add_heading(fig, color_key((COLORS[color], *rest) for color, *rest in kinds))
    fig.update_xaxes(title_text="time from arrival (s)", range=[0, end], nticks=6, fixedrange=True, row=1, col=1)
    fig.update_yaxes(
        **{"categoryarray": ["yours", "others"], "categoryorder": "array", "range": [-0.85, 1.75]},
        **{"fixedrange": True, "showgrid": False, "tickvals": ["yours", "others"], "row": 1, "col": 1},
    )


def _add_gaps(fig, story: Life, output: int):
    """The gap before each token, as a line through its corners only: it is flat but for the interruptions."""
    corners = {0, len(story.gaps_s) - 1} if story.gaps_s else set()
    for position in story.interrupted:
        corners |= {max(0, position - 1), position, min(position + 1, len(story.gaps_s) - 1)}
    corners = sorted(corners)
    fig.add_trace(
        go.Scatter(
            x=[position + 2 for position in corners],  # the first gap is the one before token 2
            y=[1e3 * story.gaps_s[position] for position in corners],
            mode="lines",
            line={"color": COLORS["decode"], "width": 2},
            hovertemplate="token %{x}: %{y:.1f} ms<extra></extra>",
        ),
        row=2,
        col=1,
    )
    add_heading(fig, "gap before each output token", axis="2")
    fig.update_xaxes(title_text="output token", range=[0, max(output, 2) + 3], nticks=6, fixedrange=True, row=2, col=1)
    fig.update_yaxes(title_text="gap (ms)", range=[0, 140], nticks=5, fixedrange=True, row=2, col=1)
