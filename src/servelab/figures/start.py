"""The figure of the landing page: the running case, and what each mechanism makes of its memory and time."""

from servelab import chapter_plans, planning
from servelab.figures.style import COLORS, describe, figure
from servelab.units import GIB

POOL_GIB = 12
MEASURES = {
    "nothing": "A",
    "keep the common 6,144 tokens once": "B",
    "halve each value of KV (q8_0)": "C",
    "common tokens once, and drafts by a small model": "D",
    "common tokens once, and drafts looked up in the text": "E",
}


def plan(name: str) -> planning.Plan:
    """16 requests of 8192 input and 256 output tokens on the chapter's card, with configuration `name`."""
    configuration, power_w = chapter_plans.configurations()[name], chapter_plans.CARD.power_w
    return planning.evaluate(configuration, chapter_plans.WORKLOAD, chapter_plans.MODEL, POOL_GIB * GIB, power_w)


def case_explorer(measure):
    """Memory and time of the running case under one configuration, each against its limit."""
    found, deadline_s = plan(measure), chapter_plans.WORKLOAD.deadline_s
    gib = found.memory_bytes / GIB
    shares = {
        f"memory: {gib:.1f} GiB": gib / POOL_GIB,
        f"time: {found.total_s:.1f} s": found.total_s / deadline_s,
    }
    fig = figure(height=210, margin={"l": 12, "r": 12, "t": 12, "b": 44})
    fig.add_bar(
        x=[100 * share for share in shares.values()],
        y=[0, 1],
        orientation="h",
        width=0.42,
        marker={"color": [COLORS["shared" if share <= 1 else "cost"] for share in shares.values()]},
        hovertemplate="%{x:.0f} % of the limit<extra></extra>",
    )
    for place, text in enumerate(shares):
        fig.add_annotation(x=0, y=place - 0.34, text=text, showarrow=False, xanchor="left", yanchor="middle")
    fig.add_vline(x=100, line={"color": COLORS["unused"], "dash": "dash", "width": 2})
    fig.update_xaxes(title_text="% of the limit", range=[0, 220], tickvals=[0, 50, 100, 150, 200], fixedrange=True)
    fig.update_yaxes(range=[1.45, -0.6], visible=False, fixedrange=True)
    faults = [word for word, share in zip(("does not fit", "is too late"), shares.values(), strict=True) if share > 1]
    verdict = f"It {' and '.join(faults)}." if faults else "It fits, and is in time."
    text = f"{gib:.1f} of {POOL_GIB} GiB, {found.total_s:.1f} of {deadline_s:g} s. {verdict}"
    rows = [
        ["KV and buffers (GiB)", f"{gib:.2f}", POOL_GIB],
        ["until all are done (s)", f"{found.total_s:.2f}", deadline_s],
    ]
    return describe(fig, f"Two bars against a limit at 100 %: {text}", (["what", "needed", "limit"], rows)), text
