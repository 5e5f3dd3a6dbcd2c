"""Figure of section 8.5.1: one round of greedy verification, from the draft to the KV that is taken back."""

from functools import cache

import plotly.graph_objects as go

from servelab import speculation
from servelab.checks import require_name
from servelab.engine import BlockPool, BlockTable
from servelab.figures.slots import GAP, HATCH, block_bars, listing, plural
from servelab.figures.style import COLORS, add_heading, color_key, describe, figure

STEPS = ("draft", "verify", "accept", "correct", "rollback")
PROMPT = "tuv"
TEXT = "abxyz"  # what the target writes behind the prompt
BLOCK_SIZE = 4
ROWS = ("draft", "target", "text", "KV")
# Colours tell who wrote a token: the draft, the target, or the prompt's author.
KINDS = {"draft": COLORS["weights"], "target": COLORS["decode"], "prompt": COLORS["free"], "kv": COLORS["kv"]}


def choice(decided: str) -> str:
    """The made-up target's next token: `TEXT`, and behind anything else the next letter of the alphabet."""
    return TEXT[len(decided)] if TEXT.startswith(decided) else chr(ord(decided[-1]) + 1)


@cache
def _round(draft):
    """The target's choices, the verification, and the block table in the middle and at the end of the round."""
    target = [choice(draft[:length]) for length in range(len(draft) + 1)]
    verification = speculation.verify_greedy(draft, target)
    tables = []
    for steps in range(3):
        state = speculation.SpeculativeState(PROMPT, BlockTable(BlockPool(4, BLOCK_SIZE)))
        if steps > 0:
            state.begin_round(draft)
        if steps > 1:
            state.end_round(verification)
        tables.append(state.table)
    return target, verification, tables


def verify_explorer(draft, step):
    """Counterpart of figure 8-29: a draft (a string of tokens) in one round, up to and with `step` of `STEPS`."""
    require_name("step", step, STEPS)
    target, verification, tables = _round(draft)
    done, start, kept = STEPS.index(step), len(PROMPT), verification.num_accepted
    table = tables[0 if done == 0 else 1 if done < 4 else 2]
    cells = [("text", place, token, "prompt") for place, token in enumerate(PROMPT)]
    for place, token in enumerate(draft):
        void = done >= 2 and place >= kept
        cells.append(("draft", start + place, token, "void" if void else "draft"))
    for place, token in enumerate(target if done else ()):
        cells.append(("target", start + place, token, "void" if done >= 2 and place > kept else "target"))
    decided = [(token, "draft") for token in draft[:kept]] + [(target[kept], "target")] * (done >= 3)
    if done >= 2:
        cells += [("text", start + place, token, kind) for place, (token, kind) in enumerate(decided)]
    fig = _draw_round(cells, table)
    text = "".join(token for row, _, token, _ in cells if row == "text")
    rows = [[row, " ".join(token for own, _, token, _ in cells if own == row) or "-"] for row in ROWS[:3]]
    rows += [["accepted", kept if done >= 2 else "-"], ["KV", table.num_tokens], ["blocks", listing(table.block_ids)]]
    alt = (
        f"After the step '{step}': draft {_spaced(draft)}, text {_spaced(text)}, KV of {table.num_tokens} tokens in "
        f"{plural(len(table.block_ids), 'block')}."
    )
    describe(fig, alt, (["", "value"], rows))
    return fig, _round_sentence(draft, step, target, verification, tables)


def _spaced(tokens):
    return " ".join(tokens) or "of no tokens"


def _draw_round(cells, table):
    fig = figure(height=300, barmode="overlay", margin={"l": 60, "t": 40})
    kv = [
        ("KV", place, width, "void" if kind == "unused" else "kv", block)
        for _, place, width, kind, block in block_bars([table])
    ]
    bars = [(row, place, 1, kind, token) for row, place, token, kind in cells] + kv
    for kind in (*KINDS, "void"):
        own = [bar for bar in bars if bar[3] == kind]
        void = kind == "void"
        fig.add_trace(
            go.Bar(
                orientation="h",
                y=[row for row, *_ in own],
                base=[place + GAP for _, place, *_ in own],
                x=[width - 2 * GAP for _, _, width, *_ in own],
                width=0.7,
                text=["" if void else bar[4] if bar[0] != "KV" else f"block {bar[4]}" for bar in own],
                textposition="inside",
                textangle=0,
                insidetextanchor="middle",
                insidetextfont={"color": "white", "size": 13},
                marker={"color": COLORS["unused"] if void else KINDS[kind], "pattern": HATCH if void else {}},
                hoverinfo="skip",
            )
        )
    void = [cell for cell in cells if cell[3] == "void"]
    fig.add_trace(  # on hatching, in the page's own colour
        go.Scatter(
            x=[place + 0.5 for _, place, *_ in void],
            y=[row for row, *_ in void],
            text=[f"<b>{token}</b>" for _, _, token, _ in void],
            mode="text",
            hoverinfo="skip",
        )
    )
    names = {"draft": "drafted", "target": "target's", "prompt": "prompt"}
    marks = color_key((KINDS[kind], name) for kind, name in names.items())
    add_heading(fig, f"{marks}   ▨ void, empty")
    ticks = list(range(0, 2 * BLOCK_SIZE + 1, 2))
    plain = {"showgrid": False, "fixedrange": True}
    fig.update_xaxes(title_text="position (one token each)", range=[0, 2 * BLOCK_SIZE], tickvals=ticks, **plain)
    fig.update_yaxes(categoryorder="array", categoryarray=ROWS[::-1], range=[-0.5, 3.5], **plain)
    return fig


def _round_sentence(draft, step, target, verification, tables):
    kept, count = verification.num_accepted, len(draft)
    if step == "draft":
        if not draft:
            return "There is no draft: this round is a plain decode step."
        return f"The draft {_spaced(draft)} is a guess. The KV of {tables[0].num_tokens} tokens lies in the blocks."
    if step == "verify":
        rows = plural(count + 1, "row")
        return (
            f"One target step feeds v{' and the draft' * bool(draft)}: {rows}, and the target's choice behind each: "
            f"{_spaced(target)}."
        )
    if step == "accept":
        if kept == count:
            return f"All {count} draft tokens are the target's choice." if draft else "There is nothing to accept."
        text = f"{kept} of {count} draft tokens are accepted. {draft[kept]} is wrong"
        if kept == count - 1:
            return text + "."
        agreeing = [place for place in range(kept + 1, count) if draft[place] == target[place]]
        return text + ", and all behind it rests on it and is void" + (", even where both agree." if agreeing else ".")
    if step == "correct":
        what = "corrects the first wrong token" if kept < count else "comes behind the draft, as a bonus"
        what = what if draft else "is the one token of a plain step"
        return f"The target's {target[kept]} {what}: {plural(kept + 1, 'token')} from one step of the target."
    returned, discarded = len(tables[1].block_ids) - len(tables[2].block_ids), verification.num_discarded
    text = f"The KV of {tables[2].num_tokens} tokens counts: of all but the last, which the next step feeds."
    if discarded:
        text += f" That of {plural(discarded, 'rejected token')} does not"
        text += f"; {plural(returned, 'block')} goes back to the pool." if returned else ", and will be overwritten."
    return text
