"""Figures of section 8.4.4: right and wrong answers side by side, and what wrong ones cost in time."""

from plotly.subplots import make_subplots

from servelab import catalog, quality
from servelab.checks import require_name, require_number
from servelab.figures.style import COLORS, TEMPLATE, add_heading, color_key, describe, figure

RIGHT, WRONG = COLORS["right"], COLORS["wrong"]
SYMBOLS = {True: ("right", RIGHT, "circle"), False: ("wrong", WRONG, "x")}
CONFIGURATIONS = {
    "BF16 KV, BF16 Q": "bf16_kv_bf16_q",
    "FP8 KV, FP8 Q": "fp8_kv_fp8_q",
    "FP8 KV, BF16 Q": "fp8_kv_bf16_q",
}
CONCURRENCIES = {"both": (1, 4), "1": (1,), "4": (4,)}
ERROR_RATES = (0, 0.5)  # what the retry explorer draws


def recorded(configuration: str, concurrencies=(1, 4)) -> dict:
    """Outcomes of one of `CONFIGURATIONS` in experiment 8-8: tasks by number, their runs by concurrency and repeat."""
    require_name("configuration", configuration, CONFIGURATIONS)
    rows = catalog.record("kv-quality").where(kv_q_format=CONFIGURATIONS[configuration])
    return quality.outcomes([row for row in rows if row["concurrency"] in concurrencies])


def quality_explorer(first, second, concurrency):
    """Counterpart of figures 8-26, 8-27 and 8-28: every run of two configurations, right or wrong; changed ones boxed.

    `first` and `second` are names in `CONFIGURATIONS`, `concurrency` one in `CONCURRENCIES`.
    """
    require_name("concurrency", concurrency, CONCURRENCIES)
    runs = [recorded(name, CONCURRENCIES[concurrency]) for name in (first, second)]
    records = {row["task"]: row["document_records"] for row in catalog.record("kv-quality").rows}
    names = [name.replace(", ", ",<br>") for name in (first, second)]
    labels = [f"{task} ({records[task]})" for task in records]
    fig = grids(*runs, names, labels, "task (records of its document)", "concurrency, run")
    return fig, _change_sentence(*runs, first == second)


def _change_sentence(before, after, is_same):
    pairing = quality.pair(before, after)
    total = len(before)
    counts = f"{sum(before.values())} and {sum(after.values())} of {total} right"
    if is_same:
        return f"A configuration against itself: {counts}, nothing changes."
    if not pairing.flips:
        return f"{counts}, and no answer changed."
    changed = quality.changed_tasks(before, after)
    runs = total // len(quality.grid(before))
    listed = ", ".join(f"task {task} from {old} to {new} of {runs} right" for task, (old, new) in changed.items())
    return (
        f"{counts}; {pairing.flips} answers changed, {len(pairing.only_first)} to wrong and "
        f"{len(pairing.only_second)} to right: {listed}."
    )


def grids(first, second, names, task_labels, row_title: str, column_title: str):
    """The outcomes of two configurations as two grids: a row a task, a column a run. Changed runs are boxed.

    `first` and `second` as `quality.outcomes` gives them. Raises `ValueError` unless both have the same runs.
    """
    pairing = quality.pair(first, second)
    changed = {*pairing.only_first, *pairing.only_second}
    tasks = list(quality.grid(first))
    columns = list(dict.fromkeys(tuple(column) for _, *column in first))
    heads = ["<br>".join(map(str, column)) for column in columns]
    fig = make_subplots(cols=2, shared_yaxes=True, horizontal_spacing=0.06)
    fig.update_layout(template=TEMPLATE, height=210 + 27 * len(tasks), margin={"t": 84})
    for side, runs in enumerate((first, second), start=1):
        where = {"row": 1, "col": side}
        for is_right, (word, color, symbol) in SYMBOLS.items():
            own = [run for run in runs if runs[run] == is_right]
            fig.add_scatter(
                x=[columns.index(tuple(column)) for _, *column in own], y=[tasks.index(task) for task, *_ in own],
                mode="markers", marker={"symbol": symbol, "color": color, "size": 13},
                hovertemplate=f"{word}<extra></extra>", **where,
            )  # fmt: skip
        boxed = [run for run in runs if run in changed and side == 2]
        fig.add_scatter(
            x=[columns.index(tuple(column)) for _, *column in boxed], y=[tasks.index(task) for task, *_ in boxed],
            mode="markers", hoverinfo="skip",
            marker={"symbol": "square-open", "size": 23, "color": COLORS["unused"], "line": {"width": 2}}, **where,
        )  # fmt: skip
        heading = f"<b>{names[side - 1]}</b><br>{sum(runs.values())} of {len(runs)} right"
        add_heading(fig, heading, axis="" if side == 1 else "2", align="left")
        ticks = {"tickvals": list(range(len(columns))), "ticktext": heads, "range": [-0.6, len(columns) - 0.4]}
        fig.update_xaxes(title_text=column_title, **ticks, showgrid=False, fixedrange=True, **where)
    fig.update_yaxes(
        tickvals=list(range(len(tasks))), ticktext=task_labels, range=[len(tasks) - 0.4, -0.6],
        showgrid=False, fixedrange=True,
    )  # fmt: skip
    fig.update_yaxes(title_text=row_title, row=1, col=1)
    marks = color_key([(RIGHT, "right", "●"), (WRONG, "wrong", "✕"), (COLORS["unused"], "changed", "□")])
    fig.add_annotation(
        **{"x": 0, "xref": "paper", "xanchor": "left", "y": 1, "yref": "paper", "yanchor": "bottom", "yshift": 58},
        **{"text": marks, "showarrow": False, "font": {"size": 13}},
    )
    words = {True: "right", False: "wrong"}
    rows = [
        [label, " ".join(map(str, column)), words[first[task, *column]], words[second[task, *column]]]
        for task, label in zip(tasks, task_labels, strict=True)
        for column in columns
    ]
    plain = [name.replace("<br>", " ") for name in names]
    alt = (
        f"{plain[0]}: {sum(first.values())} of {len(first)} answers right. {plain[1]}: {sum(second.values())} right. "
        f"{len(pairing.only_first)} became wrong, {len(pairing.only_second)} became right."
    )
    return describe(fig, alt, (["task", column_title, *plain], rows))


def retries(rows):
    """Time of each task (rows of record "retries") until its last answer: the first answer, then the retry."""
    rows = sorted(rows, key=lambda row: (row["task_id"], row["repeat"]))
    names = [f"{row['task_id']}, run {row['repeat']}" for row in rows]
    fig = figure(height=130 + 28 * len(rows), barmode="stack")
    parts = (("first_answer_s", "first answer", COLORS["decode"]), ("retry_s", "again", COLORS["cost"]))
    for column, word, color in parts:
        fig.add_bar(
            orientation="h", y=names, x=[row[column] for row in rows], marker={"color": color},
            hovertemplate=f"%{{y}}, {word}: %{{x:.3f}} s<extra></extra>",
        )  # fmt: skip
    add_heading(fig, color_key((color, word) for _, word, color in parts))
    fig.update_xaxes(title_text="time (s)", range=[0, 2.2], nticks=6, fixedrange=True)
    fig.update_yaxes(autorange="reversed", fixedrange=True)
    table = [
        [name, f"{row['first_answer_s']:.3f}", f"{row['retry_s']:.3f}", f"{row['task_total_s']:.3f}"]
        for name, row in zip(names, rows, strict=True)
    ]
    again = [name for name, row in zip(names, rows, strict=True) if row["attempts"] > 1]
    alt = f"{len(rows)} tasks of about a second each; {' and '.join(again)} take two, as they were answered again."
    return describe(fig, alt, (["task", "first answer (s)", "again (s)", "whole task (s)"], table))


def retry_explorer(saved, error_rate):
    """Mean time of a task against wrong first answers, with an answer faster by the share `saved`.

    The slow configuration takes 1 and is always right; a wrong fast answer is asked again of it.
    """
    require_number("saved", saved, maximum=1)
    require_number("error_rate", error_rate, maximum=ERROR_RATES[1])
    own = quality.expected_task_seconds(1 - saved, error_rate, retry_s=1)
    most = quality.break_even_error_rate(saved, retry_s=1)
    fig = figure(height=300)
    ends = [quality.expected_task_seconds(1 - saved, rate, retry_s=1) for rate in ERROR_RATES]
    percent = [100 * rate for rate in ERROR_RATES]
    fig.add_scatter(x=percent, y=ends, mode="lines", line={"color": COLORS["decode"], "width": 3}, hoverinfo="skip")
    fig.add_scatter(
        x=percent, y=[1, 1], mode="lines", line={"color": COLORS["unused"], "width": 2, "dash": "dash"},
        hoverinfo="skip",
    )  # fmt: skip
    color = WRONG if own > 1 else RIGHT
    fig.add_scatter(
        x=[100 * error_rate], y=[own], mode="markers+text", text=[f"<b>{own:.2f}</b>"], cliponaxis=False,
        textposition="top center" if own > 1 else "bottom center", marker={"color": color, "size": 13},
        hovertemplate="%{x:.0f} % wrong: %{y:.2f}<extra></extra>",
    )  # fmt: skip
    add_heading(fig, color_key([(COLORS["decode"], "fast, then asked again"), (COLORS["unused"], "slow", "╌")]))
    fig.update_xaxes(title_text="wrong first answers (%)", range=[-3, 53], nticks=6, fixedrange=True)
    fig.update_yaxes(title_text="mean time (slow = 1)", range=[0, 1.75], nticks=5, fixedrange=True)
    numbers = [
        ["fast answer", f"{1 - saved:.2f}"],
        ["wrong first answers", f"{error_rate:.0%}"],
        ["mean time of a task", f"{own:.2f}"],
        ["break-even, wrong first answers", f"{most:.0%}"],
    ]
    alt = (
        f"Mean time of a task rises from {ends[0]:.2f} with no wrong first answer to {ends[1]:.2f} with half of them "
        f"wrong; the slow configuration takes 1. At {error_rate:.0%} it is {own:.2f}."
    )
    describe(fig, alt, (["quantity, times of the slow answer", "value"], numbers))
    if abs(own - 1) < 1e-9:
        verdict = "as long as the slow answer"
    else:
        verdict = f"{abs(own - 1):.0%} {'more' if own > 1 else 'less'} than the slow answer"
    text = (
        f"An answer that saves {saved:.0%}, wrong in {error_rate:.0%} of tasks: a task takes {own:.2f} on average, "
        f"{verdict}. Break-even is at {most:.0%} wrong."
    )
    return fig, text
