"""Figures of section 8.1.2: what lies in an accelerator's memory, and how many requests fit into the pool for KV."""

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from servelab import memory
from servelab.figures.slots import HATCH, plural
from servelab.figures.style import COLORS, TEMPLATE, add_heading, color_key, describe, figure
from servelab.units import GIB, MIB

POOLS_GIB = [6, 12, 24]
LENGTHS = {"150 in, 50 out": (150, 50), "2048 in, 256 out": (2048, 256), "8192 in, 256 out": (8192, 256)}
BLOCK_SIZES = [1, 16, 256]
FORMATS = {"BF16": "bf16", "FP8": "fp8", "q4_0": "q4_0"}
PREFIXES = {"nothing": 0.0, "3/4 of the input": 0.75}  # share of the input that is common to all
PALE = "rgba(134, 134, 134, 0.28)"  # free memory: there, and nobody's


def instance(parts_gib):
    """One bar of memory: `parts_gib` is {name: (GiB, colour name of `style.COLORS`)}, from left to right."""
    fig = figure(height=150, barmode="stack", margin={"l": 12, "r": 12, "t": 10, "b": 44})
    for name, (gib, color) in parts_gib.items():
        fig.add_trace(
            go.Bar(
                orientation="h",
                y=[0],
                x=[gib],
                marker={"color": COLORS[color], "line": {"width": 1, "color": "white"}},
                text=f"{name}<br>{gib:.1f} GiB",
                textposition="inside",
                textangle=0,
                insidetextanchor="middle",
                insidetextfont={"color": "white", "size": 12},
                hovertemplate=name + ": %{x:.2f} GiB<extra></extra>",
            )
        )
    total = sum(gib for gib, _ in parts_gib.values())
    fig.update_xaxes(title_text="memory (GiB)", range=[0, total], nticks=6, fixedrange=True)
    fig.update_yaxes(visible=False, fixedrange=True)
    spoken = ", ".join(f"{name} {gib:.1f} GiB" for name, (gib, _) in parts_gib.items())
    rows = [[name, f"{gib:.2f}"] for name, (gib, _) in parts_gib.items()]
    return describe(fig, f"{total:.0f} GiB of memory: {spoken}.", (["part", "GiB"], rows))


def fill(pool_bytes, model, lengths, block_size, kv_dtype, prefix_share) -> dict:
    """How many equal requests of `lengths` (input, output) fit, and the bytes of each kind in the full pool."""
    inputs, outputs = lengths
    prefix = round(prefix_share * inputs)
    size = {"block_size": block_size, "kv_dtype": kv_dtype, "shared_prefix": prefix}
    slot = memory.kv_bytes_per_token(model, kv_dtype)
    private = memory.request_kv_bytes(model, inputs, outputs, **size)
    count = memory.max_requests(pool_bytes, model, inputs, outputs, **size)
    used = memory.batch_kv_bytes(model, count, inputs, outputs, **size)
    empty = count * memory.unused_slots(memory.written_tokens(inputs, outputs), block_size) * slot
    return {
        "count": count,
        "by_prompt": memory.max_requests(pool_bytes, model, inputs, 1, **size),
        "private": private,
        "shared": used - count * private,
        "own": count * private - empty,
        "empty": empty,
        "free": pool_bytes - used,
    }


def memory_explorer(model, pool, lengths, block_size, kv_format, prefix):
    """How `pool` GiB fill with finished requests, and how many fit counted to the prompt or to the last token."""
    parts = fill(pool * GIB, model, lengths, block_size, kv_format, prefix)
    fig = make_subplots(rows=2, row_heights=[0.42, 0.58], vertical_spacing=0.36)
    fig.update_layout(template=TEMPLATE, height=410, barmode="stack")
    kinds = [
        ("shared", "shared prefix", COLORS["shared"], "■"),
        ("own", "own K and V", COLORS["kv"], "■"),
        ("empty", "empty slots", COLORS["unused"], "▨"),
        ("free", "left over", PALE, "■"),
    ]
    for kind, name, color, _ in kinds:
        fig.add_trace(
            go.Bar(
                orientation="h",
                y=[0],
                x=[parts[kind] / GIB],
                marker={"color": color, "pattern": HATCH if kind == "empty" else {}},
                hovertemplate=name + ": %{x:.2f} GiB<extra></extra>",
            ),
            row=1,
            col=1,
        )
    named = [(color, name, glyph) for _, name, color, glyph in kinds]
    add_heading(fig, f"{color_key(named[:2])}<br>{color_key(named[2:])}", align="left")
    _add_counts(fig, parts)
    fig.update_xaxes(title_text="pool (GiB)", range=[0, pool], nticks=7, fixedrange=True, row=1, col=1)
    fig.update_yaxes(visible=False, fixedrange=True, row=1, col=1)
    gib = {kind: f"{parts[kind] / GIB:.2f}" for kind, *_ in kinds}
    alt = (
        f"{plural(parts['count'], 'request')} of {model.name} in a pool of {pool} GiB: {gib['shared']} GiB of shared "
        f"prefix, {gib['own']} of their own, {gib['empty']} in empty slots, {gib['free']} left over. By their prompts "
        f"alone {parts['by_prompt']} would fit."
    )
    table = [[name, gib[kind]] for kind, name, *_ in kinds]
    counts = [["after prefill", parts["by_prompt"]], ["to the last token", parts["count"]]]
    describe(fig, alt, (["in the pool", "GiB"], table), (["counted", "requests that fit"], counts))
    return fig, _sentence(parts, pool, prefix)


def _add_counts(fig, parts):
    names = ["after<br>prefill", "to the<br>last token"]
    values = [parts["by_prompt"], parts["count"]]
    fig.add_trace(
        go.Bar(
            orientation="h",
            y=names,
            x=values,
            width=0.6,
            marker={"color": [COLORS["prefill"], COLORS["decode"]]},
            text=[f"<b>{value}</b>" for value in values],
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{x} requests<extra></extra>",
        ),
        row=2,
        col=1,
    )
    fig.update_xaxes(
        title_text="requests that fit", range=[0, 1.15 * max(values[0], 1)], nticks=6, fixedrange=True, row=2, col=1
    )
    fig.update_yaxes(categoryarray=names[::-1], categoryorder="array", fixedrange=True, row=2, col=1)


def _sentence(parts, pool, prefix_share):
    count, by_prompt = parts["count"], parts["by_prompt"]
    shared = f", beside {parts['shared'] / MIB:,.0f} MiB that all share" if parts["shared"] else ""
    text = f"A request holds {parts['private'] / MIB:,.0f} MiB to its last token{shared}: {count} fit in {pool} GiB."
    if prefix_share and not parts["shared"]:
        text += " The common beginning fills no whole block."
    if not count:
        return f"{text} Not even one: the prompt alone needs more."
    if by_prompt > count:
        return f"{text} Counted after prefill it would be {by_prompt}: {by_prompt - count} too many."
    return f"{text} Counted after prefill it is the same number."
