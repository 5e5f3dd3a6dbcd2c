"""Drawing KV slots and blocks: one row a sequence, one rectangle a block, numbered as in the block table."""

import plotly.graph_objects as go

from servelab.checks import require_int
from servelab.figures.style import COLORS, add_heading, color_key

NAMES = "ABCDEFGH"
GAP = 0.04  # slots; parts the blocks, where a border would need the page's colour
LABELS = {"kv": "K and V", "shared": "shared K and V", "unused": "unused"}
HATCH = {"shape": "/", "size": 6, "solidity": 0.3, "fillmode": "replace"}
GLYPHS = {"kv": "■", "shared": "■", "unused": "▨"}


def require_names(count: int) -> None:
    """Refuse more sequences than there are letters for."""
    require_int("number of sequences", count, minimum=1, maximum=len(NAMES))


def block_bars(tables):
    """(row, first slot, width, kind, block) of each piece of each block, the full part before the empty one."""
    size = tables[0].pool.block_size
    for name, table in zip(NAMES, tables, strict=False):
        for logical, physical in enumerate(table.block_ids):
            start = logical * size
            used = min(size, table.num_tokens - start)
            kind = "shared" if table.pool.ref_counts[physical] > 1 else "kv"
            yield name, start, used, kind, str(physical)
            if used < size:
                yield name, start + used, size - used, "unused", str(physical)


def kinds_of(tables) -> list[str]:
    """The kinds of piece that occur, in the order of the key."""
    present = {bar[3] for bar in block_bars(tables)}
    return [kind for kind in LABELS if kind in present]


def add_bars(fig, bars, **where) -> None:
    """A trace for each kind, present or not, so that an explorer's states have the same traces."""
    bars = list(bars)
    for kind in LABELS:
        rows = [bar for bar in bars if bar[3] == kind]
        empty = kind == "unused"
        fig.add_trace(
            go.Bar(
                orientation="h",
                y=[row[0] for row in rows],
                base=[row[1] + GAP for row in rows],
                x=[row[2] - 2 * GAP for row in rows],
                text=["" if empty else row[4] for row in rows],
                textposition="inside",
                textangle=0,
                insidetextanchor="middle",
                insidetextfont={"color": "white", "size": 11},
                # Empty slots are hatched: told apart without colour, on light and on dark.
                marker={"color": COLORS[kind], "pattern": HATCH if empty else {}},
                customdata=[[row[2], row[4]] for row in rows],
                hovertemplate="%{y}: %{customdata[0]} " + LABELS[kind] + ", block %{customdata[1]}<extra></extra>",
            ),
            **where,
        )


def slot_axes(fig, num_rows: int, num_slots: int, **where) -> None:
    ticks = list(range(0, num_slots + 1, max(1, num_slots // 4)))
    plain = {"showgrid": False, "fixedrange": True, **where}
    fig.update_xaxes(title_text="slot (one token each)", range=[0, num_slots], tickvals=ticks, **plain)
    fig.update_yaxes(title_text="sequence", categoryarray=list(NAMES[:num_rows])[::-1], **plain)


def add_key(fig, text: str, kinds: list[str]) -> None:
    """A heading above the picture that names its colours."""
    names = color_key((COLORS[kind], LABELS[kind], GLYPHS[kind]) for kind in kinds)
    add_heading(fig, f"{text}<br>{names}", align="left")


def listing(items) -> str:
    return ", ".join(map(str, items))


def plural(count: int, noun: str) -> str:
    """ "1 block", "2 blocks"; "1 entry", "2 entries"."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun.removesuffix('y')}ies" if noun.endswith("y") else f"{count} {noun}s"
