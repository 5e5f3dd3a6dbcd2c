"""Figures of section 8.4.1: what fits beside quantized weights, and how a block of 256 values is stored."""

import plotly.graph_objects as go

from servelab import catalog, memory, quantization
from servelab.figures.style import COLORS, add_heading, color_key, describe, figure
from servelab.units import GIB, MIB

RESERVED_BYTES = 8 * GIB  # system and workspaces


def files_of(model_name):
    """{variant: bytes} of the recorded weight files, smallest first."""
    rows = catalog.record("weight-files").where(model=model_name)
    return {row["variant"]: row["file_bytes"] for row in sorted(rows, key=lambda row: row["file_bytes"])}


def uniform_bytes(model, fmt):
    """Bytes of all weights of `model` in one format; files mix formats (they keep some tensors in more bits)."""
    block = quantization.FORMATS[fmt]
    return -(-model.num_parameters // block.values) * block.block_bytes


def fit_explorer(weights, memory_bytes, context):
    """Weights, BF16 KV of one context and what is left of a memory. `weights`: (model, bytes of its weights)."""
    model, weights = weights
    kv = context * memory.kv_bytes_per_token(model)
    beside = quantization.memory_left(memory_bytes, RESERVED_BYTES, weights)
    left = quantization.memory_left(memory_bytes, RESERVED_BYTES, weights, kv)
    parts = [("reserved", RESERVED_BYTES, "unused"), ("weights", weights, "weights"), ("KV", kv, "kv")]
    fig = figure(height=250, barmode="stack", margin={"l": 12, "t": 70})
    for name, size, color in parts:
        fig.add_trace(
            go.Bar(
                orientation="h",
                y=[""],
                x=[size / GIB],
                width=[0.6],
                marker={"color": COLORS[color]},
                hovertemplate=name + ": %{x:.2f} GiB<extra></extra>",
            )
        )
    total = RESERVED_BYTES + weights + kv
    fig.add_vline(x=memory_bytes / GIB, line={"color": COLORS["cost"], "width": 3})
    side = "right" if memory_bytes > 0.5 * max(memory_bytes, total) else "left"
    fig.add_annotation(
        **{"x": memory_bytes / GIB, "y": 1, "yref": "y domain", "xanchor": side, "yanchor": "top", "showarrow": False},
        **{"text": f"memory {memory_bytes / GIB:.2f} GiB", "font": {"color": COLORS["cost"], "size": 13}},
        xshift=-6 if side == "right" else 6,
    )
    named = [(COLORS[color], f"{name} {size / GIB:.2f}") for name, size, color in parts]
    add_heading(fig, f"{color_key(named[:2])}<br>{color_key(named[2:])}", align="left")
    fig.update_xaxes(title_text="GiB", range=[0, 1.04 * max(memory_bytes, total) / GIB], nticks=6, fixedrange=True)
    fig.update_yaxes(visible=False, fixedrange=True)
    rows = [[name, f"{size / GIB:.2f}"] for name, size, _ in parts] + [["left", f"{left / GIB:.2f}"]]
    rows.append(["memory", f"{memory_bytes / GIB:.2f}"])
    state = f"{_size(left)} are left" if left >= 0 else f"{_size(-left)} are missing"
    alt = f"One bar of {total / GIB:.2f} GiB against a memory of {memory_bytes / GIB:.2f} GiB: {state}."
    describe(fig, alt, (["part", "GiB"], rows))
    return fig, _fit_sentence(model.name, context, beside, left, kv)


def _fit_sentence(name, context, beside, left, kv):
    if beside < 0:
        return f"{name}: the weights alone are {_size(-beside)} too large; no context fits."
    text = f"{name}: {_size(beside)} are left beside the weights, {context} tokens of KV take {_size(kv)}:"
    if left < 0:
        return f"{text} {_size(-left)} are missing."
    many = beside // kv
    return f"{text} 1 such context fits." if many == 1 else f"{text} {many} such contexts fit."


def _size(num_bytes):
    """In GiB; in MiB where that would read 0.0 something."""
    return f"{num_bytes / GIB:.2f} GiB" if num_bytes >= GIB / 10 else f"{num_bytes / MIB:.1f} MiB"


def block_bytes(names):
    """The bytes of 256 values in each of the formats `names`: codes, and the scales and minima beside them."""
    rows = []
    for name in names:
        codes, metadata = quantization.stored_bytes(256, name)
        share = 100 * metadata / (codes + metadata)
        rows.append([name, codes, metadata, codes + metadata, f"{(codes + metadata) / 32:g}", f"{share:.1f}"])
    fig = figure(height=120 + 40 * len(rows), barmode="stack", margin={"l": 56})
    for column, label, color in ((1, "codes", "weights"), (2, "scales and minima", "cost")):
        fig.add_trace(
            go.Bar(
                orientation="h",
                y=names,
                x=[row[column] for row in rows],
                marker={"color": COLORS[color]},
                hovertemplate="%{y}: %{x} bytes of " + label + "<extra></extra>",
            )
        )
    for index, row in enumerate(rows):
        text = f"{row[1]} + {row[2]}" if row[2] else str(row[1])
        fig.add_annotation(x=row[3], y=index, xanchor="left", xshift=4, text=text, showarrow=False)
    add_heading(fig, color_key(((COLORS["weights"], "codes"), (COLORS["cost"], "scales and minima"))))
    top = max(row[3] for row in rows)
    fig.update_xaxes(title_text="bytes for 256 values", range=[0, 1.25 * top], nticks=5, fixedrange=True)
    fig.update_yaxes(autorange="reversed", fixedrange=True)
    alt = "Bytes for 256 values: " + ", ".join(f"{row[0]} {row[3]}, {row[5]} % of them scales" for row in rows) + "."
    columns = ["format", "bytes of codes", "bytes of scales", "bytes", "bits a value", "scales (%)"]
    return describe(fig, alt, (columns, rows))
