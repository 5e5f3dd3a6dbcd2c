"""Figures of section 8.3.3: where reuse resumes with recurrent checkpoints, and with sliding windows."""

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from servelab import catalog, reuse
from servelab.figures.slots import plural
from servelab.figures.style import COLORS, TEMPLATE, add_heading, color_key, describe
from servelab.units import MIB

CONTEXT = 10752  # tokens of the text whose states were kept
MATCHES = [1000, 4095, 4096, 8000, 10752]
SPACINGS = [256, 512, 1024, 2048, 4096, 8192]
HITS = {
    "global KV and encoder window": "global_and_window",
    "global KV only": "global_only",
    "neither": "none",
}
PREFIXES = [100, 1024, 8192, 65536]
APPENDED = [32, 1024]


def checkpoint_size() -> int:
    """Bytes of one checkpoint on one of eight cards, of the model in record "hybrid-state"."""
    return int(catalog.record("hybrid-state").rows[0]["kda_checkpoint_mib_per_card"] * MIB)


def checkpoints_explorer(matched, spacing):
    """Counterpart of figure 8-19: match, restored checkpoint and what is recomputed; memory against work."""
    kept = reuse.checkpoint_positions(CONTEXT, spacing)
    restored = reuse.restore_point(matched, kept)
    fig = make_subplots(rows=2, row_heights=[0.34, 0.66], vertical_spacing=0.32)
    fig.update_layout(template=TEMPLATE, height=500, barmode="stack")
    _add_restore(fig, matched, restored, kept)
    costs = [
        (each, reuse.checkpoint_bytes(CONTEXT, each, checkpoint_size()), reuse.mean_recomputed_tokens(CONTEXT, each))
        for each in SPACINGS
    ]
    _add_costs(fig, costs, spacing)
    mib = reuse.checkpoint_bytes(CONTEXT, spacing, checkpoint_size()) / MIB
    alt = (
        f"The text matches up to token {matched}. States are kept every {spacing} tokens; the one at {restored} is "
        f"restored and {matched - restored} tokens are computed again. Below, mean recomputed tokens fall from "
        f"{costs[-1][2]:.0f} to {costs[0][2]:.0f} while the states grow from {costs[-1][1] / MIB:.0f} to "
        f"{costs[0][1] / MIB:.0f} MiB a card."
    )
    rows = [
        [each, CONTEXT // each, f"{size / MIB:.0f}", f"{mean:.0f}", reuse.recomputed_tokens(matched, kept_at(each))]
        for each, size, mean in costs
    ]
    columns = ["spacing (tokens)", "states", "MiB a card", "recomputed, mean", f"recomputed at {matched}"]
    describe(fig, alt, (columns, rows))
    where = f"the state at {restored:,}" if restored else "nothing: no state lies before the match"
    take = "takes" if len(kept) == 1 else "take"
    return fig, (
        f"Match {matched:,}, restored {where}, {matched - restored:,} tokens computed again. "
        f"{plural(len(kept), 'state')} of this text {take} {mib:,.0f} MiB on each card."
    )


def kept_at(spacing: int) -> range:
    return reuse.checkpoint_positions(CONTEXT, spacing)


def _add_restore(fig, matched, restored, kept):
    for color, length in (("shared", restored), ("prefill", matched - restored), ("unused", CONTEXT - matched)):
        fig.add_trace(
            go.Bar(
                orientation="h", y=["text"], x=[length], width=0.5,
                marker={"color": COLORS[color], "opacity": 0.4 if color == "unused" else 1},
                hovertemplate="%{x} tokens<extra></extra>",
            ),
            row=1, col=1,
        )  # fmt: skip
    fig.add_trace(
        go.Scatter(
            x=list(kept), y=["text"] * len(kept), mode="markers", cliponaxis=False,
            marker={
                "symbol": "diamond", "size": [15 if at == restored else 8 for at in kept], "opacity": 1,
                "color": COLORS["weights"],
                "line": {"width": 1, "color": "white"},
            },
            hovertemplate="state after %{x} tokens<extra></extra>",
        ),
        row=1, col=1,
    )  # fmt: skip
    names = ((COLORS["shared"], "restored"), (COLORS["prefill"], "computed again"), (COLORS["weights"], "state", "◆"))
    add_heading(fig, color_key(names))
    fig.update_xaxes(
        title_text="tokens from the start", range=[0, 11000], tickvals=[0, 4096, 8192], showgrid=False,
        fixedrange=True, row=1, col=1,
    )  # fmt: skip
    fig.update_yaxes(visible=False, fixedrange=True, row=1, col=1)


def _add_costs(fig, costs, spacing):
    fig.add_trace(
        go.Scatter(
            x=[size / MIB for _, size, _ in costs], y=[mean for *_, mean in costs], mode="lines+markers+text",
            text=[f"{each:,}" for each, *_ in costs], textposition="top right", textfont={"size": 12},
            line={"color": COLORS["weights"], "width": 2}, cliponaxis=False,
            marker={
                "color": COLORS["weights"], "opacity": 1, "size": [15 if each == spacing else 7 for each, *_ in costs],
            },
            hovertemplate="every %{text}: %{x:.0f} MiB, %{y:.0f} tokens<extra></extra>",
        ),
        row=2, col=1,
    )  # fmt: skip
    add_heading(fig, "memory against work, by spacing (tokens)", axis="2")
    fig.update_xaxes(
        title_text="states of one text, each card (MiB)", type="log", range=[1.6, 3.65], fixedrange=True,
        tickvals=[50, 100, 500, 2000], row=2, col=1,
    )  # fmt: skip
    fig.update_yaxes(
        title_text="recomputed, mean", type="log", range=[1.9, 4], tickvals=[100, 1000, 5000], fixedrange=True,
        row=2, col=1,
    )  # fmt: skip


def windows_explorer(hit, prefix, appended):
    """Counterpart of figure 8-21: what encoder and decoder compute on the three recovery paths, and its size.

    Boxes are not to scale. The chosen path is drawn with full lines.
    """
    if hit not in HITS.values():
        raise ValueError(f"hit is {hit!r}; it must be one of {', '.join(HITS.values())}")
    paths = {path: reuse.recover(path, prefix, appended) for path in HITS.values()}
    fig = make_subplots(rows=2, row_heights=[0.7, 0.3], vertical_spacing=0.12)
    fig.update_layout(template=TEMPLATE, height=660, barmode="stack", margin={"l": 8, "r": 8, "t": 8, "b": 44})
    notes = [(col + 0.5, 3.1, title) for col, title in enumerate(("older prefix", "its window", "appended", "decoder"))]
    for row, path in enumerate(paths):
        notes += _add_path(fig, 2 - row, boxes(path, prefix, appended), path == hit)
    names = [f"{number}. found: {name}" for number, name in enumerate(HITS, 1)]
    names = [f"<b>{name}</b>" if path == hit else name for name, path in zip(names, paths, strict=True)]
    for words, size, place in (
        (notes, 12, "middle center"),
        (zip([0.04] * 3, [2.82, 1.82, 0.82], names, strict=True), 13, "middle right"),
    ):  # traces: faster to redraw than annotations
        x, y, text = zip(*words, strict=True)
        fig.add_trace(
            go.Scatter(
                x=x, y=y, text=text, mode="text", textposition=place, textfont={"size": size}, cliponaxis=False,
                hoverinfo="skip",
            ),
            row=1, col=1,
        )  # fmt: skip
    fig.update_xaxes(visible=False, range=[0, 4.05], fixedrange=True, row=1, col=1)
    fig.update_yaxes(visible=False, range=[-0.1, 3.2], fixedrange=True, row=1, col=1)
    _add_work(fig, paths, hit)
    now = paths[hit]
    alt = "; ".join(
        f"{name} found: the encoder takes {paths[path].encoder_tokens:,} tokens, the decoder "
        f"{paths[path].decoder_tokens}"
        for name, path in HITS.items()
    )
    rows = [
        [
            name, paths[path].replayed_tokens, paths[path].new_history_tokens, paths[path].decoder_tokens,
            paths[path].token_layers, "exact" if paths[path].is_encoder_exact else "approximate",
        ]
        for name, path in HITS.items()
    ]  # fmt: skip
    columns = ["found", "replayed", "new history", "through the decoder", "tokens x layers", "encoder's window"]
    describe(fig, f"Prefix {prefix:,}, appended {appended:,} tokens. {alt}.", (columns, rows))
    kept = f" {now.kept_outputs} of these outputs of the encoder must have been kept." if now.kept_outputs else ""
    exact = "exact" if now.is_encoder_exact else "approximate, as the replay does not see what came before it"
    return fig, (
        f"The encoder takes {now.encoder_tokens:,} tokens, {now.replayed_tokens} of them only to rebuild its window "
        f"(then {exact}). The decoder's is always approximate: it replays the last {now.decoder_tokens}.{kept} "
        f"In all {now.token_layers:,} tokens x layers."
    )


def boxes(path: str, prefix: int, appended: int) -> list[tuple[int, str]]:
    """Tokens, and "found", "replay", "compute" or "", of the older prefix, its last window, the rest, the decoder."""
    now = reuse.recover(path, prefix, appended)
    last = min(reuse.DEEPSEEK_V41.window, prefix)
    of_last = {"global_and_window": "found", "global_only": "replay", "none": "compute"}[path]
    of_older = "compute" if path == "none" else "found"
    older = prefix - last
    return [
        (older, of_older if older else ""),
        (last, of_last),
        (appended, "compute"),
        (now.decoder_tokens, "replay"),
    ]


FILLS = {"found": "shared", "replay": "weights", "compute": "prefill", "": "unused"}


def _add_path(fig, row, drawn, chosen) -> list[tuple[float, float, str]]:
    """Draw the boxes of one path; returns what is to be written, as (x, y, text)."""
    for col, (_, state) in enumerate(drawn):
        line = {"color": COLORS[FILLS[state]], "width": 4 if chosen else 2, "dash": "solid" if chosen else "dot"}
        corners = {"x0": col + 0.04, "x1": col + 0.96, "y0": row + 0.06, "y1": row + 0.62}
        fig.add_shape(type="rect", line=line, xref="x", yref="y", **corners)
    words = [f"{tokens:,}<br>{state}" if state else "none" for tokens, state in drawn]
    return [(col + 0.5, row + 0.34, text) for col, text in enumerate(words)]


def _add_work(fig, paths, hit):
    labels = ["1", "2", "3"]
    opacity = [1 if path == hit else 0.4 for path in paths]
    parts = (("encoder_token_layers", "prefill", "encoder"), ("decoder_token_layers", "weights", "decoder"))
    for key, color, name in parts:
        fig.add_trace(
            go.Bar(
                orientation="h", y=labels, x=[getattr(now, key) for now in paths.values()],
                marker={"color": COLORS[color], "opacity": opacity}, hovertemplate=name + ": %{x}<extra></extra>",
            ),
            row=2, col=1,
        )  # fmt: skip
    add_heading(fig, color_key((COLORS[color], name) for _, color, name in parts), axis="2")
    fig.update_xaxes(title_text="tokens x layers", nticks=5, fixedrange=True, row=2, col=1)
    fig.update_yaxes(autorange="reversed", type="category", showgrid=False, fixedrange=True, row=2, col=1)
