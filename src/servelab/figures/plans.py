"""Figures of section 8.6.3: plans in the plane of memory and time, and Amdahl's law."""

from dataclasses import replace

import plotly.graph_objects as go

from servelab import chapter_plans, planning
from servelab.checks import require_number
from servelab.figures.style import COLORS, add_heading, color_key, describe, figure
from servelab.units import GIB

POOLS_GIB = [6, 9, 12, 20]
OUTPUTS = [16, 256]
DEADLINES_S = [3, 7, 15]
PREFIXES = {"6144 of 8192 tokens": 6144, "none": 0}
DRAFTS = [1, 2, 3]
NAMES = ("A", "B", "C", "D")  # E is exercise 8-9
MEANINGS = {
    "A": "BF16, independent",
    "B": "BF16, shared prefix",
    "C": "q8_0, independent",
    "D": "B and a draft model",
}
PALE = "rgba(0, 146, 107, 0.16)"  # COLORS["shared"]


def plans(pool_gib, output_tokens, deadline_s, shared_prefix, tokens_per_round) -> list[planning.Plan]:
    """Plans A to D for 16 requests of 8192 input tokens; D yields `tokens_per_round` tokens of each request a round."""
    workload = replace(
        chapter_plans.WORKLOAD, output_tokens=output_tokens, deadline_s=deadline_s, shared_prefix=shared_prefix
    )
    configurations = chapter_plans.configurations(workload)
    configurations["D"] = replace(configurations["D"], tokens_per_round=tokens_per_round)
    power_w = chapter_plans.CARD.power_w
    return [
        planning.evaluate(configurations[name], workload, chapter_plans.MODEL, round(pool_gib * GIB), power_w)
        for name in NAMES
    ]


def plan_explorer(memory, output, deadline, prefix, drafts):
    """Counterpart of figure 8-35: what each plan needs, within `memory` (GiB) and `deadline` (s) or not.

    `output`: tokens of each request. `prefix`: tokens common to all inputs. `drafts`: tokens a round with drafts.
    """
    candidates = plans(memory, output, deadline, prefix, drafts)
    choice = planning.choose(candidates)
    fig = figure(height=380)
    top, right = 17.5, 24
    fig.add_shape(
        **{"type": "rect", "x0": 0, "x1": memory, "y0": 0, "y1": deadline, "layer": "below"},
        **{"fillcolor": PALE, "line": {"width": 0}},
    )
    dash = {"dash": "dash", "width": 2, "color": COLORS["cost"]}
    fig.add_shape(**{"type": "line", "x0": memory, "x1": memory, "y0": 0, "y1": top, "line": dash})
    fig.add_shape(**{"type": "line", "x0": 0, "x1": right, "y0": deadline, "y1": deadline, "line": dash})
    points = _points(candidates)
    for fits in (True, False):
        own = [point for point in points if point[3] == fits]
        fig.add_trace(
            go.Scatter(
                x=[x for x, *_ in own],
                y=[y for _, y, *_ in own],
                text=[f"<b>{names}</b>" for *_, names, _ in own],
                mode="markers+text",
                textposition="top center",
                textfont={"size": 15},
                marker={
                    "size": [16 if choice and choice.configuration.name in names else 10 for *_, names, _ in own],
                    "color": COLORS["shared" if fits else "cost"],
                    "symbol": "circle" if fits else "x",
                    "opacity": 1,
                },
                hovertemplate="%{text}: %{x:.2f} GiB, %{y:.2f} s<extra></extra>",
            )
        )
    key = ((COLORS["shared"], "feasible", "●"), (COLORS["cost"], "rejected", "✕"), (COLORS["cost"], "limit", "╌"))
    add_heading(fig, color_key(key))
    fig.update_xaxes(title_text="KV and auxiliary buffers (GiB)", range=[0, right], nticks=7, fixedrange=True)
    fig.update_yaxes(title_text="until all are done (s)", range=[0, top], nticks=6, fixedrange=True)
    feasible = [plan.configuration.name for plan in candidates if plan.feasible]
    what = ", ".join(feasible) if feasible else "no plan"
    alt = f"Within {memory} GiB and {deadline} s lies {what}. " + "; ".join(
        f"{plan.configuration.name} {plan.memory_bytes / GIB:.2f} GiB, {plan.total_s:.2f} s" for plan in candidates
    )
    describe(fig, alt + ".", (["plan", "GiB", "rounds", "s", "verdict", "GPU s a good answer"], _rows(candidates)))
    return fig, _sentence(candidates, choice, prefix)


def _points(candidates):
    """(GiB, s, names, feasible); plans that need the same are one point."""
    points = {}
    for plan in candidates:
        place = (round(plan.memory_bytes / GIB, 3), round(plan.total_s, 3))
        names, feasible = points.get(place, ("", plan.feasible))
        points[place] = (names + ", " * bool(names) + plan.configuration.name, feasible)
    return [(*place, names, feasible) for place, (names, feasible) in points.items()]


def _rows(candidates):
    return [
        [
            f"{plan.configuration.name}: {MEANINGS[plan.configuration.name]}",
            f"{plan.memory_bytes / GIB:.2f}",
            plan.rounds,
            f"{plan.total_s:.2f}",
            "; ".join(plan.reasons) or "feasible",
            f"{plan.gpu_s_per_good:.3f}" if plan.feasible else "-",
        ]
        for plan in candidates
    ]


def _sentence(candidates, choice, prefix):
    whys = {
        plan.configuration.name: " and ".join(
            "memory" if reason.startswith("needs") else "time" for reason in plan.reasons
        )
        for plan in candidates
        if not plan.feasible
    }
    listed = ", ".join(f"{name} by {why}" for name, why in whys.items())
    rejected = f" Rejected: {listed}." if listed else " Nothing is rejected."
    if not prefix:
        rejected += " Without a common prefix B is A."
    if choice is None:
        return "No plan is feasible." + rejected
    others = [plan for plan in candidates if plan.feasible and plan is not choice]
    than = ", ".join(f"{plan.configuration.name} {plan.total_s:.2f} s" for plan in others)
    return (
        f"Choice: {choice.configuration.name}, {choice.total_s:.2f} s" + (f" ({than})" if than else "") + ". "
        f"A good answer takes {choice.gpu_s_per_good:.3f} GPU s and at most {choice.joules_per_good:.0f} J." + rejected
    )


def amdahl_curves(fractions, largest=16, marks=()):
    """Counterpart of figure 8-36: speed-up of the task against that of decode, a curve for each share of decode.

    `fractions`: shares of the task's time, 0 to 1. `marks`: (fraction, speed-up of decode) to be marked.
    """
    require_number("largest", largest, minimum=1)
    speedups = [1 + (largest - 1) * step / 60 for step in range(61)]
    fig = figure(height=330, margin={"r": 62})
    colors = [COLORS[name] for name in ("weights", "decode", "shared")]
    rows, spoken = [], []
    for fraction, color in zip(fractions, colors, strict=False):
        curve = [planning.amdahl(fraction, speedup) for speedup in speedups]
        fig.add_trace(
            go.Scatter(
                x=speedups,
                y=curve,
                mode="lines",
                line={"width": 3, "color": color},
                hovertemplate=f"decode {fraction:.0%}: %{{x:.1f}} times gives %{{y:.2f}}<extra></extra>",
            )
        )
        fig.add_annotation(
            **{"x": largest, "y": curve[-1], "text": f"{fraction:.0%}", "showarrow": False},
            **{"xanchor": "left", "xshift": 6, "font": {"color": color}},
        )
        limit = 1 / (1 - fraction) if fraction < 1 else float("inf")
        values = [f"{planning.amdahl(fraction, speedup):.2f}" for speedup in (2, 4, largest)]
        rows.append([f"{fraction:.0%}", *values, f"{limit:.2f}"])
        spoken.append(f"{fraction:.0%} of the time: {values[-1]} at most of {limit:.2f}")
    fig.add_trace(
        go.Scatter(
            x=[speedup for _, speedup in marks],
            y=[planning.amdahl(fraction, speedup) for fraction, speedup in marks],
            text=[f"{planning.amdahl(fraction, speedup):.2f}" for fraction, speedup in marks],
            mode="markers+text",
            textposition="bottom right",
            marker={"size": 9, "color": COLORS["cost"]},
            hoverinfo="skip",
        )
    )
    add_heading(fig, "at each curve: decode's share of the time")
    fig.update_xaxes(title_text="decode is so many times as fast", range=[1, largest], nticks=7, fixedrange=True)
    fig.update_yaxes(title_text="speed-up of the task", rangemode="tozero", nticks=6, fixedrange=True)
    alt = f"Speed-up of a task when decode runs up to {largest} times as fast. Decode has " + "; ".join(spoken) + "."
    return describe(fig, alt, (["share of decode", "x 2", "x 4", f"x {largest}", "limit"], rows))
