"""Figures of section 8.3.1: reserved and paged KV slots, a block table, and the explorer over block size."""

from statistics import median

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from servelab.engine import BlockPool, BlockTable
from servelab.figures.style import COLORS, TEMPLATE, describe, figure
from servelab.measure import speedups

BLOCK_SIZES = [1, 2, 4, 8, 16]
NAMES = "ABCDEFGH"
GAP = 0.04  # slots


def place(lengths, block_size, common_prefix=0):
    """Sequences of `lengths` tokens in a `BlockPool` that just fits; the second shares the first one's prefix.

    Returns one `BlockTable` a sequence. Only whole blocks of `common_prefix` tokens are shared.
    """
    pool = BlockPool(sum(-(-length // block_size) for length in lengths), block_size)
    tables = []
    for index, length in enumerate(lengths):
        common = min(common_prefix, *lengths[:2]) if index == 1 else 0
        whole_blocks = common // block_size * block_size
        table = tables[0].share(whole_blocks) if whole_blocks else BlockTable(pool)
        table.append(length - whole_blocks)
        tables.append(table)
    pool.check_integrity(tables)
    return tables


def counts(tables) -> dict:
    """Physical blocks, table entries, slots, unused slots and distinct tokens stored, over `tables` of one pool."""
    pool = tables[0].pool
    used_blocks = pool.num_blocks - pool.num_free
    unused = sum(table.unused_slots for table in tables)  # shared blocks are full: no slot counts twice
    slots = used_blocks * pool.block_size
    entries = sum(len(table.block_ids) for table in tables)
    return {
        "blocks": used_blocks,
        "entries": entries,
        "slots": slots,
        "unused": unused,
        "stored": slots - unused,
    }


def reserved_slots(lengths, max_length):
    """Counterpart of figure 8-11: each sequence reserves `max_length` slots and fills as many as it has tokens."""
    bars = [(name, 0, length, "kv", "") for name, length in zip(NAMES, lengths, strict=False)]
    bars += [(name, length, max_length - length, "unused", "") for name, length in zip(NAMES, lengths, strict=False)]
    fig = figure(height=250, barmode="overlay")
    _add_bars(fig, bars)
    _slot_axes(fig, len(lengths), max_length)
    total, used = len(lengths) * max_length, sum(lengths)
    _add_key(fig, f"reserved: {used} of {total} slots hold a token", ["kv", "unused"])
    rows = [[name, length, max_length, max_length - length] for name, length in zip(NAMES, lengths, strict=False)]
    rows.append(["all", used, total, total - used])
    alt = (
        f"Four bars of {max_length} slots. Sequences of {_listing(lengths)} tokens fill {used} of {total} reserved "
        f"slots; {total - used} stay empty."
    )
    return describe(fig, alt, ["sequence", "tokens", "slots reserved", "unused slots"], rows)


def paged_slots(tables):
    """Counterpart of figures 8-12 and 8-13: the blocks that each sequence holds, numbered as in its block table."""
    fig = figure(height=250, barmode="overlay")
    _add_bars(fig, _block_bars(tables))
    _slot_axes(fig, len(tables), max(len(t.block_ids) for t in tables) * tables[0].pool.block_size)
    n = counts(tables)
    _add_key(fig, f"paged: {n['blocks']} blocks, {n['slots']} slots", _kinds(tables))
    return describe(fig, _paged_alt(tables), *_paged_table(tables))


def block_table(table):
    """Counterpart of figure 8-10: the logical blocks of one sequence, its block table, and the pool's blocks."""
    pool = table.pool
    rows = max(len(table.block_ids), pool.num_blocks)
    fig = figure(height=70 + 48 * rows)
    held = {physical: logical for logical, physical in enumerate(table.block_ids)}
    for logical, physical in enumerate(table.block_ids):
        _cell(fig, 0, rows - logical, f"logical {logical}", COLORS["kv"])
        _cell(fig, 2, rows - logical, f"{logical} → {physical}", COLORS["unused"])
        fig.add_annotation(
            **{
                "x": 4,
                "y": rows - physical,
                "ax": 3.3,
                "ay": rows - logical,
                "text": "",
                "arrowwidth": 2,
                "arrowhead": 2,
            },
            **{"axref": "x", "ayref": "y", "arrowcolor": COLORS["kv"]},
        )
    for physical in range(pool.num_blocks):
        label = f"block {physical}" + ("" if physical in held else ": free")
        _cell(fig, 4, rows - physical, label, COLORS["kv"] if physical in held else None)
    for x, heading in ((0.65, "sequence"), (2.65, "block table"), (4.65, "pool")):
        fig.add_annotation(x=x, y=rows + 0.85, text=heading, showarrow=False)
    fig.update_xaxes(visible=False, range=[-0.1, 5.4], fixedrange=True)
    fig.update_yaxes(visible=False, range=[0.4, rows + 1.2], fixedrange=True)
    fig.update_layout(margin={"l": 4, "r": 4, "t": 4, "b": 4})
    free = sorted(set(range(pool.num_blocks)) - set(held))
    alt = (
        f"Logical blocks {_listing(held.values(), sort=True)} of a sequence map to physical blocks "
        f"{_listing(table.block_ids)}, in this order. Free: {_listing(free) or 'none'}."
    )
    rows_ = [[logical, physical] for logical, physical in enumerate(table.block_ids)]
    return describe(fig, alt, ["logical block", "physical block"], rows_)


def paging_explorer(block_size, lengths, common_prefix):
    """Slots and blocks of four sequences, and unused slots against table entries over all block sizes."""
    tables = place(lengths, block_size, common_prefix)
    sweep = {size: counts(place(lengths, size, common_prefix)) for size in BLOCK_SIZES}
    fig = make_subplots(rows=2, row_heights=[0.52, 0.48], vertical_spacing=0.24)
    fig.update_layout(template=TEMPLATE, height=490, barmode="overlay")
    _add_bars(fig, _block_bars(tables), row=1, col=1)
    _slot_axes(fig, len(tables), 16, row=1, col=1)
    _add_sweep(fig, sweep, block_size)
    _add_key(fig, "slots by sequence, with block numbers", _kinds(tables))
    describe(fig, _paged_alt(tables), *_paged_table(tables))
    return fig, _sentence(tables, min(common_prefix, *lengths[:2]))


def time_by_block_size(samples, baseline):
    """Measured times of one kernel by block size (`measure.interleave`), as multiples of those at `baseline`."""
    ratios = {str(size): 1 / speedup for size, speedup in speedups(samples, baseline).items()}
    fig = figure(height=260)
    fig.add_trace(
        go.Bar(
            x=list(ratios),
            y=list(ratios.values()),
            text=[f"{ratio:.2f}" for ratio in ratios.values()],
            textposition="outside",
            cliponaxis=False,
            marker={"color": COLORS["decode"]},
            hovertemplate="block size %{x}: %{y:.2f}<extra></extra>",
        )
    )
    fig.update_xaxes(title_text="block size (tokens)", type="category", fixedrange=True)
    fig.update_yaxes(title_text="relative time", rangemode="tozero", nticks=4, fixedrange=True)
    listed = "; ".join(f"{size}: {ratio:.2f}" for size, ratio in ratios.items())
    alt = f"Time of one decode step's attention by block size, relative to blocks of {baseline}. {listed}."
    rows = [[size, f"{median(samples[int(size)]) * 1e3:.2f}", f"{ratio:.2f}"] for size, ratio in ratios.items()]
    return describe(fig, alt, ["block size", "median time (ms)", f"relative to {baseline}"], rows)


def _add_sweep(fig, sweep, block_size):
    now = sweep[block_size]
    for key, label, color in (("unused", "unused slots", "unused"), ("entries", "table entries", "cost")):
        above = now[key] == max(now["unused"], now["entries"])
        fig.add_trace(
            go.Scatter(
                x=[str(size) for size in sweep],
                y=[n[key] for n in sweep.values()],
                mode="lines+markers+text",
                marker={"size": [13 if size == block_size else 6 for size in sweep], "color": COLORS[color]},
                line={"color": COLORS[color], "width": 2},
                text=[str(now[key]) if size == block_size else "" for size in sweep],
                textposition="top center" if above else "bottom center",
                cliponaxis=False,
                hovertemplate="block size %{x}: %{y} " + label + "<extra></extra>",
            ),
            row=2,
            col=1,
        )
    key = "   ".join(
        f'<span style="color:{COLORS[color]}">●</span> {label}'
        for color, label in (("cost", "table entries"), ("unused", "unused slots"))
    )
    fig.add_annotation(
        **{"x": 0, "y": 1, "xref": "x2 domain", "yref": "y2 domain", "xanchor": "left", "yanchor": "bottom"},
        **{"text": key, "showarrow": False, "font": {"size": 13}},
    )
    fig.update_xaxes(title_text="block size (tokens)", type="category", fixedrange=True, row=2, col=1)
    fig.update_yaxes(title_text="count", range=[-12, 76], tickvals=[0, 32, 64], fixedrange=True, row=2, col=1)


def _sentence(tables, common):
    n, size = counts(tables), tables[0].pool.block_size
    plural = "block" if n["blocks"] == 1 else "blocks"
    text = (
        f"Blocks of {size}: {n['blocks']} physical {plural} give {n['slots']} slots, {n['unused']} of them unused; "
        f"the tables have {n['entries']} entries."
    )
    shared = n["entries"] - n["blocks"]
    if shared:
        return f"{text} A and B share {shared} {'block' if shared == 1 else 'blocks'} of their {common} common tokens."
    if common:
        return f"{text} A and B have {common} tokens in common, which fill no whole block: nothing is shared."
    return text


def _paged_alt(tables):
    n = counts(tables)
    lengths = [table.num_tokens for table in tables]
    shared = n["entries"] - n["blocks"]
    return (
        f"Sequences of {_listing(lengths)} tokens hold {n['blocks']} physical blocks of {tables[0].pool.block_size} "
        f"slots, {n['slots']} slots in all; {n['unused']} slots are unused. Blocks held by both A and B: {shared}."
    )


def _paged_table(tables):
    rows = [
        [name, table.num_tokens, _listing(table.block_ids), table.unused_slots]
        for name, table in zip(NAMES, tables, strict=False)
    ]
    return ["sequence", "tokens", "block table", "unused slots"], rows


def _block_bars(tables):
    """(row, first slot, width, kind, label) of each piece of each block, full part before empty part."""
    size = tables[0].pool.block_size
    for name, table in zip(NAMES, tables, strict=False):
        for logical, physical in enumerate(table.block_ids):
            start = logical * size
            used = min(size, table.num_tokens - start)
            kind = "shared" if table.pool.ref_counts[physical] > 1 else "kv"
            yield name, start, used, kind, str(physical)
            if used < size:
                yield name, start + used, size - used, "unused", ""


def _kinds(tables):
    return [kind for kind in ("kv", "shared", "unused") if any(bar[3] == kind for bar in _block_bars(tables))]


def _add_bars(fig, bars, **where):
    bars = list(bars)
    for kind in ("kv", "shared", "unused"):
        rows = [bar for bar in bars if bar[3] == kind]
        fig.add_trace(
            go.Bar(
                orientation="h",
                y=[row[0] for row in rows],
                # A gap parts the blocks; a border would need the page's colour.
                base=[row[1] + GAP for row in rows],
                x=[row[2] - 2 * GAP for row in rows],
                text=[row[4] for row in rows],
                textposition="inside",
                textangle=0,
                insidetextanchor="middle",
                insidetextfont={"color": "white", "size": 11},
                marker={"color": COLORS[kind], "opacity": 0.45 if kind == "unused" else 1.0},
                customdata=[row[2] for row in rows],
                hovertemplate="%{y}: slots %{customdata}, block %{text}<extra></extra>",
            ),
            **where,
        )


def _slot_axes(fig, num_rows, num_slots, **where):
    step = max(1, num_slots // 4)
    ticks = list(range(0, num_slots + 1, step))
    plain = {"showgrid": False, "fixedrange": True, **where}
    fig.update_xaxes(title_text="slot (one token each)", range=[0, num_slots], tickvals=ticks, **plain)
    fig.update_yaxes(title_text="sequence", categoryarray=list(NAMES[:num_rows])[::-1], **plain)


def _add_key(fig, text, kinds):
    names = {"kv": "K and V", "shared": "shared K and V", "unused": "unused"}
    key = "   ".join(f'<span style="color:{COLORS[kind]}">■</span> {names[kind]}' for kind in kinds)
    fig.add_annotation(
        **{"x": 0, "y": 1, "xref": "x domain", "yref": "y domain", "xanchor": "left", "yanchor": "bottom"},
        **{"text": f"{text}<br>{key}", "align": "left", "showarrow": False, "font": {"size": 13}},
    )


def _cell(fig, x, y, text, color):
    line = {"color": color or COLORS["free"], "width": 2, "dash": "solid" if color else "dot"}
    fig.add_shape(type="rect", x0=x, x1=x + 1.3, y0=y - 0.36, y1=y + 0.36, line=line)
    fig.add_annotation(x=x + 0.65, y=y, text=text, showarrow=False, font={"size": 13})


def _listing(items, sort=False):
    return ", ".join(str(item) for item in (sorted(items) if sort else items))
