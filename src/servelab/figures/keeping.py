"""Figures of section 8.3.4: what keeping a prefix is worth, which ones a store keeps, and hits by size of the pool."""

import functools
import random

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from servelab import catalog, retention, reuse
from servelab.figures.slots import plural
from servelab.figures.style import COLORS, TEMPLATE, add_heading, color_key, describe, figure
from servelab.units import MIB

PROBABILITIES = [0.02, 0.05, 0.1, 0.2, 0.5, 0.9]
LINKS = {"PCIe Gen4 x16": "pcie4-x16", "PCIe Gen5 x16": "pcie5-x16", "NVLink-C2C": "nvlink-c2c"}
LENGTHS = [512, 2048, 6144, 32768]
LONG, SHORT, NUM_SHORT = 6144, 2048, 3  # tokens of prefix A and of each of the B's
OWN_PROBABILITIES = [0.2, 0.35, 0.5, 0.9]  # that a round asks for A
CAPACITIES = [576, 864, 1152, 1728]  # MiB
POLICIES = {
    "least recently used": "lru",
    "least often used": "lfu",
    "value": "value",
    "value per MiB": "value_density",
}
ROUNDS = 40
KINDS = {"A": "shared", "B": "kv", "asked once": "cost"}


def prefix(tokens: int, link: str = "pcie5-x16", probability: float = 0.5) -> retention.Prefix:
    """The first `tokens` tokens of a text for Qwen3-8B on an RTX PRO 6000, swapped out and back over `link`.

    Recomputed at the MFU that experiment 8-1 measured with one prompt of 2048 tokens.
    """
    mfu = catalog.record("batch-sweep").row(condition="2k_no_prefix", batch=1)["prefill_mfu"]
    parts = (catalog.model("qwen3-8b"), tokens, catalog.accelerator("rtx-pro-6000"), mfu, catalog.link(link))
    return retention.Prefix.of_model(*parts, hit_probability=probability)


def value_explorer(probability, link, tokens):
    """What a prefix costs to compute again, to fetch and to keep, and its value by hit probability."""
    kept = prefix(tokens, link, probability)
    times_ms = [1e3 * each for each in (kept.recompute_s, kept.fetch_s, kept.maintain_s)]
    even = retention.break_even_hit_probability(kept.recompute_s, kept.fetch_s, kept.maintain_s)
    fig = make_subplots(rows=2, row_heights=[0.36, 0.64], vertical_spacing=0.26)
    fig.update_layout(template=TEMPLATE, height=500)
    _add_times(fig, times_ms)
    shares = [step / 20 for step in range(21)]
    values = [1e3 * prefix(tokens, link, share).value_s for share in shares]
    _add_value(fig, shares, values, probability, 1e3 * kept.value_s)
    alt = (
        f"{tokens:,} tokens: {times_ms[0]:.1f} ms to compute again, {times_ms[1]:.1f} to fetch, {times_ms[2]:.1f} to "
        f"write out. The value rises from {values[0]:.1f} ms at a hit probability of 0 to {values[-1]:.1f} at 1 and "
        f"crosses 0 at {even:.1%}; at {probability:.0%} it is {1e3 * kept.value_s:.1f} ms."
    )
    times = [[name, f"{ms:.1f}"] for name, ms in zip(("compute again", "fetch", "write out"), times_ms, strict=True)]
    by_share = [[f"{share:.0%}", f"{value:.1f}"] for share, value in zip(shares[::2], values[::2], strict=True)]
    describe(fig, alt, (["what", "ms"], times), (["hit probability", "value (ms)"], by_share))
    verdict = "keep it" if kept.value_s > 0 else "drop it"
    return fig, (
        f"{tokens:,} tokens, {kept.size_bytes / MIB:.0f} MiB: value {1e3 * kept.value_s:.1f} ms a request at a hit "
        f"probability of {probability:.0%}, so {verdict}. It pays above {even:.1%}."
    )


def _add_times(fig, times_ms):
    names = ["compute again", "fetch", "write out"]
    fig.add_trace(
        go.Bar(
            orientation="h", y=names, x=times_ms, text=[f"{ms:.1f} ms" for ms in times_ms], textposition="auto",
            marker={"color": [COLORS["prefill"], COLORS["kv"], COLORS["kv"]]}, cliponaxis=False,
            hovertemplate="%{y}: %{x:.1f} ms<extra></extra>",
        ),
        row=1, col=1,
    )  # fmt: skip
    fig.update_xaxes(title_text="time (ms)", nticks=5, range=[0, 1.25 * max(times_ms)], fixedrange=True, row=1, col=1)
    fig.update_yaxes(autorange="reversed", showgrid=False, fixedrange=True, row=1, col=1)


def _add_value(fig, shares, values, probability, value_ms):
    fig.add_trace(
        go.Scatter(
            x=[100 * share for share in shares], y=values, mode="lines", line={"color": COLORS["shared"], "width": 2},
            hovertemplate="%{x} %: %{y:.1f} ms<extra></extra>",
        ),
        row=2, col=1,
    )  # fmt: skip
    color = COLORS["shared"] if value_ms > 0 else COLORS["cost"]
    fig.add_trace(
        go.Scatter(
            x=[100 * probability], y=[value_ms], mode="markers", cliponaxis=False, marker={"color": color, "size": 14},
            hovertemplate="%{x} %: %{y:.1f} ms<extra></extra>",
        ),
        row=2, col=1,
    )  # fmt: skip
    fig.add_hline(y=0, line={"color": COLORS["unused"], "width": 1, "dash": "dash"}, row=2, col=1)
    add_heading(fig, "value of keeping it (ms a request)", axis="2")
    fig.update_xaxes(title_text="hit probability (%)", range=[0, 100], nticks=6, fixedrange=True, row=2, col=1)
    fig.update_yaxes(nticks=5, fixedrange=True, row=2, col=1)


def same_room(probability: float = 0.5, link: str = "pcie5-x16"):
    """Counterpart of figure 8-22: the same room holds one long prefix or three short ones; what each saves.

    `probability`: of A; that of each B is 0.5. Widths are MiB.
    """
    a, b = prefix(LONG, link, probability), prefix(SHORT, link)
    rows = [("one A", [a], "shared"), ("three B", [b] * NUM_SHORT, "kv")]
    fig = figure(height=230, barmode="overlay")
    for name, kept, color in rows:
        starts = [sum(each.size_bytes for each in kept[:i]) / MIB for i in range(len(kept))]
        fig.add_trace(
            go.Bar(
                orientation="h", y=[name] * len(kept), base=[start + 4 for start in starts],
                x=[each.size_bytes / MIB - 8 for each in kept], marker={"color": COLORS[color]},
                text=[f"{1e3 * each.value_s:.1f} ms" for each in kept], textposition="inside", textangle=0,
                insidetextanchor="middle", insidetextfont={"color": "white"},
                hovertemplate="%{y}: %{text}<extra></extra>",
            )
        )  # fmt: skip
    totals = {name: 1e3 * sum(each.value_s for each in kept) for name, kept, _ in rows}
    sums = ", ".join(f"{name} {total:.1f} ms" for name, total in totals.items())
    add_heading(fig, f"saved: {sums}")
    fig.update_xaxes(title_text="room (MiB)", range=[0, a.size_bytes / MIB], dtick=288, fixedrange=True)
    fig.update_yaxes(autorange="reversed", showgrid=False, fixedrange=True)
    alt = (
        f"Two bars of {a.size_bytes // MIB} MiB. One prefix A of {LONG} tokens fills the first and saves "
        f"{totals['one A']:.1f} ms; three prefixes B of {SHORT} tokens fill the second and save "
        f"{totals['three B']:.1f} ms together."
    )
    table = [[name, len(kept), kept[0].size_bytes // MIB, f"{totals[name]:.1f}"] for name, kept, _ in rows]
    return describe(fig, alt, (["kept", "prefixes", "MiB each", "ms saved a round"], table))


def trace_of(probability: float) -> list[list[str]]:
    """`ROUNDS` lists of requests, each the id of its prefix, and in each round one that is never asked for again.

    A is in exactly `probability` of the rounds and each B in half, which ones is drawn: a higher probability only adds
    requests for A.
    """
    rng = random.Random("keep or drop")
    rounds = [[f"once {number}"] for number in range(ROUNDS)]
    shares = {"A": probability} | {f"B{i}": 0.5 for i in range(1, NUM_SHORT + 1)}
    for prefix_id, share in shares.items():
        for number in rng.sample(range(ROUNDS), ROUNDS)[: round(share * ROUNDS)]:
            rounds[number].append(prefix_id)
    for asked in rounds:
        asked.sort(key=lambda prefix_id: rng.random())
    return rounds


def prefixes_of(probability: float, link: str = "pcie5-x16") -> dict[str, retention.Prefix]:
    """What a store knows of each prefix in `trace_of`, the probability that it is asked for again included."""
    known = {"A": prefix(LONG, link, probability)}
    known |= {f"B{i}": prefix(SHORT, link) for i in range(1, NUM_SHORT + 1)}
    return known | {f"once {number}": prefix(SHORT, link, 0.0) for number in range(ROUNDS)}


@functools.cache
def run(probability: float, link: str, capacity_mib: int, policy: str) -> tuple[retention.PrefixStore, list[dict]]:
    """A store after `trace_of(probability)`, and the MiB of each of `KINDS` that it held after each round."""
    store = retention.PrefixStore(prefixes_of(probability, link), capacity_mib * MIB, policy)
    held = []
    for asked in trace_of(probability):
        for prefix_id in asked:
            store.use(prefix_id)
        sizes = dict.fromkeys(KINDS, 0)
        for prefix_id in store.kept:
            sizes[_kind(prefix_id)] += store.prefixes[prefix_id].size_bytes // MIB
        held.append(sizes)
    return store, held


def _kind(prefix_id: str) -> str:
    return "asked once" if prefix_id.startswith("once") else prefix_id[0]


def store_explorer(probability, link, capacity, policy):
    """What a store holds from round to round by one policy, and the time that each policy saves."""
    store, held = run(probability, link, capacity, policy)
    others = {name: run(probability, link, capacity, each)[0] for name, each in POLICIES.items()}
    fig = make_subplots(rows=2, row_heights=[0.55, 0.45], vertical_spacing=0.24)
    fig.update_layout(template=TEMPLATE, height=540, barmode="stack")
    for kind, color in KINDS.items():
        fig.add_trace(
            go.Bar(
                x=list(range(1, ROUNDS + 1)), y=[sizes[kind] for sizes in held], width=1,
                marker={"color": COLORS[color]},
                hovertemplate="round %{x}: %{y} MiB of " + kind + "<extra></extra>",
            ),
            row=1, col=1,
        )  # fmt: skip
    add_heading(fig, color_key((COLORS[color], kind) for kind, color in KINDS.items()))
    fig.update_xaxes(title_text="after round", range=[0.5, ROUNDS + 0.5], nticks=6, fixedrange=True, row=1, col=1)
    fig.update_yaxes(title_text="MiB held", range=[0, capacity], dtick=capacity // 2, fixedrange=True, row=1, col=1)
    _add_saved(fig, others, policy)
    hits = sum(store.hits)
    alt = (
        f"In {ROUNDS} rounds a store of {capacity} MiB ends with {held[-1]['A']} MiB of A, {held[-1]['B']} of B and "
        f"{held[-1]['asked once']} of prefixes asked once. Saved by policy: "
        + ", ".join(f"{name} {each.saved_s:.2f} s" for name, each in others.items())
        + "."
    )
    rows = [[name, sum(each.hits), each.evictions, f"{each.saved_s:.2f}"] for name, each in others.items()]
    describe(fig, alt, (["first to go", "hits", "evictions", "seconds saved"], rows))
    return fig, (
        f"{plural(hits, 'hit')} in {len(store.hits)} requests, {plural(store.evictions, 'eviction')}; "
        f"{store.saved_s:.2f} s saved. At the end {held[-1]['A']} MiB of A and {held[-1]['B']} of B are kept."
    )


def _add_saved(fig, stores, policy):
    saved = [store.saved_s for store in stores.values()]
    chosen = [1 if POLICIES[name] == policy else 0.45 for name in stores]
    fig.add_trace(
        go.Bar(
            orientation="h", y=list(stores), x=saved, marker={"color": COLORS["shared"], "opacity": chosen},
            text=[f"{seconds:.1f} s" for seconds in saved], textposition="outside", cliponaxis=False,
            hovertemplate="%{y}: %{x:.2f} s<extra></extra>",
        ),
        row=2, col=1,
    )  # fmt: skip
    add_heading(fig, f"saved in {ROUNDS} rounds", axis="2")
    span = [min(0.0, *saved), max(0.1, *saved)]
    room = 0.22 * (span[1] - span[0])  # for the numbers beside the bars
    span = [span[0] - (1.6 * room if span[0] < 0 else 0), span[1] + room]
    fig.update_xaxes(title_text="seconds", range=span, nticks=5, fixedrange=True, row=2, col=1)
    fig.update_yaxes(autorange="reversed", showgrid=False, fixedrange=True, row=2, col=1)


def pressure(pools: list[int], load_requests: int = 3, load_tokens: int = 4000):
    """Tokens of the twelve recorded turns that are found, by size of the pool in blocks of 16: alone, and with load."""
    texts = reuse.recorded_turns()
    loads = {"alone": 0, "with load": load_requests}
    found = {
        name: [sum(retention.replay_turns(texts, blocks, 16, requests, load_tokens)) for blocks in pools]
        for name, requests in loads.items()
    }
    fig = figure(height=300)
    for name, color in (("alone", "shared"), ("with load", "cost")):
        fig.add_trace(
            go.Scatter(
                x=pools, y=found[name], mode="lines+markers", line={"color": COLORS[color], "width": 2},
                marker={"size": 8, "symbol": "circle" if name == "alone" else "square"}, cliponaxis=False,
                hovertemplate="%{x} blocks " + name + ": %{y} tokens found<extra></extra>",
            )
        )  # fmt: skip
    add_heading(fig, color_key(((COLORS["shared"], "alone", "●"), (COLORS["cost"], "with load"))))
    fig.update_xaxes(title_text="pool (blocks of 16 tokens)", rangemode="tozero", nticks=6, fixedrange=True)
    fig.update_yaxes(title_text="tokens found", rangemode="tozero", nticks=5, fixedrange=True)
    alt = "; ".join(
        f"{blocks} blocks: {alone:,} alone, {load:,} with load"
        for blocks, alone, load in zip(pools, found["alone"], found["with load"], strict=True)
    )
    rows = [list(row) for row in zip(pools, found["alone"], found["with load"], strict=True)]
    return describe(fig, f"Tokens found in twelve turns. {alt}.", (["blocks", "alone", "with load"], rows))
