"""Figures of section 8.2.1: bytes read per output token against batch, and the recorded batch sweep."""

import plotly.graph_objects as go

from servelab import batching, memory
from servelab.figures.style import COLORS, add_heading, color_key, describe, figure
from servelab.units import GIB

BATCHES = [1, 2, 4, 8, 16, 32, 64, 128]


def reads_explorer(model, context, weights, batch):
    """Counterpart of figures 8-3 and 8-4: what one output token reads from HBM, by batch, and where KV overtakes."""
    in_rom = weights == "rom"
    weight_gib = [0.0 if in_rom else batching.weight_read_bytes(model, size) / size / GIB for size in BATCHES]
    kv_gib = context * memory.kv_bytes_per_token(model) / GIB
    total = [share + kv_gib for share in weight_gib]
    fig = figure(height=380)
    for values, name, color in ((weight_gib, "weights", "weights"), ([kv_gib] * len(BATCHES), "KV", "kv")):
        fig.add_trace(
            go.Bar(
                x=[str(size) for size in BATCHES],
                y=values,
                marker={"color": COLORS[color], "opacity": [1.0 if size == batch else 0.55 for size in BATCHES]},
                hovertemplate="batch %{x}: %{y:.3g} GiB of " + name + "<extra></extra>",
            )
        )
    parts = ((COLORS["weights"], "weights, shared"), (COLORS["kv"], "KV of the request itself"))
    add_heading(fig, color_key(parts))
    at = BATCHES.index(batch)
    fig.add_annotation(x=at, y=total[at], text=f"<b>{total[at]:.3g}</b>", yshift=11, showarrow=False)
    fig.update_layout(barmode="stack")
    fig.update_xaxes(title_text="batch (requests in a decode step)", type="category", fixedrange=True)
    fig.update_yaxes(title_text="GiB read per output token", rangemode="tozero", nticks=5, fixedrange=True)
    crossing = batching.crossover_batch(model, context)
    rows = [
        [size, f"{w:.3g}", f"{kv_gib:.3g}", f"{t:.3g}"] for size, w, t in zip(BATCHES, weight_gib, total, strict=True)
    ]
    alt = (
        f"{model.name}, {context} tokens of context: reads per output token fall from {total[0]:.3g} GiB at batch 1 to "
        f"{total[-1]:.3g} GiB at batch {BATCHES[-1]}; {kv_gib:.3g} GiB of it are KV at any batch."
    )
    describe(fig, alt, (["batch", "GiB of weights", "GiB of KV", "GiB in all"], rows))
    return fig, _reads_sentence(batch, weight_gib[at], kv_gib, crossing, in_rom)


def _reads_sentence(batch, weight_gib, kv_gib, crossing, in_rom):
    text = f"Batch {batch}: an output token reads {weight_gib:.3g} GiB of weights and {kv_gib:.3g} GiB of KV from HBM."
    if in_rom:
        return f"{text} With the weights in a store of their own, a larger batch saves no reads."
    if batch >= crossing:
        return f"{text} KV is the larger part from batch {crossing} on: more requests save little now."
    return f"{text} KV becomes the larger part at batch {crossing}."


def batch_sweep(rows, predicted_ms):
    """The recorded decode step by batch (`catalog.record("batch-sweep")`), and `predicted_ms` for the same batches."""
    fig = figure(height=300)
    batches = [str(row["batch"]) for row in rows]
    lines = (
        ("measured step", [row["decode_step_ms"] for row in rows], "decode"),
        ("reads at full bandwidth", predicted_ms, "weights"),
    )
    _add_lines(fig, batches, lines, "batch %{x}: %{y:.2f} ms")
    fig.update_xaxes(title_text="batch", type="category", fixedrange=True)
    fig.update_yaxes(title_text="decode step (ms)", rangemode="tozero", nticks=5, fixedrange=True)
    table = [
        [row["batch"], f"{row['decode_step_ms']:.2f}", f"{predicted:.2f}", f"{row['throughput_tok_per_s_median']:.0f}"]
        for row, predicted in zip(rows, predicted_ms, strict=True)
    ]
    alt = (
        f"From batch {batches[0]} to {batches[-1]} the measured step grows from {rows[0]['decode_step_ms']:.1f} to "
        f"{rows[-1]['decode_step_ms']:.1f} ms, the time of its reads at full bandwidth from {predicted_ms[0]:.1f} to "
        f"{predicted_ms[-1]:.1f} ms."
    )
    return describe(
        fig, alt, (["batch", "measured step (ms)", "reads at full bandwidth (ms)", "output tokens/s"], table)
    )


def time_per_row(seconds):
    """Measured times of one matrix with different numbers of rows, `seconds` by rows: time of a call and of a row."""
    rows = list(seconds)
    relative = [seconds[count] / seconds[rows[0]] for count in rows]
    fig = figure(height=300)
    lines = (
        ("one call", relative, "weights"),
        ("each row of it", [value / count for count, value in zip(rows, relative, strict=True)], "decode"),
    )
    _add_lines(fig, [str(count) for count in rows], lines, "%{x} rows: %{y:.3g}")
    fig.update_xaxes(title_text="rows of the input", type="category", fixedrange=True)
    fig.update_yaxes(title_text="time, one row = 1", rangemode="tozero", nticks=5, fixedrange=True)
    table = [
        [count, f"{1e3 * seconds[count]:.2f}", f"{value:.2f}", f"{value / count:.3f}"]
        for count, value in zip(rows, relative, strict=True)
    ]
    alt = (
        f"One matrix with {rows[-1]} rows takes {relative[-1]:.1f} times as long as with one row, "
        f"{relative[-1] / rows[-1]:.2f} times as long for each row."
    )
    return describe(fig, alt, (["rows", "ms a call", "call, relative", "row, relative"], table))


def _add_lines(fig, x, lines, hover):
    """A line for each (name, values, colour), named at its end."""
    for name, values, color in lines:
        fig.add_trace(
            go.Scatter(
                x=x,
                y=values,
                mode="lines+markers",
                line={"color": COLORS[color], "width": 2},
                marker={"size": 8},
                hovertemplate=f"{hover}, {name}<extra></extra>",
            )
        )
        fig.add_annotation(
            **{"x": len(x) - 1, "y": values[-1], "text": name, "showarrow": False, "xanchor": "right"},
            **{"yshift": 14, "font": {"color": COLORS[color], "size": 13}},
        )
