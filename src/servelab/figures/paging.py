"""Figures of section 8.3.1: reserved and paged KV slots, a block table, and the explorer over block size."""

from statistics import median

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from servelab.engine import BlockPool, BlockTable
from servelab.figures.slots import (
    NAMES,
    add_bars,
    add_key,
    block_bars,
    kinds_of,
    listing,
    plural,
    require_names,
    slot_axes,
)
from servelab.figures.style import COLORS, TEMPLATE, add_heading, color_key, describe, figure
from servelab.measure import speedups

BLOCK_SIZES = [1, 2, 4, 8, 16]


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
    return {"blocks": used_blocks, "entries": entries, "slots": slots, "unused": unused, "stored": slots - unused}


def reserved_slots(lengths, max_length):
    """Counterpart of figure 8-11: each sequence reserves `max_length` slots and fills as many as it has tokens."""
    require_names(len(lengths))
    named = list(zip(NAMES, lengths, strict=False))
    bars = [(name, 0, length, "kv", "") for name, length in named]
    bars += [(name, length, max_length - length, "unused", "") for name, length in named]
    fig = figure(height=250, barmode="overlay")
    add_bars(fig, bars)
    fig.update_traces(hovertemplate="%{y}: %{customdata[0]} slots<extra></extra>")
    slot_axes(fig, len(lengths), max_length)
    total, used = len(lengths) * max_length, sum(lengths)
    add_key(fig, f"reserved: {used} of {total} slots hold a token", ["kv", "unused"])
    rows = [[name, length, max_length, max_length - length] for name, length in named]
    rows.append(["all", used, total, total - used])
    alt = (
        f"{plural(len(lengths), 'bar')} of {max_length} slots. Sequences of {listing(lengths)} tokens fill {used} of "
        f"{total} reserved slots; {total - used} stay empty."
    )
    return describe(fig, alt, (["sequence", "tokens", "slots reserved", "unused slots"], rows))


def paged_slots(tables):
    """Counterpart of figures 8-12 and 8-13: the blocks that each sequence holds, numbered as in its block table."""
    require_names(len(tables))
    fig = figure(height=250, barmode="overlay")
    add_bars(fig, block_bars(tables))
    slot_axes(fig, len(tables), max(len(t.block_ids) for t in tables) * tables[0].pool.block_size)
    n = counts(tables)
    add_key(fig, f"paged: {plural(n['blocks'], 'block')}, {plural(n['slots'], 'slot')}", kinds_of(tables))
    return describe(fig, _paged_alt(tables), _paged_table(tables))


def block_table(table):
    """Counterpart of figure 8-10: the logical blocks of one sequence, its block table, and the pool's blocks."""
    pool = table.pool
    rows = max(len(table.block_ids), pool.num_blocks)
    fig = figure(height=70 + 48 * rows, margin={"l": 4, "r": 4, "t": 4, "b": 4})
    arrow = {"text": "", "arrowwidth": 2, "arrowhead": 2, "axref": "x", "ayref": "y", "arrowcolor": COLORS["kv"]}
    for logical, physical in enumerate(table.block_ids):
        _cell(fig, 0, rows - logical, f"logical {logical}", COLORS["kv"])
        _cell(fig, 2, rows - logical, f"{logical} → {physical}", COLORS["unused"])
        fig.add_annotation(x=4, y=rows - physical, ax=3.3, ay=rows - logical, **arrow)
    free = [block_id for block_id in range(pool.num_blocks) if pool.ref_counts[block_id] == 0]
    for physical in range(pool.num_blocks):
        state = "free" if physical in free else "" if physical in table.block_ids else "other's"
        label = f"block {physical}" + (f": {state}" if state else "")
        _cell(fig, 4, rows - physical, label, None if state else COLORS["kv"])
    for x, heading in ((0.65, "sequence"), (2.65, "block table"), (4.65, "pool")):
        fig.add_annotation(x=x, y=rows + 0.85, text=heading, showarrow=False)
    fig.update_xaxes(visible=False, range=[-0.1, 5.4], fixedrange=True)
    fig.update_yaxes(visible=False, range=[0.4, rows + 1.2], fixedrange=True)
    alt = (
        f"Logical blocks {listing(range(len(table.block_ids)))} of a sequence map to physical blocks "
        f"{listing(table.block_ids)}, in this order. Free: {listing(free) or 'none'}."
    )
    return describe(fig, alt, (["logical block", "physical block"], list(map(list, enumerate(table.block_ids)))))


def _cell(fig, x, y, text, color):
    line = {"color": color or COLORS["free"], "width": 2, "dash": "solid" if color else "dot"}
    fig.add_shape(type="rect", x0=x, x1=x + 1.3, y0=y - 0.36, y1=y + 0.36, line=line)
    fig.add_annotation(x=x + 0.65, y=y, text=text, showarrow=False, font={"size": 13})


def paging_explorer(block_size, lengths, common_prefix):
    """Slots and blocks of sequences, and unused slots against table entries over all block sizes."""
    require_names(len(lengths))
    tables = place(lengths, block_size, common_prefix)
    sweep = {size: counts(place(lengths, size, common_prefix)) for size in BLOCK_SIZES}
    reserved = -(-max(lengths) // BLOCK_SIZES[-1]) * BLOCK_SIZES[-1]
    fig = make_subplots(rows=2, row_heights=[0.52, 0.48], vertical_spacing=0.24)
    fig.update_layout(template=TEMPLATE, height=490, barmode="overlay")
    add_bars(fig, block_bars(tables), row=1, col=1)
    slot_axes(fig, len(tables), reserved, row=1, col=1)
    _add_sweep(fig, sweep, block_size)
    add_key(fig, "slots by sequence, with block numbers", kinds_of(tables))
    ends = [sweep[BLOCK_SIZES[0]], sweep[BLOCK_SIZES[-1]]]
    alt = (
        f"{_paged_alt(tables)} From block size {BLOCK_SIZES[0]} to {BLOCK_SIZES[-1]}, table entries go from "
        f"{ends[0]['entries']} to {ends[1]['entries']}, unused slots from {ends[0]['unused']} to {ends[1]['unused']}."
    )
    by_size = [[size, n["entries"], n["unused"], n["blocks"]] for size, n in sweep.items()]
    sizes = (["block size", "table entries", "unused slots", "physical blocks"], by_size)
    describe(fig, alt, _paged_table(tables), sizes)
    return fig, _sentence(tables, common_prefix, len(lengths) * reserved)


def _add_sweep(fig, sweep, block_size):
    now = sweep[block_size]
    lines = (("entries", "table entries", "cost"), ("unused", "unused slots", "unused"))
    for key, label, color in lines:
        fig.add_trace(
            go.Scatter(
                x=[str(size) for size in sweep],
                y=[n[key] for n in sweep.values()],
                mode="lines+markers",
                marker={"size": [13 if size == block_size else 6 for size in sweep], "color": COLORS[color]},
                line={"color": COLORS[color], "width": 2},
                cliponaxis=False,
                hovertemplate="block size %{x}: %{y} " + label + "<extra></extra>",
            ),
            row=2,
            col=1,
        )
        # The larger number above its dot, the smaller one below, each in the colour of its line.
        shift = 18 if now[key] == max(now["unused"], now["entries"]) else -18
        fig.add_annotation(
            **{"x": list(sweep).index(block_size), "y": now[key], "xref": "x2", "yref": "y2", "yshift": shift},
            **{"text": f"<b>{now[key]}</b>", "showarrow": False, "font": {"color": COLORS[color]}},
        )
    add_heading(fig, color_key((COLORS[color], label, "●") for _, label, color in lines), axis="2")
    top = max(max(n["entries"], n["unused"]) for n in sweep.values())
    fig.update_xaxes(title_text="block size (tokens)", type="category", fixedrange=True, row=2, col=1)
    fig.update_yaxes(title_text="count", range=[-0.22 * top, 1.25 * top], nticks=4, fixedrange=True, row=2, col=1)


def _sentence(tables, common_prefix, reserved_slots):
    n, size = counts(tables), tables[0].pool.block_size
    text = (
        f"Blocks of {size}: {plural(n['blocks'], 'physical block')} give {plural(n['slots'], 'slot')}, {n['unused']} "
        f"of them unused (reserving takes {reserved_slots}); the tables have {plural(n['entries'], 'entry')}."
    )
    common = min(common_prefix, *(table.num_tokens for table in tables[:2]))
    cut = f" (they hold only {common})" if common < common_prefix else ""
    shared = n["entries"] - n["blocks"]
    twice = common - shared * size
    if shared:
        rest = f"; {twice} {'is' if twice == 1 else 'are'} stored twice" if twice else ""
        with_tokens = f"{shared * size} of their {plural(common, 'common token')}"
        return f"{text} A and B share {plural(shared, 'block')} with {with_tokens}{cut}{rest}."
    if common:
        alike = f"{plural(common, 'common token')} of A and B{cut}"
        return f"{text} The {alike} {'fills' if common == 1 else 'fill'} no whole block: nothing is shared."
    return text


def _paged_alt(tables):
    n = counts(tables)
    return (
        f"Sequences of {listing(table.num_tokens for table in tables)} tokens hold {n['blocks']} physical blocks "
        f"of {plural(tables[0].pool.block_size, 'slot')}, {plural(n['slots'], 'slot')} in all; {n['unused']} unused. "
        f"Blocks held by both A and B: {n['entries'] - n['blocks']}."
    )


def _paged_table(tables):
    rows = [
        [name, table.num_tokens, listing(table.block_ids), table.unused_slots]
        for name, table in zip(NAMES, tables, strict=False)
    ]
    return ["sequence", "tokens", "block table", "unused slots"], rows


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
    return describe(fig, alt, (["block size", "median time (ms)", f"relative to {baseline}"], rows))
