"""Predicted against measured: a point on the diagonal was foretold."""

import math
from dataclasses import replace
from statistics import median

from servelab.experiments import find, shipped
from servelab.experiments.recorded import Comparison, comparisons
from servelab.experiments.run import rows_of
from servelab.figures.experiments import batched
from servelab.figures.style import COLORS, add_heading, color_key, describe, figure

FIXED_MS = {"26.2 ms, fitted to 8-1": 26.22, "16.9 ms, as in 8-5": 16.883, "12.9 ms, as in 8-2": 12.936}
# What reports call a time: as the figures call it.
NAMES = {
    **{"decode_step_s": "decode step", "ttft_s": "first token", "total_s": "whole run", "round_s": "round"},
    **{"max_itl_s": "longest gap", "median_itl_s": "median gap", "window_s": "window"},
    **{"r4_queue_s": "queue of r4", "max_queue_s": "longest queue", "r3_ttft_s": "first token of r3"},
    **{"first_ttft_s": "first token of r0", "median_ttft_s": "median first token", "agent_s": "all first tokens"},
}
MEASURES = {
    **{"decode step": "decode", "prefill": "prefill", "chunk of 512": "prefill", "first token": "prefill"},
    **{"longest gap": "decode", "median gap": "shared", "round": "decode"},
    **{"queue of r4": "unused", "longest queue": "unused", "first token of r3": "prefill"},
    **{"first token of r0": "prefill", "median first token": "prefill"},
}
SHORT = 0.1  # of its prediction: a measured time below that is off by so many ms, not by thousands of per cent


def recorded_explorer(experiment, fixed_part):
    """The recorded figures of one experiment against the cost model with `fixed_part` (ms) in each step."""
    found = [each for each in comparisons(fixed_part / 1e3) if each.experiment == experiment]
    text = f"Experiment {experiment}, {fixed_part:.3g} ms fixed: {len(found)} figures, {_spread(found)}"
    return against_measured(found, text), text


def shipped_explorer(experiment, machine):
    """A run that ships with the book; `machine`: "calibrated", or "now" to allow for its slowdown at each point."""
    found = [each for each in shipped.comparisons(experiment, machine == "now") if each.measured_ms]
    found = [replace(each, quantity=NAMES[each.quantity]) for each in found]
    text = f"{label(experiment)}: {len(found)} measured times, {_spread(found)}"
    return against_measured(found, text), text


def runs_explorer(experiment):
    """What a run that ships with the book measured, as `python -m servelab run` draws it."""
    report = shipped.report(experiment)
    fig = find(experiment).figure(rows_of(report))
    fig.update_layout(height=380)
    return fig, f"{report['question']} {len(report['rows'])} points, {report['machine']['date']}."


def label(experiment: str) -> str:
    """The name of an experiment in words, for a control."""
    return {"kv-precision": "KV precision"}.get(experiment, experiment.replace("-", " "))


def _is_short(each: Comparison) -> bool:
    return each.measured_ms < SHORT * each.predicted_ms


def _error(each: Comparison) -> str:
    """A percentage, or milliseconds where next to nothing was measured."""
    if _is_short(each):
        return f"{each.predicted_ms - each.measured_ms:+.0f} ms"
    return f"{100 * each.error:+.0f} %"


def _spread(found: list[Comparison]) -> str:
    errors = sorted(each.error for each in found if not _is_short(each))
    short = sorted((each for each in found if _is_short(each)), key=lambda each: each.predicted_ms - each.measured_ms)
    parts = []
    if errors:  # a run that was stopped early may have short ones alone
        middle = median(each.error for each in found)
        parts.append(
            f"off by {100 * errors[0]:+.0f} to {100 * errors[-1]:+.0f} %, in the median by {100 * middle:+.0f} %"
        )
    if len(short) == 1:
        parts.append(f"one, measured below a tenth of its prediction, by {_error(short[0])}")
    elif short:
        parts.append(f"{len(short)}, measured below a tenth of their predictions, by up to {_error(short[-1])}")
    return f"{'; '.join(parts)}."


def against_measured(found: list[Comparison], alt: str):
    """A log-log scatter of `found`, with the diagonal and a factor of 1.25 to both sides of it."""
    numbers = [ms for each in found for ms in (each.predicted_ms, each.measured_ms)]
    low, high = min(numbers) / 1.4, max(numbers) * 1.4
    fig = figure(height=380)
    for factor, dash in ((1.0, "solid"), (1.25, "dot"), (0.8, "dot")):
        fig.add_scatter(
            x=[low, high], y=[factor * low, factor * high], mode="lines", hoverinfo="skip",
            line={"color": COLORS["unused"], "width": 1, "dash": dash},
        )  # fmt: skip
    colors = {each.quantity: COLORS[MEASURES.get(each.quantity, "weights")] for each in found}
    for quantity, color in colors.items():
        chosen = [each for each in found if each.quantity == quantity]
        fig.add_scatter(
            x=[each.measured_ms for each in chosen], y=[each.predicted_ms for each in chosen], mode="markers",
            marker={"color": color, "size": 8, "opacity": 0.8},
            customdata=[each.setting for each in chosen],
            hovertemplate=f"{quantity}, %{{customdata}}: predicted %{{y:.0f}}, measured %{{x:.0f}} ms<extra></extra>",
        )  # fmt: skip
    entries = [(color, quantity, "●") for quantity, color in colors.items()]
    key = [color_key(three) for three in batched(entries, 3)]  # more than three names a line do not fit a phone
    add_heading(fig, "<br>".join(key), align="left")
    fig.update_layout(margin={"t": 28 + 18 * len(key)})
    span = [math.log10(low), math.log10(high)]
    # Two ticks for each power of ten.
    ticks = [m * 10**e for e in range(math.floor(span[0]), math.ceil(span[1]) + 1) for m in (1, 3)]
    for update, title in ((fig.update_xaxes, "measured (ms)"), (fig.update_yaxes, "predicted (ms)")):
        update(title_text=title, type="log", range=span, fixedrange=True, tickvals=ticks, tickformat=",~g")
    table = [
        [
            each.quantity, each.setting, f"{each.predicted_ms:.1f}", f"{each.measured_ms:.1f}",
            _error(each),
        ]
        for each in found
    ]  # fmt: skip
    columns = ["quantity", "setting", "predicted (ms)", "measured (ms)", "error"]
    return describe(fig, f"{alt} Above the diagonal the prediction is too long.", (columns, table))
