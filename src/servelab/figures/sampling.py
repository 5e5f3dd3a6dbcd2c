"""Figures of section 8.5.1: where an output token comes from under rejection sampling, and counted draws."""

import itertools
import random
from collections import Counter
from fractions import Fraction
from functools import cache

import plotly.graph_objects as go

from servelab import speculation
from servelab.checks import require_int, require_name
from servelab.figures.slots import HATCH
from servelab.figures.style import COLORS, add_heading, color_key, describe, figure

TOP = {"xref": "x domain", "yref": "y domain", "y": 1, "yanchor": "bottom", "showarrow": False, "font": {"size": 13}}
SOURCES = ("the residual", "p")


def paths_explorer(p, q, replace_from):
    """Counterpart of figures 8-30 and 8-31: which part of a draft of A or B is accepted, and what replaces the rest.

    p, q: the target's and the draft's probability of A, fractions. replace_from: of `SOURCES`; "p" is the mistake.
    """
    require_name("replace_from", replace_from, SOURCES)
    target, drafter = {"A": p, "B": 1 - p}, {"A": q, "B": 1 - q}
    source = target if replace_from == "p" else None
    output = speculation.output_distribution(target, drafter, resample_from=source)
    rate = speculation.acceptance_rate(target, drafter)
    accepted = {token: min(target[token], drafter[token]) for token in "AB"}
    replaced = {token: output[token] - accepted[token] for token in "AB"}
    segments = [
        *_in_a_row("draft", [("A", q, "A"), ("B", 1 - q, "B")]),
        *_in_a_row("verdict", [("A", accepted["A"], "A"), ("no", 1 - rate, "no"), ("B", accepted["B"], "B")]),
        *_in_a_row("output", [("A", output["A"], "A"), ("B", output["B"], "B")]),
    ]
    fig = _draw_paths(segments, p)
    rows = [
        [token, *map(str, (target[token], drafter[token], accepted[token], replaced[token], output[token]))]
        for token in "AB"
    ]
    right = output == target
    alt = (
        f"The draft is A with probability {q}. A is accepted with {accepted['A']} and B with {accepted['B']} of all "
        f"cases; replacements make the output A with {output['A']}, the target's {p}{'' if right else ' missed'}."
    )
    describe(fig, alt, (["token", "target p", "draft q", "accepted", "replaced", "output"], rows))
    lead = f"Accepted with probability {rate}."
    if rate == 1:
        return fig, f"{lead} Nothing is ever replaced, and the output is the target's, A with {p}."
    if rate == 0:
        return fig, f"{lead} Every output is a replacement; A comes out with {output['A']}."
    if right:
        return fig, f"{lead} The other {1 - rate} becomes what is missing; A comes out with {output['A']}, as p wants."
    return fig, f"{lead} The other {1 - rate} is drawn from p, and A comes out with {output['A']} instead of {p}."


def _in_a_row(row, parts):
    ends = list(itertools.accumulate(share for _, share, _ in parts))
    return [(row, end - share, share, label, kind) for end, (label, share, kind) in zip(ends, parts, strict=True)]


def _draw_paths(segments, p):
    colors = {"A": COLORS["decode"], "B": COLORS["shared"], "no": COLORS["unused"]}
    fig = figure(height=250, barmode="overlay", margin={"l": 68}, uniformtext={"minsize": 10, "mode": "hide"})
    for kind, color in colors.items():
        own = [segment for segment in segments if segment[4] == kind and segment[2]]
        rejected = kind == "no"
        fig.add_trace(
            go.Bar(
                orientation="h",
                y=[row for row, *_ in own],
                base=[float(start) for _, start, *_ in own],
                x=[float(share) for _, _, share, *_ in own],
                width=0.62,
                text=["" if rejected else f"{label} {share}" for _, _, share, label, _ in own],
                textposition="inside",
                textangle=0,
                insidetextanchor="middle",
                insidetextfont={"color": "white", "size": 12},
                marker={"color": color, "pattern": HATCH if rejected else {}},
                customdata=[str(share) for _, _, share, *_ in own],
                hovertemplate=("rejected" if rejected else kind) + ": %{customdata}<extra></extra>",
            )
        )
    # Behind the bars: it shows between them, and crosses none of their labels. Grid lines would cross it.
    fig.add_vline(x=float(p), line={"color": COLORS["cost"], "width": 3}, layer="below")
    half = Fraction(1, 2)
    text = f'<span style="color:{COLORS["cost"]}">target: A {p}</span>'
    fig.add_annotation(text=text, x=float(p), xanchor="left" if p <= half else "right", **TOP | {"xref": "x"})
    fig.add_annotation(text="▨ rejected", x=int(p < half), xanchor="right" if p < half else "left", **TOP)
    ticks = [0, 0.25, 0.5, 0.75, 1]
    fig.update_xaxes(title_text="probability", range=[0, 1], tickvals=ticks, showgrid=False, fixedrange=True)
    order = {"categoryorder": "array", "categoryarray": ["output", "verdict", "draft"]}
    fig.update_yaxes(range=[-0.5, 2.5], fixedrange=True, **order)
    return fig


TARGET = dict(zip("ABCD", map(Fraction, ("1/2", "1/4", "1/8", "1/8")), strict=True))
DRAFTERS = {
    "close to p": dict(zip("ABCD", map(Fraction, ("3/8", "3/8", "1/8", "1/8")), strict=True)),
    "far from p": dict(zip("ABCD", map(Fraction, ("1/8", "1/8", "1/4", "1/2")), strict=True)),
    "always D": {"D": Fraction(1)},
}
MOST_DRAWS = 4096


@cache
def outputs(drafter: str, replace_from: str) -> str:
    """`MOST_DRAWS` output tokens, drawn with a fixed seed; drafter: of `DRAFTERS`, replace_from: of `SOURCES`."""
    require_name("drafter", drafter, tuple(DRAFTERS))
    require_name("replace_from", replace_from, SOURCES)
    rng, drawn = random.Random(851), []
    p, q = ({token: float(share) for token, share in of.items()} for of in (TARGET, DRAFTERS[drafter]))
    for _ in range(MOST_DRAWS):
        token, accept, resample = speculation.sample(q, rng.random()), rng.random(), rng.random()
        output, accepted = speculation.verify_token(p, q, token, accept, resample)
        mistaken = replace_from == "p" and not accepted
        drawn.append(speculation.sample(p, resample) if mistaken else output)
    return "".join(drawn)


def draws_explorer(draws, drafter, replace_from):
    """Shares of the tokens that `draws` verified positions put out, against the target's, with chi-square."""
    require_int("draws", draws, minimum=1, maximum=MOST_DRAWS)
    counts = Counter(outputs(drafter, replace_from)[:draws])
    statistic = speculation.chi_square(counts, TARGET)
    limit = speculation.chi_square_limit(len(TARGET) - 1)
    shares = [counts[token] / draws for token in TARGET]
    fig = figure(height=320)
    fig.add_trace(
        go.Bar(
            x=list(TARGET),
            y=shares,
            marker={"color": COLORS["decode"]},
            text=[str(counts[token]) for token in TARGET],
            textposition="inside",
            insidetextanchor="start",
            textangle=0,
            insidetextfont={"color": "white", "size": 12},
            hovertemplate="%{x}: %{y:.3f} of the outputs<extra></extra>",
        )
    )
    fig.add_trace(
        go.Scatter(
            x=list(TARGET),
            y=[float(share) for share in TARGET.values()],
            mode="markers",
            marker={"symbol": "line-ew", "size": 44, "line": {"width": 4, "color": COLORS["cost"]}},
            hovertemplate="target: %{y}<extra></extra>",
        )
    )
    add_heading(fig, color_key(((COLORS["decode"], "counted"), (COLORS["cost"], "target p", "▬"))))
    fig.update_xaxes(title_text="output token", fixedrange=True)
    fig.update_yaxes(title_text="share", range=[0, 0.8], tickvals=[0, 0.25, 0.5, 0.75], fixedrange=True)
    rows = [
        [token, str(TARGET[token]), counts[token], f"{share:.4f}"] for token, share in zip(TARGET, shares, strict=True)
    ]
    alt = f"Of {draws} outputs, " + ", ".join(f"{row[0]} {row[3]} (target {row[1]})" for row in rows) + "."
    describe(fig, alt, (["token", "target", "count", "share"], rows))
    rate = speculation.acceptance_rate(TARGET, DRAFTERS[drafter])
    verdict = (
        "beyond chance, so hardly the target's distribution"
        if statistic > limit
        else "within chance" + (", though the rule is wrong: too few draws to tell" if replace_from == "p" else "")
    )
    return fig, (
        f"{draws} draws, accepted with probability {rate}: chi-square {statistic:.1f}, {verdict}. A right rule "
        f"exceeds {limit:.1f} about once in a thousand."
    )
