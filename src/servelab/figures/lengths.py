"""Figures of section 8.5.4: how long a draft should be, and where drafts lose. Times are milliseconds."""

from itertools import accumulate
from operator import mul

from plotly.subplots import make_subplots

from servelab import catalog, cost, speculation
from servelab.checks import require_int, require_name
from servelab.figures.drafters import DRAFT, PLAIN, draft_ms
from servelab.figures.slots import HATCH
from servelab.figures.style import COLORS, TEMPLATE, add_heading, color_key, describe, figure

LONGEST = 15
CONTEXT = 512  # tokens of each request
DRAFT_GIB = catalog.record("dflash-draft-model").rows[0]["weight_gib"]
STEP_COST = catalog.step_cost("rtx-pro-6000", "qwen3-8b")
CAPTURED = tuple(2**n for n in range(13))
SHAPES = ("look-up", "look-up, padded rows", "serial network", "serial network, groups of 4")


def recorded_acceptance(configuration: str) -> list[float]:
    """Conditional acceptance by position, from the timed rounds of experiment 8-5 (one request of short maths)."""
    rows = catalog.record("dflash-times").where(configuration=configuration)
    accepted = [row["accepted_draft_tokens"] for row in rows]
    return [float(rate) for rate in speculation.measured_acceptance(accepted, rows[0]["draft_tokens"])]


def profiles() -> dict[str, list[float]]:
    """Conditional acceptance of each of 15 draft tokens, by name; all but the last are assumed."""
    return {
        "always 0.8": [0.8] * LONGEST,
        "always 0.4": [0.4] * LONGEST,
        "falling: 0.9, 0.81, ...": [0.9**position for position in range(1, LONGEST + 1)],
        "recorded: DFlash, 11 rounds": recorded_acceptance("dflash_k15"),
    }


def round_ms(draft_length: int, batch: int, shapes: str) -> float:
    """One round of `batch` requests: the fitted step cost of all rows, padding included, and drafting."""
    require_name("shapes", shapes, SHAPES)
    require_int("batch", batch, minimum=1)
    rows = [(draft_length + 1, CONTEXT)] * batch
    if "padded" in shapes:
        count = batch * (draft_length + 1)
        rows += [(1, 0)] * (cost.padded_rows(count, CAPTURED) - count)
    source = "lookup" if shapes.startswith("look-up") else "serial"
    drafted = -(-draft_length // 4) * 4 if "groups" in shapes else draft_length
    return 1e3 * STEP_COST.seconds(rows) + draft_ms(source, DRAFT_GIB, drafted)


def length_explorer(profile, shapes, batch):
    """The share of rounds that keep each draft token, above time for each token of a request against draft length."""
    require_name("profile", profile, profiles())
    acceptance = profiles()[profile]
    lengths = range(LONGEST + 1)
    times = [round_ms(length, batch, shapes) for length in lengths]
    tokens = [speculation.expected_tokens(acceptance, length) for length in lengths]
    per_token = [ms / count for ms, count in zip(times, tokens, strict=True)]
    best = speculation.best_length(acceptance, times.__getitem__, lengths)
    kept = list(accumulate(acceptance, mul))
    fig = make_subplots(rows=2, row_heights=[0.34, 0.66], vertical_spacing=0.27)
    fig.update_layout(template=TEMPLATE, height=460, margin={"l": 56})
    fig.add_bar(
        x=list(lengths[1:]), y=kept, marker={"color": DRAFT},
        hovertemplate="token %{x} is kept in %{y:.3f} of rounds<extra></extra>", row=1, col=1,
    )  # fmt: skip
    add_heading(fig, "share of rounds that keep draft token j")
    fig.update_xaxes(title_text="j", range=[-0.6, LONGEST + 0.6], dtick=5, fixedrange=True, row=1, col=1)
    fig.update_yaxes(title_text="share", range=[0, 1], tickvals=[0, 0.5, 1], fixedrange=True, row=1, col=1)
    fig.add_scatter(
        x=list(lengths), y=per_token, mode="lines+markers", line={"color": DRAFT, "width": 2}, marker={"size": 6},
        hovertemplate="%{x} draft tokens: %{y:.2f} ms<extra></extra>", row=2, col=1,
    )  # fmt: skip
    fig.add_scatter(
        x=[-0.6, LONGEST + 0.6], y=[per_token[0]] * 2, mode="lines", hoverinfo="skip",
        line={"color": PLAIN, "dash": "dash", "width": 2}, row=2, col=1,
    )  # fmt: skip
    fig.add_scatter(
        x=[best], y=[per_token[best]], mode="markers+text", text=[f"<b>{per_token[best]:.3g}</b>"], hoverinfo="skip",
        textposition=f"bottom {'right' if best < 2 else 'left' if best > 12 else 'center'}", textfont={"size": 13},
        marker={"color": COLORS["shared"], "size": 12}, row=2, col=1,
    )  # fmt: skip
    marks = [(DRAFT, "drafts"), (PLAIN, f"none, {per_token[0]:.3g} ms", "╌"), (COLORS["shared"], "best", "●")]
    add_heading(fig, color_key(marks), axis="2")
    fig.update_xaxes(title_text="draft length (tokens)", range=[-0.6, LONGEST + 0.6], dtick=5, row=2, col=1)
    top = max(40, 1.1 * max(per_token))
    fig.update_yaxes(title_text="ms for each token", range=[0, top], nticks=6, row=2, col=1)
    fig.update_xaxes(fixedrange=True)
    fig.update_yaxes(fixedrange=True)
    table = [
        [length, f"{tokens[length]:.2f}", f"{times[length]:.1f}", f"{per_token[length]:.2f}"] for length in lengths
    ]
    factor = per_token[0] / per_token[best]
    alt = (
        f"{batch} requests at once: the least time a token is {per_token[best]:.2f} ms with drafts of {best}; "
        f"{per_token[0]:.2f} ms without drafts, {per_token[-1]:.2f} with drafts of {LONGEST}."
    )
    describe(fig, alt, (["draft length", "tokens a round", "round (ms)", "ms for each token"], table))
    text = f"Best are drafts of {best}: {per_token[best]:.2f} ms a token, {factor:.2f} times as fast as without. "
    if best == 0:
        text = f"Best is not to draft: {per_token[0]:.2f} ms a token. "
    losing = [length for length in lengths[1:] if per_token[length] >= per_token[0]]
    if not losing:
        return fig, text + f"Every length up to {LONGEST} beats plain decode."
    if losing[0] == 1 and len(losing) == LONGEST:
        return fig, text + "Drafts of any length lose."
    first = next(length for length in losing if length > best)
    text += f"Drafts of {first} lose: {per_token[first]:.2f} ms against {per_token[0]:.2f}."
    return fig, text + (f" So do drafts of {losing[0]}." if losing[0] < best else "")


def recorded_rounds():
    """Accepted and discarded draft tokens of each round of one recorded request, with K7 and with K15."""
    names = {"dflash_k7": "K7", "dflash_k15": "K15"}
    found = {label: catalog.record("dflash-times").where(configuration=name) for name, label in names.items()}
    fig = make_subplots(rows=2, vertical_spacing=0.2)
    fig.update_layout(template=TEMPLATE, height=420, barmode="stack", margin={"l": 56})
    rows, parts = [], []
    for index, (label, record) in enumerate(found.items(), start=1):
        accepted = [row["accepted_draft_tokens"] for row in record]
        discarded = [row["discarded_draft_tokens"] for row in record]
        numbers = list(range(1, len(record) + 1))
        for values, color, pattern, what in (
            (accepted, DRAFT, {}, "accepted"), (discarded, COLORS["unused"], HATCH, "discarded"),
        ):  # fmt: skip
            fig.add_bar(
                x=numbers, y=values, marker={"color": color, "pattern": pattern}, row=index, col=1,
                hovertemplate=f"{label}, round %{{x}}: %{{y}} {what}<extra></extra>",
            )  # fmt: skip
        total, drafted = sum(accepted), sum(accepted) + sum(discarded)
        heading = f"<b>{label}</b>: {len(record)} rounds, {total} of {drafted} accepted"
        if index == 1:
            heading += "<br>" + color_key([(DRAFT, "accepted"), (COLORS["unused"], "discarded", "▨")])
        add_heading(fig, heading, axis="" if index == 1 else "2", align="left")
        fig.update_yaxes(title_text="draft tokens", range=[0, 15], dtick=5, fixedrange=True, row=index, col=1)
        parts.append(f"{label} takes {len(record)} rounds and accepts {total} of {drafted} draft tokens")
        rows += [[label, *values] for values in zip(numbers, accepted, discarded, strict=True)]
    fig.update_xaxes(range=[0.4, 14.6], dtick=2, fixedrange=True)
    fig.update_xaxes(title_text="round of one request", row=2, col=1)
    columns = ["configuration", "round", "accepted", "discarded"]
    return describe(fig, f"For the same 95 output tokens, {' and '.join(parts)}.", (columns, rows))


def speed_by_length(factors: dict):
    """{name: {draft length: times as fast as without drafts}}, as measured; below 1 drafts lose."""
    fig = figure(height=330, margin={"l": 56})
    colors = dict(zip(factors, (COLORS["decode"], COLORS["cost"], COLORS["shared"]), strict=False))
    lengths = [str(length) for length in next(iter(factors.values()))]
    for name, own in factors.items():
        fig.add_scatter(
            x=[str(length) for length in own], y=list(own.values()), mode="lines+markers+text",
            text=[f"{factor:.2f}" for factor in own.values()], line={"color": colors[name]},
            textposition=[f"{'top' if factor >= 1 else 'bottom'} center" for factor in own.values()],  # clear of dashes
            hovertemplate=f"{name}, %{{x}} draft tokens: %{{y:.2f}}<extra></extra>", cliponaxis=False,
        )  # fmt: skip
    fig.add_hline(y=1, line={"color": PLAIN, "dash": "dash", "width": 2})
    marks = [(color, name) for name, color in colors.items()]
    add_heading(fig, color_key([*marks, (PLAIN, "no drafts", "╌")]))
    fig.update_xaxes(title_text="draft length (tokens)", type="category", fixedrange=True)
    top = 1.25 * max(factor for own in factors.values() for factor in own.values())
    fig.update_yaxes(title_text="times as fast", range=[0, max(1.25, top)], nticks=5, fixedrange=True)
    rows = [[name, *(f"{factor:.2f}" for factor in own.values())] for name, own in factors.items()]
    alt = "; ".join(f"{row[0]}: {', '.join(row[1:])} at drafts of {', '.join(lengths)}" for row in rows)
    return describe(fig, f"Speed against no drafts, measured. {alt}.", (["", *lengths], rows))
