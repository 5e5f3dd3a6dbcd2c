"""Figures of the experiments that `servelab.experiments` runs on the reader's machine: measured, and predicted."""

import statistics
from collections import defaultdict
from collections.abc import Iterable
from itertools import cycle

from servelab import catalog
from servelab.figures.style import COLORS, add_heading, color_key, describe, figure


def medians(rows: Iterable[dict], by: Iterable[str], value) -> dict[tuple, float]:
    """The median of `value(row)` for each combination of the columns `by`; rows without a value (None) are left out."""
    groups = defaultdict(list)
    for row in rows:
        number = value(row)
        if number is not None:
            groups[tuple(row[column] for column in by)].append(number)
    return {key: statistics.median(numbers) for key, numbers in groups.items()}


def measured_and_predicted(rows, x: str, series: str, value: str, scale: float = 1.0):
    """{series value: (measured {x: median}, predicted {x: median})} of the column `value`, times `scale`."""
    measured = medians(rows, (series, x), lambda row: row[value])
    predicted = medians(rows, (series, x), lambda row: row["predicted"].get(value))
    found = defaultdict(lambda: ({}, {}))
    for which, numbers in enumerate((measured, predicted)):
        for (name, position), number in numbers.items():
            found[name][which][position] = scale * number
    return dict(found)


def batched(entries: list, count: int):
    """Lists of `count` entries, the last one of what is left (`itertools.batched` of Python 3.12)."""
    return (entries[i : i + count] for i in range(0, len(entries), count))


SERIES_COLORS = ("decode", "prefill", "shared", "weights", "unused")


def lines(found: dict, x_title: str, y_title: str, y_format: str = ".0f", label=str, y_type: str = "linear"):
    """One line a series: measured solid, predicted dotted. `found` is what `measured_and_predicted` returns."""
    fig = figure(height=340)
    colors = {name: COLORS[color] for name, color in zip(found, cycle(SERIES_COLORS), strict=False)}
    for name, (measured, predicted) in found.items():
        color = colors[name]
        for kind, numbers, dash in (("measured", measured, "solid"), ("predicted", predicted, "dot")):
            if numbers:
                fig.add_scatter(
                    x=[str(x) for x in numbers], y=list(numbers.values()), mode="lines+markers",
                    line={"color": color, "dash": dash}, opacity=1.0 if kind == "measured" else 0.7,
                    hovertemplate=f"{label(name)}, {kind}, %{{x}}: %{{y:{y_format}}}<extra></extra>",
                )  # fmt: skip
    entries = [(color, label(name)) for name, color in colors.items()]
    key = [color_key(pair) for pair in batched(entries, 2)]  # more than two names a line do not fit a phone
    add_heading(fig, "<br>".join(key), align="left")
    fig.update_layout(margin={"t": 28 + 18 * len(key)})
    categories = list(dict.fromkeys(str(x) for measured, _ in found.values() for x in measured))
    fig.update_xaxes(
        title_text=x_title, type="category", categoryorder="array", categoryarray=categories, fixedrange=True
    )
    fig.update_yaxes(title_text=y_title, type=y_type, nticks=5, fixedrange=True)
    if y_type == "linear":
        fig.update_yaxes(rangemode="tozero")
    table = [
        [label(name), x, f"{measured[x]:{y_format}}", f"{predicted[x]:{y_format}}" if x in predicted else ""]
        for name, (measured, predicted) in found.items()
        for x in measured
    ]
    alt = "; ".join(
        f"{label(name)} from {measured[min(measured)]:{y_format}} at {min(measured)} to "
        f"{measured[max(measured)]:{y_format}} at {max(measured)}"
        for name, (measured, _) in found.items()
    )
    return describe(
        fig, f"{y_title} against {x_title}, measured: {alt}.", (["series", x_title, "measured", "predicted"], table)
    )


def batch_sweep(rows: list[dict]):
    """Experiment 8-1 run here: throughput by batch, a line for each context; dotted where it is predicted."""
    found = measured_and_predicted(rows, "batch", "context", "throughput_tok_per_s")
    return lines(found, "batch", "output tokens/s", label=lambda context: f"{context} tokens of input")


def token_budget(rows: list[dict]):
    """Experiment 8-2 run here: the longest gap and the queue behind the long prompt, by token budget."""
    named = {"longest gap between tokens": "max_itl_s", "queue of r4": "r4_queue_s"}
    found = {}
    for name, column in named.items():
        (found[name],) = measured_and_predicted(
            [row | {"all": name} for row in rows], "budget", "all", column, 1e3
        ).values()
    return lines(found, "token budget", "ms")


def blocks(rows: list[dict]):
    """Experiment 8-3 run here, beside what vLLM recorded: peak blocks and preemptions of each case."""
    recorded = {
        "branches": catalog.record("four-branches").rows[0]["distinct_physical_blocks"],
        **{
            {"small": "small pool", "large": "large pool", "cancel": "cancel"}[row["name"]]: row["peak_request_blocks"]
            for row in catalog.record("pool-pressure").rows
        },
    }
    cases = list(dict.fromkeys(row["case"] for row in rows))
    here = {case: next(row for row in rows if row["case"] == case) for case in cases}
    fig = figure(height=320, barmode="group")
    fig.add_bar(x=cases, y=[here[case]["peak_blocks"] for case in cases], marker={"color": COLORS["kv"]})
    fig.add_bar(x=cases, y=[recorded[case] for case in cases], marker={"color": COLORS["unused"]})
    add_heading(fig, color_key(((COLORS["kv"], "here"), (COLORS["unused"], "recorded with vLLM"))))
    fig.update_xaxes(type="category", fixedrange=True)
    fig.update_yaxes(title_text="most blocks in use", rangemode="tozero", nticks=5, fixedrange=True)
    table = [
        [
            case, here[case]["peak_blocks"], recorded[case], here[case]["preemptions"], here[case]["scheduled_tokens"],
            f"{1e3 * here[case]['released_after_s']:.1f}" if "released_after_s" in here[case] else "",
        ]
        for case in cases
    ]  # fmt: skip
    columns = [
        *("case", "most blocks here", "most blocks in vLLM", "preemptions here", "tokens scheduled here"),
        "released after (ms)",
    ]
    alt = "; ".join(f"{case}: {here[case]['peak_blocks']} here, {recorded[case]} in vLLM" for case in cases)
    return describe(fig, f"Most blocks in use: {alt}.", (columns, table))


def agent_replay(rows: list[dict]):
    """Experiment 8-4 run here: prompt tokens found in the cache over twelve turns, by pool and load."""
    named = [
        (f"{row['blocks']} blocks" + (", load" if row["load"] else ""), row) if row["cache"] else ("no cache", row)
        for row in rows
        if row["trial"] == 0
    ]
    recorded = sum(row["input_tokens"] for row in catalog.record("agent-turns").rows)
    total = rows[0].get("input_tokens", recorded)  # older reports leave it out
    fig = figure(height=320)
    fig.add_bar(
        y=[name for name, _ in named], x=[row["hit_tokens"] for _, row in named], orientation="h",
        marker={"color": COLORS["shared"]}, text=[f"{row['hit_tokens']:,}" for _, row in named], textposition="auto",
        hovertemplate="%{y}: %{x} tokens found<extra></extra>",
    )  # fmt: skip
    fig.update_xaxes(title_text=f"prompt tokens found, of {total:,}", range=[0, total], nticks=5, fixedrange=True)
    fig.update_yaxes(type="category", autorange="reversed", fixedrange=True)
    table = [
        [name, row["hit_tokens"], f"{100 * row['hit_tokens'] / total:.1f} %", f"{1e3 * row['median_ttft_s']:.1f}"]
        for name, row in named
    ]
    alt = "; ".join(f"{name}: {row['hit_tokens']:,}" for name, row in named)
    columns = ["pool", "tokens found", "share", "median first token (ms)"]
    return describe(fig, f"Prompt tokens found in the cache, of {total:,}: {alt}.", (columns, table))


def capacity(rows: list[dict]):
    """Experiment 8-7 run here: requests that fit, by context."""
    found = measured_and_predicted([row | {"all": "requests that fit"} for row in rows], "context", "all", "fit")
    return lines(found, "context (tokens)", "requests that fit")


def kv_precision(rows: list[dict]):
    """Experiment 8-8 run here: right answers by format, and the least lead of a chosen token."""
    formats = list(dict.fromkeys(row["format"] for row in rows))
    right = {name: sum(row["right"] for row in rows if row["format"] == name) for name in formats}
    sizes = {row["format"]: row["kv_bytes_per_token"] for row in rows}
    asked = {name: sum(row["asked"] for row in rows if row["format"] == name) for name in formats}
    margins = {
        name: [answer["margin"] for row in rows if row["format"] == name for answer in row["answers"]]
        for name in formats
    }
    fig = figure(height=320)
    fig.add_bar(
        x=formats, y=[100 * right[name] / asked[name] for name in formats], marker={"color": COLORS["kv"]},
        text=[f"{right[name]}/{asked[name]}" for name in formats], textposition="auto",
        hovertemplate="%{x}: %{y:.0f} % right<extra></extra>",
    )  # fmt: skip
    fig.update_xaxes(title_text="format of the KV cache", type="category", fixedrange=True)
    fig.update_yaxes(title_text="right answers (%)", range=[0, 100], nticks=5, fixedrange=True)
    table = [
        [
            name, f"{right[name]}/{asked[name]}", sizes[name],
            f"{statistics.median(margins[name]):.2f}",
            sum(len(row["retries"]) for row in rows if row["format"] == name),
        ]
        for name in formats
    ]  # fmt: skip
    alt = "; ".join(f"{name}: {right[name]} of {asked[name]}" for name in formats)
    columns = ["format", "right", "bytes a token", "median least lead of a logit", "asked again"]
    return describe(fig, f"Right answers by format: {alt}.", (columns, table))


def drafts(rows: list[dict]):
    """Experiment 8-5 run here: time for each token by draft length, a line for each source and batch."""
    named = [row | {"series": f"{row['source']}, batch {row['batch']}"} for row in rows if row["source"] != "none"]
    found = measured_and_predicted(named, "draft_length", "series", "s_per_token", 1e3)
    plain = medians([row for row in rows if row["source"] == "none"], ("batch",), lambda row: 1e3 * row["s_per_token"])
    fig = lines(found, "draft length", "ms for each token of a request", ".2f")
    for (batch,), milliseconds in plain.items():
        fig.add_hline(
            y=milliseconds, line={"color": COLORS["unused"], "dash": "dash", "width": 1},
            annotation={"text": f"no drafts, batch {batch}", "font": {"size": 12}},
        )  # fmt: skip
    return fig


def serving(rows: list[dict]):
    """Experiment 8-9 run here: completed and good answers a second, by arrival rate and policy."""
    named = [row for row in rows if row["policy"] != "all at once"]
    found = {}
    for column, word in (("completed_per_s", "completed"), ("goodput_per_s", "good")):
        for policy, pair in measured_and_predicted(named, "rate", "policy", column).items():
            found[f"{policy}, {word}"] = pair
    return lines(found, "arrivals a second", "answers a second", ".2f")
