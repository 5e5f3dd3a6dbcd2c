"""Figures of the experiments that `servelab.experiments` runs on the reader's machine: measured, and predicted."""

import statistics
from collections import defaultdict
from collections.abc import Iterable

from servelab.figures.style import COLORS, describe, figure


def medians(rows: Iterable[dict], by: Iterable[str], value) -> dict[tuple, float]:
    """The median of `value(row)` for each combination of the columns `by`; rows without a value (None) are left out."""
    groups = defaultdict(list)
    for row in rows:
        number = value(row)
        if number is not None:
            groups[tuple(row[column] for column in by)].append(number)
    return {key: statistics.median(numbers) for key, numbers in groups.items()}


def measured_and_predicted(rows, x: str, series: str, value: str, scale: float = 1.0):
    """{series value: (measured {x: median}, predicted {x: median})} of the column `value`, times `scale`."""
    measured = medians(rows, (series, x), lambda row: row[value])
    predicted = medians(rows, (series, x), lambda row: row["predicted"].get(value))
    found = defaultdict(lambda: ({}, {}))
    for which, numbers in enumerate((measured, predicted)):
        for (name, position), number in numbers.items():
            found[name][which][position] = scale * number
    return dict(found)


def batch_sweep(rows: list[dict]):
    """Experiment 8-1 run here: throughput by batch, a line for each context; dashed where it is predicted."""
    lines = measured_and_predicted(rows, "batch", "context", "throughput_tok_per_s")
    colors = dict(zip(lines, ("decode", "prefill", "shared", "weights"), strict=False))
    fig = figure(height=340)
    for context, (measured, predicted) in lines.items():
        color = COLORS[colors.get(context, "unused")]
        for name, numbers, dash in (("measured", measured, "solid"), ("predicted", predicted, "dot")):
            if numbers:
                fig.add_scatter(
                    x=[str(batch) for batch in numbers], y=list(numbers.values()), mode="lines+markers",
                    line={"color": color, "dash": dash}, name=f"{context} tokens, {name}",
                    hovertemplate=f"{context} tokens, {name}, batch %{{x}}: %{{y:.0f}} tokens/s<extra></extra>",
                )  # fmt: skip
        fig.add_annotation(
            x=len(measured) - 1, y=list(measured.values())[-1], text=f"{context} tokens", showarrow=False,
            xanchor="right", yshift=14, font={"color": color},
        )  # fmt: skip
    fig.update_xaxes(title_text="batch", type="category", fixedrange=True)
    fig.update_yaxes(title_text="output tokens/s", rangemode="tozero", nticks=5, fixedrange=True)
    table = [
        [context, batch, f"{measured[batch]:.0f}", f"{predicted[batch]:.0f}" if batch in predicted else ""]
        for context, (measured, predicted) in lines.items()
        for batch in measured
    ]
    alt = "; ".join(
        f"with {context} tokens of input, {min(measured.values()):.0f} to {max(measured.values()):.0f} output tokens a "
        f"second at batch {min(measured)} to {max(measured)}"
        for context, (measured, _) in lines.items()
    )
    return describe(
        fig, f"Measured here: {alt}.", (["input (tokens)", "batch", "measured (tok/s)", "predicted (tok/s)"], table)
    )
