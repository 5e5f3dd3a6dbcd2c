"""Figures of section 8.3.3: what the turns of a conversation have in common, and what three kinds of edit leave."""

import functools

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from servelab import reuse
from servelab.checks import require_int
from servelab.figures.style import COLORS, TEMPLATE, add_heading, color_key, describe, figure

TURNS = [2, 4, 6, 8, 10, 12]
SYSTEM_TOKENS = 206  # what all recorded turns begin with
CLOCKS = {
    "nowhere": None,
    "before the first token": 0,
    f"behind the first {SYSTEM_TOKENS} tokens": SYSTEM_TOKENS,
    "behind the last token": "end",
}
MOST_LABELLED = 6  # turns whose bars are high enough for a number
HISTORIES = [2048, 4096, 8192, 16384, 32768]
NEW = 1024
CHANGES = {"the first token": 0, "a quarter of it": 0.25, "half of it": 0.5, "three quarters of it": 0.75}
SUMMARIES = [512, 1024, 2048]


def conversation(turns: int = 12, clock=None) -> list[list]:
    """The first `turns` recorded inputs. With `clock`, a position or "end", each has there a token of its own.

    Such a token is what a date and time in the prompt amounts to: another one in each turn.
    """
    texts = reuse.recorded_turns()
    require_int("turns", turns, minimum=1, maximum=len(texts))
    if clock is None:
        return texts[:turns]
    if clock != "end":
        require_int("clock", clock, maximum=SYSTEM_TOKENS)
    stamped = []
    for turn, text in enumerate(texts[:turns], 1):
        at = len(text) if clock == "end" else clock
        stamped.append([*text[:at], f"clock {turn}", *text[at:]])
    return stamped


@functools.cache
def _shared_and_rest(clock) -> list[tuple[int, int]]:
    """Of each turn: tokens in common with the turn before, and the rest."""
    texts = conversation(clock=clock)
    return [(common, len(text) - common) for text, common in zip(texts, reuse.common_prefixes(texts), strict=True)]


def turns_explorer(turns, clock):
    """Counterpart of figures 8-17 and 8-18: the prefix tree of the first turns, and each turn's common part and rest.

    In the tree each stored run of tokens is one bar, in the row of the turn that brought it.
    """
    texts = conversation(turns, clock)
    tree = reuse.prefix_tree(texts)
    fig = make_subplots(rows=2, row_heights=[0.56, 0.44], vertical_spacing=0.2)
    fig.update_layout(template=TEMPLATE, height=600, barmode="stack")
    _add_tree(fig, tree, texts)
    bars = _shared_and_rest(clock)
    _add_turns(fig, bars, turns)
    stored = tree.shared_tokens + tree.private_tokens
    alt = (
        f"Tree of {turns} inputs of together {tree.total_tokens:,} tokens. Stored: {tree.shared_tokens:,} tokens that "
        f"several turns share and {tree.private_tokens:,} of one turn each. Below, twelve bars: of turn 12, "
        f"{bars[-1][0]:,} tokens are those of turn 11 and {bars[-1][1]:,} are not."
    )
    nodes = [[turn_list(node.members), node.start, node.depth, node.edge_tokens] for node in tree.nodes]
    rows = [[turn, common + rest, common, rest] for turn, (common, rest) in enumerate(bars, 1)]
    describe(
        fig, alt, (["turns", "from token", "to token", "added"], nodes),
        (["turn", "input tokens", "in common with the turn before", "rest"], rows),
    )  # fmt: skip
    return fig, (
        f"{turns} inputs of together {tree.total_tokens:,} tokens. The tree stores {stored:,}; "
        f"{tree.saved_tokens:,} ({100 * tree.saved_tokens / tree.total_tokens:.0f} %) need not be computed again."
    )


def turn_list(members) -> str:
    """ "1", "3 to 4"; members of a conversation's tree are neighbours, counted from 0."""
    first, last = min(members) + 1, max(members) + 1
    return str(first) if first == last else f"{first} to {last}"


def _add_tree(fig, tree, texts):
    rows = [min(node.members) + 1 for node in tree.nodes]
    crosses = [  # from the row of the parent down to that of the node
        (node.start, rows[node.parent], row)
        for node, row in zip(tree.nodes, rows, strict=True)
        if node.parent is not None and rows[node.parent] != row
    ]
    fig.add_trace(
        go.Scatter(
            x=[x for start, *_ in crosses for x in (start, start, None)],
            y=[y for _, top, bottom in crosses for y in (top, bottom, None)],
            mode="lines", line={"color": COLORS["unused"], "width": 1.5}, hoverinfo="skip",
        ),
        row=1, col=1,
    )  # fmt: skip
    end = max(map(len, texts))
    least = 0.1 * end if len(texts) <= MOST_LABELLED else end  # a label needs a bar that is wide and high enough
    for color, shared in (("shared", True), ("prefill", False)):
        drawn = [(n, y) for n, y in zip(tree.nodes, rows, strict=True) if (len(n.members) > 1) == shared]
        fig.add_trace(
            go.Bar(
                orientation="h", y=[y for _, y in drawn], base=[node.start for node, _ in drawn],
                x=[node.edge_tokens for node, _ in drawn], width=0.62, marker={"color": COLORS[color]},
                text=[_added(node) if node.edge_tokens > least else "" for node, _ in drawn],
                textposition="inside", textangle=0, insidetextanchor="middle", insidetextfont={"color": "white"},
                hovertemplate="%{x} tokens from %{base}<extra></extra>",
            ),
            row=1, col=1,
        )  # fmt: skip
    fig.add_trace(
        go.Scatter(
            x=[len(text) for text in texts], y=list(range(1, len(texts) + 1)), mode="text",
            text=[f" {len(text):,}" for text in texts], textposition="middle right", textfont={"size": 12},
            cliponaxis=False, hoverinfo="skip",
        ),
        row=1, col=1,
    )  # fmt: skip
    names = ((COLORS["shared"], "of several turns"), (COLORS["prefill"], "of one"))
    add_heading(fig, color_key(names))
    fig.update_xaxes(title_text="tokens from the start", range=[0, 1.16 * end], nticks=5, fixedrange=True, row=1, col=1)
    fig.update_yaxes(
        title_text="turn", range=[len(texts) + 0.6, 0.4], showgrid=False, fixedrange=True, row=1, col=1,
        tickvals=list(range(1, len(texts) + 1)),
    )  # fmt: skip


def _added(node) -> str:
    return f"+{node.edge_tokens}" if node.start else str(node.edge_tokens)


def _add_turns(fig, bars, turns):
    opacity = [1 if turn <= turns else 0.4 for turn in range(1, len(bars) + 1)]
    for part, color in ((0, "shared"), (1, "prefill")):
        fig.add_trace(
            go.Bar(
                x=list(range(1, len(bars) + 1)), y=[bar[part] for bar in bars],
                marker={"color": COLORS[color], "opacity": opacity},
                hovertemplate="turn %{x}: %{y} tokens<extra></extra>",
            ),
            row=2, col=1,
        )  # fmt: skip
    names = ((COLORS["shared"], "in common with the turn before"), (COLORS["prefill"], "rest"))
    add_heading(fig, color_key(names), axis="2")
    fig.update_xaxes(title_text="turn", dtick=1, showgrid=False, fixedrange=True, row=2, col=1)
    fig.update_yaxes(title_text="tokens", nticks=5, fixedrange=True, row=2, col=1)


def edits(history: int, changed: float, summary: int) -> dict[str, reuse.ContextEdit]:
    """Three ways to go on with `history` tokens and `NEW` ones; `changed` is where a rewrite begins, of the history."""
    return {
        "append": reuse.append_context(history, NEW),
        "rewrite": reuse.rewrite_context(history, NEW, first_changed=int(changed * history)),
        "summarize": reuse.summarize_context(history, NEW, summary),
    }


def edits_explorer(history, changed, summary):
    """Counterpart of figure 8-20: what is reused, processed and generated when a context is edited in three ways."""
    ways = edits(history, changed, summary)
    steps = [("append", ways["append"].reused_tokens, ways["append"].processed_tokens, 0)]
    steps += [("rewrite", ways["rewrite"].reused_tokens, ways["rewrite"].processed_tokens, 0)]
    steps += [("summary 1", history, 0, ways["summarize"].generated_tokens)]
    steps += [("summary 2", ways["summarize"].reused_tokens, ways["summarize"].processed_tokens, 0)]
    fig = figure(height=310, barmode="stack", uniformtext={"minsize": 10, "mode": "hide"})
    names = (("shared", "reused"), ("prefill", "processed"), ("decode", "generated"))
    for column, (color, name) in enumerate(names, 1):
        fig.add_trace(
            go.Bar(
                orientation="h", y=[step[0] for step in steps], x=[step[column] for step in steps],
                marker={"color": COLORS[color]}, text=[f"{step[column]:,}" if step[column] else "" for step in steps],
                textposition="inside", textangle=0, insidetextanchor="middle", insidetextfont={"color": "white"},
                hovertemplate="%{y}: %{x} tokens " + name + "<extra></extra>",
            )
        )  # fmt: skip
    add_heading(fig, color_key((COLORS[color], name) for color, name in names))
    fig.update_xaxes(title_text="tokens from the start", nticks=5, fixedrange=True)
    fig.update_yaxes(autorange="reversed", showgrid=False, fixedrange=True)
    parts = [
        f"{name}: {reused} reused, {processed} processed, {made} generated" for name, reused, processed, made in steps
    ]
    alt = "Three ways to edit a context, the last in two steps. " + "; ".join(parts) + "."
    describe(fig, alt, (["step", "reused", "processed", "generated"], [list(step) for step in steps]))
    text = (
        f"Append processes {NEW:,} tokens. The rewrite, from token {ways['rewrite'].reused_tokens:,} on, processes "
        f"{ways['rewrite'].processed_tokens:,}. The summary is {summary:,} tokens, written one by one; then "
        f"{ways['summarize'].processed_tokens:,} are processed, and the context is "
        f"{ways['append'].context_tokens - ways['summarize'].context_tokens:,} tokens shorter."
    )
    return fig, text
