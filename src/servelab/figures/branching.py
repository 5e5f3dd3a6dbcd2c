"""Figures of section 8.3.2: references and physical blocks of branches that share a prompt."""

import functools

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from servelab import memory
from servelab.engine import BlockPool, BlockTable
from servelab.figures.paging import counts
from servelab.figures.slots import plural
from servelab.figures.style import COLORS, TEMPLATE, add_heading, color_key, describe

BRANCHES = [1, 2, 4, 8, 16]
BLOCK_SIZES = [1, 4, 16, 64, 256]
PROMPTS = [200, 1536, 1543]
WAYS = {"whole blocks, found again": "prefix", "fork, copy on write": "fork"}
OUTPUT = 128


def branch(branches, block_size, prompt, way="prefix", output=OUTPUT):
    """Tables of finished branches of one prompt, in a pool of their own.

    "prefix": separate requests that find the whole blocks of the prompt, but for its last token, which each computes
    again. "fork": one request that forks when its prompt is computed; whoever appends to a shared tail copies it.
    """
    if way not in WAYS.values():
        raise ValueError(f"way is {way!r}; it must be one of {', '.join(WAYS.values())}")
    written = memory.written_tokens(prompt, output)
    pool = BlockPool(branches * (memory.num_blocks(written, block_size) + 1), block_size)
    first = BlockTable(pool)
    first.append(prompt)
    if way == "fork":
        tables = [first] + [first.fork() for _ in range(branches - 1)]
    else:
        whole = memory.shared_blocks(prompt, prompt, block_size) * block_size
        tables = [first] + [first.share(whole) for _ in range(branches - 1)]
    for table in tables:
        table.copy_on_write()
        table.append(written - table.num_tokens)
    pool.check_integrity(tables)
    return tables


def parts(tables) -> dict:
    """References, physical blocks, and of these the ones that all tables reference ("shared") and the rest."""
    n = counts(tables)
    shared = sum(count > 1 for count in tables[0].pool.ref_counts)
    return {
        "references": n["entries"],
        "blocks": n["blocks"],
        "shared": shared,
        "private": n["blocks"] - shared,
    }


@functools.cache
def _sweep(block_size, prompt, way):
    """`parts` by number of branches."""
    return {count: parts(branch(count, block_size, prompt, way)) for count in BRANCHES}


def branches_explorer(branches, block_size, prompt, way):
    """References and physical blocks of branches of one prompt: now, and by number of branches."""
    sweep = _sweep(block_size, prompt, way)
    now, ends = sweep[branches], (sweep[BRANCHES[0]], sweep[BRANCHES[-1]])
    fig = make_subplots(rows=2, row_heights=[0.36, 0.64], vertical_spacing=0.3)
    fig.update_layout(template=TEMPLATE, height=500, barmode="stack", uniformtext={"minsize": 10, "mode": "hide"})
    _add_bars(fig, now)
    _add_sweep(fig, sweep, branches)
    alt = (
        f"{branches} {'branch' if branches == 1 else 'branches'} in blocks of {block_size}: "
        f"{plural(now['references'], 'reference')} to {plural(now['blocks'], 'physical block')}, {now['shared']} "
        f"shared. From {BRANCHES[0]} to {BRANCHES[-1]} branches, references go from {ends[0]['references']} to "
        f"{ends[1]['references']}, physical blocks from {ends[0]['blocks']} to {ends[1]['blocks']}."
    )
    rows = [[count, n["references"], n["shared"], n["private"], n["blocks"]] for count, n in sweep.items()]
    describe(fig, alt, (["branches", "references", "shared blocks", "private blocks", "physical blocks"], rows))
    return fig, _sentence(now, branches, block_size, prompt)


def _add_bars(fig, now):
    drawn = (("unused", "references", now["references"]), ("shared", "blocks", now["shared"]))
    for color, row, count in (*drawn, ("kv", "blocks", now["private"])):
        fig.add_trace(
            go.Bar(
                orientation="h", y=[row], x=[count], marker={"color": COLORS[color]}, text=[count if count else ""],
                textposition="inside", textangle=0, insidetextanchor="middle", insidetextfont={"color": "white"},
                hovertemplate="%{y}: %{x}<extra></extra>",
            ),
            row=1, col=1,
        )  # fmt: skip
    kinds = (("unused", "references"), ("shared", "shared"), ("kv", "private"))
    add_heading(fig, color_key((COLORS[color], word) for color, word in kinds))
    fig.update_xaxes(title_text="count", nticks=5, rangemode="tozero", fixedrange=True, row=1, col=1)
    order = {"categoryorder": "array", "categoryarray": ["blocks", "references"]}
    fig.update_yaxes(showgrid=False, fixedrange=True, **order, row=1, col=1)


def _add_sweep(fig, sweep, branches):
    for key, color in (("references", "unused"), ("blocks", "kv")):
        fig.add_trace(
            go.Scatter(
                x=[str(count) for count in sweep], y=[n[key] for n in sweep.values()], mode="lines+markers",
                marker={"size": [13 if count == branches else 6 for count in sweep], "color": COLORS[color]},
                line={"color": COLORS[color], "width": 2}, cliponaxis=False,
                hovertemplate="%{x} branches: %{y} " + key + "<extra></extra>",
            ),
            row=2, col=1,
        )  # fmt: skip
    lines = ((COLORS["unused"], "references", "●"), (COLORS["kv"], "physical blocks", "●"))
    add_heading(fig, color_key(lines), axis="2")
    top = max(n["references"] for n in sweep.values())
    fig.update_xaxes(title_text="branches", type="category", fixedrange=True, row=2, col=1)
    fig.update_yaxes(title_text="count", range=[0, 1.1 * top], nticks=5, fixedrange=True, row=2, col=1)


def _sentence(now, branches, block_size, prompt):
    if branches == 1:
        return f"One branch of {prompt} + {OUTPUT} tokens: {plural(now['blocks'], 'block')}, each referenced once."
    saved = 100 * (1 - now["blocks"] / now["references"])
    what = (
        f"{now['shared']} are shared and {now['private']} private: {saved:.0f} % fewer than separate copies"
        if now["shared"]
        else "none is shared: the prompt fills no whole block, and sharing saves nothing"
    )
    return (
        f"{branches} branches of {prompt} + {OUTPUT} tokens in blocks of {block_size}: {now['references']} references "
        f"to {plural(now['blocks'], 'physical block')}. Of these {what}."
    )
