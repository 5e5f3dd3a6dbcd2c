"""Figures of section 8.5.3: rounds of drafts from different sources, and what a token costs. Times are milliseconds."""

from bisect import bisect_left

from plotly.subplots import make_subplots

from servelab import catalog, speculation
from servelab.checks import require_name, require_number
from servelab.figures.style import COLORS, TEMPLATE, add_heading, color_key, describe, figure
from servelab.units import GIB

STEP = catalog.record("batch-sweep").row(condition="2k_no_prefix", batch=1)
DECODE_MS = STEP["decode_step_ms"]
BANDWIDTH = STEP["nominal_read_bytes_per_step"] / (DECODE_MS / 1e3)  # bytes a second that this step reached
LOOKUP_MS = 0.1  # assumed
SOURCES = {"lookup": "look-up", "serial": "serial", "parallel": "parallel"}
DRAFT, VERIFY, PLAIN = COLORS["weights"], COLORS["decode"], COLORS["unused"]
LINES = {"lookup": "shared", "serial": "cost", "parallel": "weights"}  # colours of the sources
RATES = [n / 20 for n in range(21)]  # where lines are drawn


def forward_ms(weights_gib: float) -> float:
    """One forward of a draft network: its weights, read as fast as a decode step of one request reads."""
    require_number("weights_gib", weights_gib, above=True)
    return 1e3 * weights_gib * GIB / BANDWIDTH


def draft_ms(source: str, weights_gib: float, draft_length: int) -> float:
    unit_ms = LOOKUP_MS if source == "lookup" else forward_ms(weights_gib)
    return speculation.draft_s(source, unit_ms, draft_length)


def ms_per_token(source: str, weights_gib: float, acceptance: float, draft_length: int) -> float:
    tokens = speculation.expected_tokens(acceptance, draft_length)
    return speculation.time_per_token([draft_ms(source, weights_gib, draft_length) + DECODE_MS], [tokens])


def equal_acceptance(source: str, weights_gib: float, ms: float, draft_length: int) -> float | None:
    """The least acceptance, to a thousandth, at which `source` takes at most `ms` a token; None if it never does."""

    def fast_enough(thousandths):
        return ms_per_token(source, weights_gib, thousandths / 1000, draft_length) <= ms

    at = bisect_left(range(1001), True, key=fast_enough)
    return at / 1000 if at <= 1000 else None


def source_explorer(source, weights_gib, acceptance, draft_length):
    """One round on a time axis, above time for each token against acceptance, for all sources."""
    require_name("source", source, SOURCES)
    own = draft_ms(source, weights_gib, draft_length)
    tokens = speculation.expected_tokens(acceptance, draft_length)
    own_ms = ms_per_token(source, weights_gib, acceptance, draft_length)
    fig = make_subplots(rows=2, row_heights=[0.2, 0.8], vertical_spacing=0.3)
    fig.update_layout(template=TEMPLATE, height=450, barmode="overlay", margin={"l": 56, "t": 54})
    parts = draft_length if source == "serial" else 1
    bars = [(part * own / parts, own / parts, DRAFT) for part in range(parts)] + [(own, DECODE_MS, VERIFY)]
    fig.add_bar(
        orientation="h", y=["round"] * len(bars), base=[at for at, *_ in bars], x=[width for _, width, _ in bars],
        marker={"color": [color for *_, color in bars], "line": {"width": 1, "color": "white"}},
        hovertemplate="%{x:.2f} ms from %{base:.2f}<extra></extra>", row=1, col=1,
    )  # fmt: skip
    marks = color_key([(DRAFT, f"draft {own:.2f}"), (VERIFY, f"verify {DECODE_MS}")])
    add_heading(fig, f"one round: {own + DECODE_MS:.2f} ms<br>{marks}", align="left")
    fig.update_xaxes(title_text="ms", range=[0, 90], nticks=7, fixedrange=True, row=1, col=1)
    fig.update_yaxes(visible=False, fixedrange=True, row=1, col=1)
    rows, top = [], 40
    for name, label in SOURCES.items():
        top = max(top, 1.05 * ms_per_token(name, weights_gib, 0, draft_length))
        color = COLORS[LINES[name]]
        fig.add_scatter(
            x=RATES, y=[ms_per_token(name, weights_gib, rate, draft_length) for rate in RATES], mode="lines",
            line={"color": color, "width": 4 if name == source else 2}, row=2, col=1,
            hovertemplate=f"{label}, %{{x}}: %{{y:.1f}} ms<extra></extra>",
        )  # fmt: skip
        same = equal_acceptance(name, weights_gib, own_ms, draft_length)
        ms = draft_ms(name, weights_gib, draft_length)
        reached = "never" if same is None else f"{same:.2f}"
        rows.append([label, f"{ms:.2f}", f"{ms_per_token(name, weights_gib, acceptance, draft_length):.2f}", reached])
    fig.add_scatter(
        x=[0, 1], y=[DECODE_MS] * 2, mode="lines", line={"color": PLAIN, "dash": "dash", "width": 2},
        hoverinfo="skip", row=2, col=1,
    )  # fmt: skip
    fig.add_scatter(
        x=[acceptance], y=[own_ms], mode="markers+text", text=[f"<b>{own_ms:.3g}</b>"],
        textposition="top right" if acceptance < 0.8 else "top left", textfont={"size": 13}, hoverinfo="skip",
        marker={"size": 12, "color": COLORS[LINES[source]]}, row=2, col=1,
    )  # fmt: skip
    names = color_key([*((COLORS[LINES[name]], label) for name, label in SOURCES.items()), (PLAIN, "plain", "╌")])
    add_heading(fig, names, axis="2")
    fig.update_xaxes(title_text="acceptance of each draft token", range=[0, 1], nticks=6, fixedrange=True, row=2, col=1)
    fig.update_yaxes(title_text="ms for each token", range=[0, top], nticks=6, fixedrange=True, row=2, col=1)
    alt = (
        f"Drafting {draft_length} tokens takes {own:.2f} ms, verifying {DECODE_MS}; {tokens:.2f} tokens a round make "
        f"{own_ms:.2f} ms a token. Plain decode takes {DECODE_MS}."
    )
    columns = ["source", "drafting (ms)", f"ms a token at {acceptance:g}", f"acceptance for {own_ms:.2f} ms"]
    describe(fig, alt, (columns, rows))
    return fig, _sentence(source, weights_gib, draft_length, own_ms, tokens)


def _sentence(source, weights_gib, draft_length, own_ms, tokens):
    forward = forward_ms(weights_gib)
    what = {
        "lookup": f"A look-up of {LOOKUP_MS} ms reads no weights",
        "serial": f"{draft_length} forwards of {forward:.2f} ms, one a token",
        "parallel": f"One forward of {forward:.2f} ms for the {draft_length} tokens",
    }[source]
    verdict = "faster" if own_ms < DECODE_MS else "slower"
    text = f"{what}; {tokens:.2f} tokens a round, {own_ms:.2f} ms a token: {verdict} than plain decode."
    if source == "serial":
        same = equal_acceptance("parallel", weights_gib, own_ms, draft_length)
        if same == 0:
            return f"{text} Drafting in parallel is faster even if nothing is accepted."
        return f"{text} Drafting in parallel is as fast with acceptance {same:.2f}."
    if source == "parallel":
        same = equal_acceptance("serial", weights_gib, own_ms, draft_length)
        rest = "Serial drafting never gets there" if same is None else f"Serial drafting needs acceptance {same:.2f}"
        return f"{text} {rest}."
    return text


def rounds_by_source(rounds: dict):
    """A bar for each name: `rounds` of (drafting ms, verifying ms, tokens), and what they make for each token."""
    for name, (drafting, verifying, tokens) in rounds.items():
        require_number(f"drafting of {name}", drafting)
        require_number(f"verifying of {name}", verifying)
        require_number(f"tokens of {name}", tokens, minimum=1)
    names, totals = list(rounds), [drafting + verifying for drafting, verifying, _ in rounds.values()]
    fig = figure(height=126 + 52 * len(rounds), barmode="stack", margin={"l": 96, "t": 58})
    for part, color in ((0, DRAFT), (1, VERIFY)):
        fig.add_bar(
            orientation="h", y=names, x=[times[part] for times in rounds.values()], marker={"color": color},
            hovertemplate="%{y}: %{x:.2f} ms<extra></extra>",
        )  # fmt: skip
    for name, total in zip(names, totals, strict=True):
        tokens = rounds[name][2]
        label = f"÷ {tokens:.3g} = <b>{total / tokens:.3g}</b>"
        fig.add_annotation(x=total, y=name, text=label, xanchor="left", showarrow=False, font={"size": 13}, xshift=4)
    add_heading(
        fig, color_key([(DRAFT, "drafting"), (VERIFY, "verifying")]) + "<br>÷ tokens = ms a token", align="left"
    )
    fig.update_xaxes(title_text="ms a round", range=[0, 1.5 * max(totals)], nticks=5, fixedrange=True)
    fig.update_yaxes(autorange="reversed", showgrid=False, fixedrange=True)
    rows = [
        [name, f"{drafting:.2f}", f"{verifying:.2f}", f"{tokens:.2f}", f"{(drafting + verifying) / tokens:.2f}"]
        for name, (drafting, verifying, tokens) in rounds.items()
    ]
    alt = "; ".join(f"{row[0]}: {row[1]} + {row[2]} ms for {row[3]} tokens, {row[4]} ms a token" for row in rows)
    columns = ["", "drafting (ms)", "verifying (ms)", "tokens a round", "ms a token"]
    return describe(fig, f"Drafting and verifying, by source. {alt}.", (columns, rows))
