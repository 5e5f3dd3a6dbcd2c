"""Figures of section 8.2.3: the pairs of query and key of a chunk, and what each chunk of a prompt takes."""

from dataclasses import replace
from functools import cache

import plotly.graph_objects as go

from servelab import catalog
from servelab.checks import require_int
from servelab.cost import StepCost, causal_pairs
from servelab.figures.slots import plural
from servelab.figures.style import COLORS, add_heading, color_key, describe, figure

NEW_TOKENS = [1, 2, 4, 6]
CONTEXTS = [0, 4, 8, 12]
CHUNKS = [128, 256, 512, 1024, 2048, 4096, 8192]
PROMPTS = [2048, 8192, 32768]
FIXED_MS = {"12.9 ms, as in 8-2": 12.936, "26.2 ms, fitted to 8-1": 26.22}
FUTURE = "rgba(134,134,134,0.22)"  # pairs that are not computed
PARTS = {"fixed part": "weights", "by tokens": "prefill", "by pairs": "kv"}


def pairs_explorer(new_tokens, context):
    """Counterpart of figures 8-8 and 8-9: which keys each new token's query meets."""
    require_int("new_tokens", new_tokens, minimum=1, maximum=max(NEW_TOKENS))
    require_int("context", context, maximum=max(CONTEXTS))
    width = context + new_tokens
    grid = [
        [0 if key < context else 1 if key <= context + row else 2 for key in range(width)] for row in range(new_tokens)
    ]
    counts = [sum(row.count(kind) for row in grid) for kind in range(3)]
    colors = (COLORS["kv"], COLORS["prefill"], FUTURE)
    fig = figure(height=290)
    fig.add_trace(
        go.Heatmap(
            x=list(range(width)), y=list(range(new_tokens)), z=grid, zmin=0, zmax=2, xgap=3, ygap=3, showscale=False,
            colorscale=[[place, color] for i, color in enumerate(colors) for place in (i / 3, (i + 1) / 3)],
            hovertemplate="new token %{y} looks at position %{x}<extra></extra>",
        )
    )  # fmt: skip
    names = (f"{counts[0]} with context", f"{counts[1]} among the new", "unseen")
    add_heading(fig, color_key(zip(colors, names, strict=True)))
    ticks = {"showgrid": False, "fixedrange": True}
    fig.update_xaxes(
        title_text="position that is looked at", range=[-0.6, max(CONTEXTS) + max(NEW_TOKENS) - 0.4], **ticks
    )
    fig.update_xaxes(tickvals=list(range(0, 20, 4)))
    fig.update_yaxes(
        title_text="new token", range=[max(NEW_TOKENS) - 0.4, -0.6], tickvals=list(range(new_tokens)), **ticks
    )
    total = causal_pairs(new_tokens, context)
    rows = [[row, context + row, context, row + 1, context + row + 1] for row in range(new_tokens)]
    columns = ["new token", "position", "pairs with the context", "pairs among the new", "pairs"]
    alt = (
        f"{plural(new_tokens, 'new token')} behind {context}: a rectangle of {counts[0]} pairs with the context and a "
        f"staircase of {counts[1]} among the new tokens, {total} in all."
    )
    text = f"{plural(new_tokens, 'new token')} behind {context}: {counts[0]} + {counts[1]} = {plural(total, 'pair')}."
    if context:
        text += f" Without context it would be {counts[1]}."
    return describe(fig, alt, (columns, rows)), text


@cache
def step_cost(fixed_ms: float = 26.22) -> StepCost:
    """The cost fitted to experiment 8-1, its fixed part replaced by `fixed_ms`."""
    return replace(catalog.step_cost("rtx-pro-6000", "qwen3-8b"), fixed_s=fixed_ms / 1e3)


def cut(prompt: int, chunk: int) -> list[tuple[int, int]]:
    """(new tokens, context) of each chunk of a prompt."""
    require_int("prompt", prompt, minimum=1)
    require_int("chunk", chunk, minimum=1)
    return [(min(chunk, prompt - start), start) for start in range(0, prompt, chunk)]


def chunks_explorer(chunk, prompt, fixed_part):
    """What each chunk of a prompt takes by the step cost, in its three parts, beside experiment 8-2's record."""
    cost = step_cost(fixed_part)
    rows = cut(prompt, chunk)
    parts = {
        "fixed part": [fixed_part for _ in rows],
        "by tokens": [1e3 * cost.per_new_token_s * count for count, _ in rows],
        "by pairs": [1e3 * cost.per_causal_pair_s * causal_pairs(*row) for row in rows],
    }
    times = [1e3 * cost.seconds([row]) for row in rows]
    fig = figure(height=360, barmode="stack", bargap=0, margin={"r": 26})  # room for the last tick label
    for name, values in parts.items():
        fig.add_trace(_part(rows, [round(value, 2) for value in values], name))
    recorded = recorded_chunks(prompt) if chunk == 512 else []
    fig.add_trace(
        go.Scatter(
            x=[row["history_tokens"] + 256 for row in recorded],
            y=[row["step_ms_median"] for row in recorded],
            mode="markers",
            marker={"symbol": "diamond", "size": 8, "color": COLORS["free"], "line": {"width": 1, "color": "white"}},
            hovertemplate="recorded: %{y:.1f} ms<extra></extra>",
        )
    )
    key = color_key((COLORS[color], name) for name, color in PARTS.items())
    add_heading(fig, f"{key}   ◆ recorded" if recorded else key)
    fig.update_xaxes(title_text="position in the prompt (tokens)", range=[0, prompt], fixedrange=True)
    fig.update_xaxes(tickvals=[prompt * part // 4 for part in range(5)], tickformat=",")
    fig.update_yaxes(title_text="time of the step (ms)", rangemode="tozero", nticks=5, fixedrange=True)
    whole = 1e3 * cost.seconds([(prompt, 0)])
    return describe(fig, *_described(rows, times, whole, recorded)), _sentence(rows, times, whole, recorded)


def _part(rows, values, name):
    """One part of each chunk's time: a bar each, or where bars would be hairlines, one area in steps."""
    look = {"hovertemplate": name + ": %{y:.1f} ms<extra></extra>"}
    color = COLORS[PARTS[name]]
    if len(rows) > 64:
        starts = [context for _, context in rows]
        return go.Scatter(
            x=[*starts, sum(rows[-1])], y=[*values, values[-1]], stackgroup="parts", mode="lines", fillcolor=color,
            line={"shape": "hv", "width": 0}, hoveron="points", **look,
        )  # fmt: skip
    gap = 0.08 * rows[0][0]
    return go.Bar(
        x=[context + count / 2 for count, context in rows], y=values, width=[count - gap for count, _ in rows],
        marker={"color": color}, **look,
    )  # fmt: skip


def recorded_chunks(prompt: int) -> list[dict]:
    """The rows of experiment 8-2's record that lie within a prompt; it has one prompt of 8192 in chunks of 512."""
    return [row for row in catalog.record("chunk-history").rows if row["history_tokens"] < prompt]


def _described(rows, times, whole, recorded):
    listed = sorted({0, len(rows) // 4, len(rows) // 2, 3 * len(rows) // 4, len(rows) - 1})
    table = [
        [
            i + 1, *rows[i], f"{causal_pairs(*rows[i]):,}", f"{times[i]:.1f}",
            f"{recorded[i]['step_ms_median']:.1f}" if i < len(recorded) else "",
        ]
        for i in listed
    ]  # fmt: skip
    columns = ["chunk", "new tokens", "context", "pairs", "ms", "recorded (ms)"]
    alt = (
        f"{plural(len(rows), 'chunk')} of up to {rows[0][0]} tokens: the first takes {times[0]:.1f} ms, the last "
        f"{times[-1]:.1f} ms, all {sum(times):.0f} ms; the prompt in one step {whole:.0f} ms."
    )
    return alt, (columns, table)


def _sentence(rows, times, whole, recorded):
    if len(rows) == 1:
        text = f"The whole prompt in one step: {whole:.0f} ms. Whoever decodes beside it waits as long."
    else:
        text = (
            f"{len(rows)} chunks of {rows[0][0]}: the first takes {times[0]:.1f} ms, the last {times[-1]:.1f}, "
            f"all together {sum(times):.0f} ms. In one step: {whole:.0f} ms."
        )
    if recorded:
        first, last = recorded[0]["step_ms_median"], recorded[-1]["step_ms_median"]
        text += f" Recorded up to {recorded[-1]['history_tokens']} tokens of context: {first:.1f} to {last:.1f} ms."
    return text


def relative_times(seconds, pairs):
    """Measured times of equal chunks, the first being 1, beside their pairs, the first being 1."""
    if len(seconds) != len(pairs) or not seconds:
        raise ValueError(f"seconds has {len(seconds)} values, pairs {len(pairs)}; allowed is one of each a chunk")
    times, work = ([value / values[0] for value in values] for values in (seconds, pairs))
    numbers = list(range(1, len(times) + 1))
    fig = figure(height=300)
    for name, values, color in (("pairs", work, "kv"), ("measured time", times, "prefill")):
        fig.add_trace(
            go.Scatter(
                x=numbers, y=values, mode="lines+markers", line={"color": COLORS[color], "width": 2},
                marker={"size": 8}, cliponaxis=False,
                hovertemplate=f"chunk %{{x}}: %{{y:.1f}} times, {name}<extra></extra>",
            )
        )  # fmt: skip
    add_heading(fig, color_key(((COLORS["prefill"], "measured time", "●"), (COLORS["kv"], "pairs", "●"))))
    fig.update_xaxes(title_text="chunk", tickvals=numbers, fixedrange=True)
    fig.update_yaxes(title_text="first chunk = 1", rangemode="tozero", nticks=5, fixedrange=True)
    table = [[n, f"{t:.2f}", f"{w:.1f}"] for n, t, w in zip(numbers, times, work, strict=True)]
    alt = (
        f"From the first of {len(times)} equal chunks to the last the pairs grow {work[-1]:.1f} times, "
        f"the measured time {times[-1]:.1f} times."
    )
    return describe(fig, alt, (["chunk", "time, first = 1", "pairs, first = 1"], table))
