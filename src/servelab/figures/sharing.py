"""Figures of section 8.3.2: a pool from fork to release, moment by moment, and what a cancellation waits for."""

from dataclasses import dataclass

import plotly.graph_objects as go

from servelab import catalog
from servelab.engine import BlockPool, BlockTable, OutOfBlocks
from servelab.figures.slots import listing, plural
from servelab.figures.style import COLORS, add_heading, color_key, describe, figure

NUM_BLOCKS, BLOCK_SIZE = 4, 4
NAMES = "ABC"
EMPTY = "·"


@dataclass(frozen=True)
class Moment:
    """The pool after one call: what happened, who holds which blocks, what the blocks hold and who still reads them."""

    text: str
    tables: dict[str, list[int]]
    ref_counts: list[int]
    contents: list[str]  # of each block, a letter a token
    in_flight: frozenset[int]  # blocks of the step that runs
    free: list[int]

    def state(self, block_id: int) -> str:
        if block_id in self.free:
            return "free"
        held_by_tables = sum(block_id in block_ids for block_ids in self.tables.values())
        return "held" if not held_by_tables else "shared" if held_by_tables > 1 else "kv"

    def shown(self, block_id: int) -> str:
        return " ".join(self.contents[block_id])


def story() -> list[Moment]:
    """Fork, append, cancel during a step, free: one call of the engine's pool a moment. Blocks of four, four of them.

    Letters are tokens: A has p q r s a b c, B forks from it and appends x, A appends y, C has h to m.
    """
    pool = BlockPool(NUM_BLOCKS, BLOCK_SIZE)
    a, c = BlockTable(pool), BlockTable(pool)
    b = None
    contents = [[EMPTY] * BLOCK_SIZE for _ in range(NUM_BLOCKS)]
    in_flight, moments = frozenset(), []

    def note(text):
        named = zip(NAMES, (a, b, c), strict=True)
        tables = {name: list(table.block_ids) for name, table in named if table is not None}
        moments.append(
            Moment(
                text, tables, list(pool.ref_counts), ["".join(slots) for slots in contents], in_flight,
                sorted(pool.free_queue),
            )
        )  # fmt: skip

    def write(table, letters):
        start = table.num_tokens
        for source, destination in table.copy_on_write():
            contents[destination] = list(contents[source])
        for block_id in table.append(len(letters)):
            contents[block_id] = [EMPTY] * BLOCK_SIZE
        for position, letter in enumerate(letters, start):
            block_id, offset = table.slot(position)
            contents[block_id][offset] = letter

    write(a, "pqrsabc")
    note("A has 7 tokens: block 0 is full, block 1 is its tail with one slot left.")
    b = a.fork()
    note("B forks from A: the same table, and one reference more on each block. No block is taken, nothing is copied.")
    write(b, "x")
    note("B appends x. Its tail is shared, so a, b, c are copied to block 2 first. Block 0 is full and stays shared.")
    write(a, "y")
    note("A appends y. Nobody else references block 1 any more, so A writes in place, with no copy.")
    in_flight = frozenset(a.block_ids) | frozenset(b.block_ids)
    pool.begin_step()
    note("A step starts on the accelerator. It reads and writes through the tables of A and B: blocks 0, 1 and 2.")
    a.release()
    note("A is cancelled and the call returns. Its table is empty, but no count falls: the step still uses the blocks.")
    try:
        write(c, "hijklm")
    except OutOfBlocks as error:
        note(f"C needs 2 blocks for 6 tokens and waits: {error}.")
    pool.end_step()
    in_flight = frozenset()
    note("The step ends, and A's references go. Block 0 falls to 1, for B. Block 1 falls to 0 and is free.")
    write(c, "hijklm")
    note("C takes blocks 1 and 3 and writes over what A left in block 1.")
    b.release()
    note("B ends with no step in flight: its blocks fall to 0 and are free at once. What they held is still there.")
    return moments


MOMENTS = list(range(len(story())))
LINES = {"shared": "solid", "kv": "solid", "held": "dash", "free": "dot"}


def sharing_explorer(moment):
    """Counterpart of figures 8-14 and 8-15: block tables above, the pool with contents and counts below."""
    now = story()[moment]
    return pool_at(now), now.text


def pool_at(now: Moment):
    """Tables and pool at one moment; the frame of a block says who has it."""
    fig = figure(height=480, margin={"l": 4, "r": 4, "t": 4, "b": 4})
    spans = (("shared", "in two tables"), ("kv", "in one"))
    names = color_key((COLORS[kind], word) for kind, word in spans)
    _heading(fig, 5.75, f"{names}   ┅ in none, held   ┈ free")
    _heading(fig, 5.35, "block tables: logical block 0, logical block 1")
    for row, name in enumerate(NAMES):
        y = 4.55 - 0.95 * row
        fig.add_annotation(x=0.12, y=y, text=f"<b>{name}</b>", showarrow=False)
        for logical, block_id in enumerate(now.tables.get(name, ())):
            _block(fig, logical, y, f"block {block_id}<br>{now.shown(block_id)}", now.state(block_id))
        if not now.tables.get(name):
            fig.add_annotation(x=0.34, y=y, text="no blocks", showarrow=False, xanchor="left")
    _heading(fig, 1.75, "pool: content and references of each block")
    for block_id in range(NUM_BLOCKS):
        state = now.state(block_id)
        _block(fig, block_id, 1.0, f"block {block_id}<br>{now.shown(block_id)}", state)
        below = f"<b>{plural(now.ref_counts[block_id], 'ref')}</b>"
        step = "in the step" if block_id in now.in_flight else "free" if state == "free" else " "
        fig.add_annotation(
            x=block_id + 0.77, y=0.2, text=f"{below}<br>{step}", showarrow=False, font={"size": 13}
        )  # fmt: skip
    fig.update_xaxes(visible=False, range=[0, NUM_BLOCKS + 0.3], fixedrange=True)
    fig.update_yaxes(visible=False, range=[-0.2, 5.95], fixedrange=True)
    return describe(fig, _alt(now), *_tables(now))


def _heading(fig, y, text):
    fig.add_annotation(x=0, y=y, text=text, showarrow=False, xanchor="left", font={"size": 13})


def _block(fig, column, y, text, state):
    color = COLORS["kv" if state == "held" else state]
    line = {"color": color, "width": 3, "dash": LINES[state]}
    fig.add_shape(type="rect", x0=column + 0.31, x1=column + 1.23, y0=y - 0.38, y1=y + 0.38, line=line)
    font = {"size": 13, "color": COLORS["free"]} if state == "free" else {"size": 13}
    fig.add_annotation(x=column + 0.77, y=y, text=text, showarrow=False, font=font)


def _alt(now: Moment) -> str:
    tables = "; ".join(f"{name} has blocks {listing(ids)}" for name, ids in now.tables.items() if ids) or "no table"
    counts = "; ".join(f"block {i}: {now.shown(i)}, {plural(n, 'reference')}" for i, n in enumerate(now.ref_counts))
    flight = listing(sorted(now.in_flight)) or "none"
    return f"Tables: {tables}. Pool: {counts}. Blocks in a running step: {flight}. Free: {listing(now.free) or 'none'}."


def _tables(now: Moment):
    by_sequence = [[name, listing(now.tables.get(name, ())) or "none"] for name in NAMES]
    by_block = [
        [i, now.shown(i), count, "yes" if i in now.in_flight else "no", "yes" if i in now.free else "no"]
        for i, count in enumerate(now.ref_counts)
    ]
    return (
        (["sequence", "block table"], by_sequence),
        (["block", "content", "references", "in the running step", "free"], by_block),
    )


def reference_counts(moments: list[Moment]):
    """Counterpart of figure 8-14: references of each block over the moments; in brackets, those a step holds back.

    A count in brackets stands for a block that no table has any more, which is not free before the step has ended.
    """
    counts = [[moment.ref_counts[i] for moment in moments] for i in range(NUM_BLOCKS)]
    text = [
        [f"({m.ref_counts[i]})" if m.state(i) == "held" else str(m.ref_counts[i]) for m in moments]
        for i in range(NUM_BLOCKS)
    ]
    steps = [COLORS["free"], COLORS["kv"], COLORS["shared"]]
    scale = [(edge / 3, steps[index]) for index in range(3) for edge in (index, index + 1)]
    fig = figure(height=250)
    fig.add_trace(
        go.Heatmap(
            z=counts, x=list(range(len(moments))), y=[f"block {i}" for i in range(NUM_BLOCKS)], text=text,
            **{"texttemplate": "%{text}", "textfont": {"color": "white", "size": 13}, "zmin": 0, "zmax": 2},
            **{"colorscale": scale, "showscale": False, "xgap": 2, "ygap": 2},
            hovertemplate="moment %{x}, %{y}: %{z} references<extra></extra>",
        )
    )  # fmt: skip
    add_heading(fig, "references; ( ) only the step has the block")
    fig.update_xaxes(title_text="moment", tickvals=list(range(len(moments))), showgrid=False, fixedrange=True)
    fig.update_yaxes(autorange="reversed", showgrid=False, fixedrange=True)
    alt = "; ".join(f"block {i}: {listing(row)}" for i, row in enumerate(text))
    rows = [[f"block {i}", *row] for i, row in enumerate(text)]
    return describe(fig, f"References from moment to moment. {alt}.", (["", *map(str, range(len(moments)))], rows))


def cancellation():
    """Counterpart of figure 8-16: when the call returned and when the blocks were free, in experiment 8-3."""
    row = catalog.record("cancel").rows[0]
    returned, released = row["call_return_ms"], row["blocks_released_ms"]
    events = [
        ("call", 0, returned, "unused", f"returns at {returned:.1f} ms"),
        ("blocks", 0, released, "kv", f"{row['blocks_released']} held until {released:.1f} ms"),
    ]
    fig = figure(height=190)
    fig.add_trace(
        go.Bar(
            orientation="h", y=[event[0] for event in events], base=[event[1] for event in events],
            x=[event[2] - event[1] for event in events], marker={"color": [COLORS[event[3]] for event in events]},
            text=["", events[1][4]], textposition="inside", insidetextfont={"color": "white"},
            hovertemplate="%{y}: until %{x} ms<extra></extra>",
        )
    )  # fmt: skip
    fig.add_annotation(x=returned, y=0, text=events[0][4], showarrow=False, xanchor="left", xshift=6)
    fig.update_xaxes(title_text="time after the cancel call (ms)", range=[0, 35], nticks=8, fixedrange=True)
    fig.update_yaxes(autorange="reversed", showgrid=False, fixedrange=True)
    alt = (
        f"The cancel call returns after {returned} ms. The {row['blocks_released']} blocks of the request are free "
        f"after {released} ms; free blocks go from {row['free_blocks_before']} to {row['free_blocks_after']}."
    )
    rows = [["call returns", returned, row["free_blocks_before"]], ["blocks free", released, row["free_blocks_after"]]]
    return describe(fig, alt, (["event", "after the call (ms)", "free blocks"], rows))
