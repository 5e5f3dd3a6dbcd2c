"""Predicted against measured: a point on the diagonal was foretold."""

import math

from servelab.experiments import shipped
from servelab.experiments.recorded import comparisons
from servelab.figures.style import COLORS, describe, figure

FIXED_MS = {"26.2 ms, fitted to 8-1": 26.22, "16.9 ms, as in 8-5": 16.883, "12.9 ms, as in 8-2": 12.936}
MEASURES = {
    **{"decode step": "decode", "prefill": "prefill", "chunk of 512": "prefill", "first token": "prefill"},
    **{"decode_step_s": "decode", "ttft_s": "prefill", "max_itl_s": "decode", "median_itl_s": "shared"},
    **{"r4_queue_s": "unused", "max_queue_s": "unused", "r3_ttft_s": "prefill", "round_s": "decode"},
    **{"first_ttft_s": "prefill", "median_ttft_s": "prefill", "agent_s": "weights"},
}


def recorded_explorer(experiment, fixed_part):
    """The recorded figures of one experiment against the cost model with `fixed_part` (ms) in each step."""
    found = [each for each in comparisons(fixed_part / 1e3) if each.experiment == experiment]
    errors = sorted(each.error for each in found)
    middle = errors[len(errors) // 2]
    text = (
        f"Experiment {experiment}, {fixed_part:.3g} ms fixed: {len(found)} figures, off by "
        f"{100 * errors[0]:+.0f} to {100 * errors[-1]:+.0f} %, in the median by {100 * middle:+.0f} %."
    )
    return against_measured([row_of(each) for each in found], text), text


def shipped_explorer(experiment, machine):
    """A run that ships with the book; `machine`: "calibrated", or "now" to allow for its slowdown at each point."""
    found = [each for each in shipped.comparisons(experiment, machine == "now") if each.measured_ms]
    errors = sorted(each.error for each in found)
    text = (
        f"{experiment}: {len(found)} times, off by {100 * errors[0]:+.0f} to {100 * errors[-1]:+.0f} %, "
        f"in the median by {100 * errors[len(errors) // 2]:+.0f} %."
    )
    return against_measured([row_of(each) for each in found], text), text


def row_of(each) -> dict:
    return {
        "quantity": each.quantity,
        "setting": each.setting,
        "predicted": each.predicted_ms,
        "measured": each.measured_ms,
    }


def against_measured(rows: list[dict], alt: str):
    """A log-log scatter of `rows` (quantity, setting, predicted and measured in ms), with the diagonal and +-25 %."""
    numbers = [row[key] for row in rows for key in ("predicted", "measured")]
    low, high = min(numbers) / 1.4, max(numbers) * 1.4
    fig = figure(height=380)
    for factor, dash in ((1.0, "solid"), (1.25, "dot"), (0.8, "dot")):
        fig.add_scatter(
            x=[low, high], y=[factor * low, factor * high], mode="lines", hoverinfo="skip",
            line={"color": COLORS["unused"], "width": 1, "dash": dash},
        )  # fmt: skip
    for quantity in dict.fromkeys(row["quantity"] for row in rows):
        chosen = [row for row in rows if row["quantity"] == quantity]
        fig.add_scatter(
            x=[row["measured"] for row in chosen], y=[row["predicted"] for row in chosen], mode="markers",
            marker={"color": COLORS[MEASURES.get(quantity, "weights")], "size": 8, "opacity": 0.8},
            customdata=[row["setting"] for row in chosen],
            hovertemplate=f"{quantity}, %{{customdata}}: predicted %{{y:.0f}}, measured %{{x:.0f}} ms<extra></extra>",
        )  # fmt: skip
    key = "   ".join(
        f'<span style="color:{COLORS[MEASURES.get(quantity, "weights")]}">●</span> {quantity}'
        for quantity in dict.fromkeys(row["quantity"] for row in rows)
    )
    fig.add_annotation(
        **{"x": 0, "y": 1, "xref": "x domain", "yref": "y domain", "xanchor": "left", "yanchor": "bottom"},
        **{"text": key, "showarrow": False, "font": {"size": 13}},
    )
    span = [math.log10(low), math.log10(high)]
    # Two ticks for each power of ten.
    ticks = [m * 10**e for e in range(math.floor(span[0]), math.ceil(span[1]) + 1) for m in (1, 3)]
    for update, title in ((fig.update_xaxes, "measured (ms)"), (fig.update_yaxes, "predicted (ms)")):
        update(title_text=title, type="log", range=span, fixedrange=True, tickvals=ticks, tickformat=",~g")
    table = [
        [
            row["quantity"], row["setting"], f"{row['predicted']:.1f}", f"{row['measured']:.1f}",
            f"{100 * (row['predicted'] / row['measured'] - 1):+.0f} %",
        ]
        for row in rows
    ]  # fmt: skip
    columns = ["quantity", "setting", "predicted (ms)", "measured (ms)", "error"]
    return describe(fig, f"{alt} Above the diagonal the prediction is too long.", (columns, table))
