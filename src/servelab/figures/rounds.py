"""Figures of section 8.5.2: what a round costs and decides, and when its tokens come. Times are milliseconds."""

from itertools import accumulate

from plotly.subplots import make_subplots

from servelab import catalog, speculation
from servelab.checks import require_number
from servelab.figures.style import COLORS, TEMPLATE, add_heading, color_key, describe, figure

DECODE_MS = catalog.record("batch-sweep").row(condition="2k_no_prefix", batch=1)["decode_step_ms"]
MOST_TOKENS = 9  # of a round that the explorer shows
LOOKUPS_MS = (0, 60)  # the axis of look-up times
PLAIN = COLORS["unused"]
DRAFTED = COLORS["weights"]  # as in section 8.5.1


def ms_per_token(acceptance, draft_length: int, lookup_ms: float, verify_ms: float) -> float:
    """Time of a round over its mean tokens."""
    tokens = float(speculation.expected_tokens(acceptance, draft_length))
    return speculation.time_per_token([lookup_ms + verify_ms], [tokens])


def budget_ms(acceptance, draft_length: int, verify_ms: float) -> float:
    """The look-up at which a token takes as long as in plain decode; below 0 if none is fast enough."""
    tokens = float(speculation.expected_tokens(acceptance, draft_length))
    return speculation.draft_budget_s(tokens, DECODE_MS, verify_ms)


def round_explorer(acceptance, draft_length, lookup_ms, verify_ms):
    """The share of rounds that decide so many tokens, above time for each token against look-up time (figure 8-32)."""
    tokens = speculation.expected_tokens(acceptance, draft_length)
    counts = speculation.token_counts(acceptance, draft_length)
    reach = list(accumulate(counts[::-1]))[::-1]  # at least 1, 2, ... tokens
    fig = make_subplots(rows=2, row_heights=[0.36, 0.64], vertical_spacing=0.28)
    fig.update_layout(template=TEMPLATE, height=470, margin={"l": 56})
    fig.add_bar(
        x=list(range(1, len(reach) + 1)), y=[float(share) for share in reach],
        marker={"color": [COLORS["decode"], *[DRAFTED] * draft_length]},
        hovertemplate="at least %{x}: %{y:.3f}<extra></extra>", row=1, col=1,
    )  # fmt: skip
    marks = color_key([(COLORS["decode"], "target's"), (DRAFTED, "drafted")])
    add_heading(fig, f"Rounds that decide at least n tokens. Sum: {float(tokens):.2f}<br>{marks}", align="left")
    axis = {"range": [0.4, MOST_TOKENS + 0.6], "dtick": 1, "fixedrange": True}
    fig.update_xaxes(title_text="n (tokens)", **axis, row=1, col=1)
    fig.update_yaxes(title_text="share", range=[0, 1], tickvals=[0, 0.5, 1], fixedrange=True, row=1, col=1)
    own_ms = ms_per_token(acceptance, draft_length, lookup_ms, verify_ms)
    _add_lines(fig, {"": (acceptance, draft_length, DRAFTED)}, verify_ms, row=2)
    below = 12 < own_ms < DECODE_MS  # clear of the dashed line, and of the axis
    _add_point(fig, lookup_ms, own_ms, DRAFTED, "bottom" if below else "top", row=2)
    fig.update_yaxes(range=[0, 110], row=2, col=1)
    add_heading(fig, color_key([(DRAFTED, "with drafts"), (PLAIN, f"plain decode, {DECODE_MS}", "╌")]), axis="2")
    budget = budget_ms(acceptance, draft_length, verify_ms)
    numbers = [
        ["tokens a round", f"{float(tokens):.3f}"],
        ["round (ms)", f"{lookup_ms + verify_ms:.2f}"],
        ["time for each token (ms)", f"{own_ms:.2f}"],
        ["plain decode (ms)", f"{DECODE_MS}"],
        ["look-up at break-even (ms)", f"{budget:.1f}" if budget > 0 else "none"],
    ]
    shares = [[n, f"{float(share):.4f}"] for n, share in enumerate(reach, start=1)]
    faster = "faster" if own_ms < DECODE_MS else "slower"
    alt = (
        f"A round decides {float(tokens):.2f} tokens in {lookup_ms + verify_ms:.2f} ms, so {own_ms:.2f} ms a token: "
        f"{faster} than plain decode with {DECODE_MS} ms."
    )
    describe(fig, alt, (["quantity", "value"], numbers), (["n", "share of rounds with at least n"], shares))
    text = (
        f"({lookup_ms:g} + {verify_ms:.2f}) ms / {float(tokens):.2f} tokens = {own_ms:.2f} ms a token, {faster} than "
    )
    text += f"plain decode ({DECODE_MS} ms). "
    if budget <= 0:
        alone = "as long as plain decode for the same tokens" if budget == 0 else "too long for so few tokens"
        return fig, text + f"No look-up is fast enough: verifying alone takes {alone}."
    return fig, text + f"Drafts pay while a look-up takes less than {budget:.1f} ms."


def _add_lines(fig, drafts, verify_ms, row=1):
    """Time for each token against look-up time, a line for each (acceptance, draft length, colour); plain dashed."""
    for name, (acceptance, length, color) in drafts.items():
        ends = [ms_per_token(acceptance, length, lookup_ms, verify_ms) for lookup_ms in LOOKUPS_MS]
        fig.add_scatter(
            x=LOOKUPS_MS, y=ends, mode="lines", line={"color": color, "width": 3},
            hovertemplate=f"{name} %{{y:.2f}} ms a token<extra></extra>", row=row, col=1,
        )  # fmt: skip
        budget = budget_ms(acceptance, length, verify_ms)
        if LOOKUPS_MS[0] < budget <= LOOKUPS_MS[1]:
            side = "right" if budget > 0.7 * LOOKUPS_MS[1] else "left"
            ax, ay = (-20, 34) if side == "right" else (20, 34) if len(drafts) == 1 else (56, -14)  # clear of lines
            fig.add_annotation(
                x=budget, y=DECODE_MS, text=f"even at {budget:.1f}", showarrow=True, arrowcolor=color, ax=ax, ay=ay,
                font={"size": 12}, xanchor=side, row=row, col=1,
            )  # fmt: skip
    fig.add_scatter(
        x=LOOKUPS_MS, y=[DECODE_MS] * 2, mode="lines", line={"color": PLAIN, "dash": "dash", "width": 2},
        hoverinfo="skip", row=row, col=1,
    )  # fmt: skip
    fig.update_xaxes(title_text="look-up (ms a round)", range=LOOKUPS_MS, nticks=7, fixedrange=True, row=row, col=1)
    fig.update_yaxes(title_text="ms for each token", rangemode="tozero", nticks=6, fixedrange=True, row=row, col=1)


def _add_point(fig, x, y, color, side, row=1):
    fig.add_scatter(
        x=[x], y=[y], mode="markers+text", text=[f"<b>{y:.3g}</b>"], marker={"color": color, "size": 11},
        textposition=f"{side} {'left' if x > 0.8 * LOOKUPS_MS[1] else 'right'}", textfont={"size": 13},
        cliponaxis=False, hoverinfo="skip", row=row, col=1,
    )  # fmt: skip


def lookup_lines(drafts: dict, lookup_ms: float, verify_ms: float = DECODE_MS):
    """Counterpart of figure 8-32: `drafts` by name, each (acceptance, draft length), over the time of a look-up."""
    require_number("lookup_ms", lookup_ms, maximum=LOOKUPS_MS[1])
    fig = make_subplots(rows=1, cols=1)
    fig.update_layout(template=TEMPLATE, height=340, margin={"l": 56})
    colors = dict(zip(drafts, (COLORS["cost"], DRAFTED, COLORS["shared"]), strict=False))
    _add_lines(fig, {name: (*draft, colors[name]) for name, draft in drafts.items()}, verify_ms)
    rows = []
    for name, draft in drafts.items():
        own_ms, budget = ms_per_token(*draft, lookup_ms, verify_ms), budget_ms(*draft, verify_ms)
        _add_point(fig, lookup_ms, own_ms, colors[name], "bottom")
        tokens = float(speculation.expected_tokens(*draft))
        rows.append([name, f"{tokens:.2f}", f"{own_ms:.2f}", f"{budget:.1f}" if budget > 0 else "none"])
    marks = [(colors[name], name) for name in drafts]
    add_heading(fig, color_key([*marks, (PLAIN, f"plain decode, {DECODE_MS}", "╌")]))
    listed = "; ".join(f"{row[0]} takes {row[2]} ms a token and is even at {row[3]} ms" for row in rows)
    alt = f"With a look-up of {lookup_ms:g} ms: {listed}. Plain decode takes {DECODE_MS} ms a token."
    columns = ["draft", "tokens a round", f"ms a token at {lookup_ms:g} ms", "look-up at break-even (ms)"]
    return describe(fig, alt, (columns, rows))


def token_times(requests: dict):
    """When each output token was there, by name of the run: `engine.trace.RequestRecord`s, from the first token on."""
    fig = figure(height=330, margin={"l": 56})
    colors = dict(zip(requests, (PLAIN, COLORS["decode"], COLORS["cost"]), strict=False))
    rows = []
    for name, request in requests.items():
        times = [1e3 * (time_s - request.first_token_s) for time_s in request.token_s]
        fig.add_scatter(
            x=times, y=list(range(1, len(times) + 1)), mode="lines", line={"color": colors[name], "shape": "hv"},
            hovertemplate=f"{name}: token %{{y}} at %{{x:.1f}} ms<extra></extra>",
        )  # fmt: skip
        steps = len(set(request.token_s))
        rows.append([name, len(times), steps, f"{times[-1]:.1f}"])
    add_heading(fig, color_key((colors[name], name) for name in requests))
    fig.update_xaxes(title_text="ms after the first token", rangemode="tozero", nticks=6, fixedrange=True)
    fig.update_yaxes(title_text="output tokens", rangemode="tozero", nticks=6, fixedrange=True)
    alt = "Output tokens over time, in stairs: " + "; ".join(
        f"{row[0]}: {row[1]} tokens in {row[2]} steps of the stair, the last after {row[3]} ms" for row in rows
    )
    return describe(fig, alt + ".", (["run", "tokens", "moments at which tokens came", "last token (ms)"], rows))
