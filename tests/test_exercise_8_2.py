"""Exercise 8-2: right answers written differently, wrong ones that must fail, and its numbers."""

import statistics

import numpy as np
import pytest

from servelab import catalog, cost
from servelab.engine import Request, simulate
from servelab.exercises import find_part
from servelab.exercises.ex_8_2 import replayed
from servelab.exercises.ex_8_2.replay import REQUESTS
from servelab.exercises.ex_8_2.scheduling import step_rows
from servelab.exercises.ex_8_2.times import BOOK_COSTS, FIT, step_ms
from servelab.exercises.judge import judge

# right answers


def pairs_by_token(new_tokens, context):
    return sum(range(context + 1, context + new_tokens + 1))


def pairs_by_difference(c, h):
    return np.int64(((h + c) * (h + c + 1) - h * (h + 1)) // 2)


def step_by_row(rows, fixed_ms, token_us, pair_ns):
    millis = fixed_ms
    while rows:  # empties the list it was given
        new_tokens, context = rows.pop()
        millis += new_tokens * token_us / 1000 + pairs_by_token(new_tokens, context) * pair_ns / 1e6
    return millis


def step_in_seconds(rows, f, u, n):
    return 1e3 * cost.StepCost(f / 1e3, u / 1e6, n / 1e9).seconds(rows)


def rows_by_popping(running, waiting, max_running):
    rows = [[1, context] for context in running]
    while waiting and len(rows) < max_running:
        rows.append([waiting.pop(0), 0])
    return tuple(rows)


def rows_by_slicing(r, w, m):
    return ([(1, h) for h in r] + [(c, 0) for c in w])[:m]


def queue_by_median(records, budget, request):
    return statistics.median(ms for b, _, name, ms in records if b == budget and name == request)


def queue_by_numpy(records, budget, request):
    return np.median([row[3] for row in records if row[0] == budget and row[2] == request])


def budgets_by_sorting(measured, limit_ms):
    in_order = sorted((queue, longest, budget) for budget, longest, queue in measured)
    allowed = [budget for _, longest, budget in in_order if longest < limit_ms]
    return [allowed[0] if allowed else None, in_order[0][2]]


def budgets_by_loop(measured, limit_ms):
    first = second = None
    for row in measured:
        if row[1] < limit_ms and (first is None or row[2] < first[2]):
            first = row
        if second is None or row[2] < second[2]:
            second = row
    return first and first[0], second[0]


RIGHT = [
    ("8-2a", pairs_by_token),
    ("8-2a", pairs_by_difference),
    ("8-2b", step_by_row),
    ("8-2b", step_in_seconds),
    ("8-2c", rows_by_popping),
    ("8-2c", rows_by_slicing),
    ("8-2d", "d"),
    ("8-2d", "D."),
    ("8-2e", queue_by_median),
    ("8-2e", queue_by_numpy),
    ("8-2f", budgets_by_sorting),
    ("8-2f", budgets_by_loop),
    ("8-2g", "c"),
    ("8-2g", "(c)"),
    ("8-2h", "b"),
    ("8-2h", " B "),
]


# wrong answers beyond the known ones, typed-in constants first

PLAUSIBLE = {
    "8-2a": [
        lambda c, h: 131328 if h == 0 else 4063488,
        lambda c, h: 512 * h + 512 * 513 // 2,
        lambda c, h: c * h + c * (c + 1) / 2,
        lambda c, h: c * (h + 1) + c * (c + 1) // 2,
        lambda c, h: h + c,
        lambda c, h: sum(range(h, h + c)) + 1,
        lambda c, h: c * h + c * c // 2,
    ],
    "8-2b": [
        lambda rows, f, u, n: {1: 26.26, 2048: 94.77}.get(rows[0][0], 375.97),
        lambda rows, f, u, n: step_ms(rows, 26.22, 30.4, 3),
        lambda rows, f, u, n: step_ms(rows[:2], f, u, n),
        lambda rows, f, u, n: step_ms(rows[-1:], f, u, n),
        lambda rows, f, u, n: round(step_ms(rows, f, u, n), 1),
        lambda rows, f, u, n: sum(step_ms([row], f, u, n) for row in rows) / len(rows),
        lambda rows, f, u, n: step_ms([(c + h, 0) for c, h in rows], f, u, n),
        lambda rows, f, u, n: max(f, step_ms(rows, 0, u, n)),
    ],
    "8-2c": [
        lambda r, w, m: [(1, h) for h in r] + [(8192, 0)],
        lambda r, w, m: [(1, h) for h in r] + [(c, 0) for c in w[: 2 - len(r)]],
        lambda r, w, m: [(1, 2048) for h in r] + [(c, 0) for c in w[: m - len(r)]],
        lambda r, w, m: [(1, h) for h in r] + [(min(c, 2048), 0) for c in w[: m - len(r)]],
        lambda r, w, m: [1] * len(r) + w[: m - len(r)],
        lambda r, w, m: len(r) + len(w[: m - len(r)]),
        lambda r, w, m: [(h, 1) for h in r] + [(0, c) for c in w[: m - len(r)]],
        lambda r, w, m: [(1, h + 1) for h in r] + [(c, 0) for c in w[: m - len(r)]],
    ],
    "8-2e": [
        lambda records, b, name: 149.416 if b == 512 else 0.01,
        lambda records, b, name: queue_by_median(records, b, "r4"),
        lambda records, b, name: queue_by_median(records, 512, name),
        lambda records, b, name: statistics.median_low([row[3] for row in records if row[0] == b and row[2] == name]),
        lambda records, b, name: round(queue_by_median(records, b, name)),
        lambda records, b, name: statistics.median(row[3] for row in records if row[0] == b and row[1] == 0),
        lambda records, b, name: [row[3] for row in records if row[0] == b and row[2] == name],
    ],
    "8-2f": [
        lambda m, x: (512, 8192),
        lambda m, x: {30: (None, 8192), 50: (512, 8192)}.get(x, (8192, 8192)),
        lambda m, x: (m[0][0], m[-1][0]),
        lambda m, x: (min(row[0] for row in m), max(row[0] for row in m)),
        lambda m, x: budgets_by_sorting(m, 50),
        lambda m, x: (budgets_by_sorting(m, x)[0] or 0, budgets_by_sorting(m, x)[1]),
        lambda m, x: budgets_by_sorting(m, x)[0],
        lambda m, x: (next((row[0] for row in m if row[1] < x), None), budgets_by_sorting(m, x)[1]),
    ],
}


# usual mistakes, written as a learner writes them; and in what words they are met

NAMED = [
    ("8-2a", lambda c, h: c * h, "New tokens also look at the chunk itself."),
    ("8-2a", lambda c, h: sum(h + i for i in range(c)), "the pair of a token with itself"),
    ("8-2b", lambda rows, f, u, n: sum(step_ms([row], f, u, n) for row in rows), "once a step"),
    ("8-2b", lambda rows, f, u, n: f + u * sum(c for c, _ in rows) / 1000, "Attention adds a time"),
    ("8-2b", lambda rows, f, u, n: step_ms(rows, f / 1000, u / 1000, n / 1000), "this is in seconds"),
    ("8-2c", lambda r, w, m: [(1, h) for h in r] + [(c, 0) for c in w[:m]], "Some places are taken already."),
    ("8-2c", lambda r, w, m: [(h + 1, 0) for h in r] + [(c, 0) for c in w[: m - len(r)]], "compute in a step?"),
    ("8-2e", lambda records, b, name: statistics.mean(r[3] for r in records if (r[0], r[2]) == (b, name)), "the mean"),
    ("8-2f", lambda m, x: budgets_by_loop(m, x)[::-1], "in the wrong order"),
    ("8-2f", lambda m, x: (budgets_by_loop(m, x + 1e-9)[0], budgets_by_loop(m, x)[1]), "just reaches it"),
]


def test_pictures_show_what_the_answer_means():
    text = judge(find_part("8-2a"), lambda c, h: pairs_by_token(c, h) + (h == 2)).text
    assert text.endswith("    oo#..\n    oo##.\n    oo###")
    text = judge(find_part("8-2c"), lambda r, w, m: [(2, 1)] * (m == 3) + step_rows(r, w, m)[m == 3 :]).text
    assert text.endswith("    -##\n    ###\n    ##")


# its numbers, against the library


def test_the_books_costs_are_those_of_the_catalog():
    fixed, token, pair = BOOK_COSTS
    assert (fixed * 1e-3, token * 1e-6, pair * 1e-9) == pytest.approx(
        (FIT.fixed_s, FIT.per_new_token_s, FIT.per_causal_pair_s)
    )


def test_the_replay_is_the_engines():
    asked = [Request(name, arrival / 1e3, inputs, outputs) for name, (arrival, inputs, outputs) in REQUESTS.items()]
    trace = simulate(asked, FIT, policy="continuous", max_running=2)
    lines = replayed(step_rows, step_ms).split("\n")
    for line, step in zip(lines, trace.steps, strict=False):
        rows = [(row.num_tokens, row.num_computed_tokens) for row in step.rows]
        assert line.startswith(f"{1e3 * step.start_s:6.1f} ms  step of {1e3 * (step.end_s - step.start_s):5.1f} ms: ")
        assert line.endswith(f"  {rows}")
    assert lines[len(trace.steps) :] == [f"{1e3 * trace.total_s:6.1f} ms  all done"]
    assert find_part("8-2b").expected([(1, 2049), (8192, 0)], *BOOK_COSTS) == pytest.approx(1e3 * trace.max_itl_s)


def test_the_replay_of_unfinished_and_wrong_functions():
    assert replayed(lambda *_: None, step_ms) == replayed(lambda *_: ..., step_ms) == "-"
    assert replayed(step_rows, lambda *_: None) == "-"
    assert replayed(lambda *_: [], step_ms) == "   0.0 ms  here your rows fit no request: []"
    text = replayed(lambda r, w, m: [(c, 0) for c in w[: m - len(r)]] or [(1, h) for h in r], step_ms)
    assert text.endswith(" 189.6 ms  here your rows fit no request: [(8192, 0)]")


def test_the_records_hold_what_the_right_choices_say():
    low, high = (catalog.record("six-requests-itl").row(configuration=f"budget{n}_chunked_eager") for n in (512, 8192))
    assert low["itl_ms_max"] < 50 < high["itl_ms_max"]
    assert abs(low["itl_ms_median"] - high["itl_ms_median"]) < 1
    assert low["itl_ms_p95"] > high["itl_ms_p95"]
    assert low["r4_queue_ms_median"] > 100 > 0.1 > high["r4_queue_ms_median"]
    rows = catalog.record("six-requests").rows
    first = [
        statistics.median(
            row["client_ttft_ms"]
            for row in rows
            if (row["configuration"], row["request"]) == (f"budget{n}_chunked_eager", "r4")
        )
        for n in (512, 8192)
    ]
    assert 25 < first[0] - first[1] < 40
