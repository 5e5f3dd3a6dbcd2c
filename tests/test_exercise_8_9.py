"""Exercise 8-9: right answers written differently, wrong ones that must fail, and its numbers."""

import copy
import math

import pytest
from test_facts import FACTS

from servelab.exercises import find_part
from servelab.exercises.ex_8_9.own import BOOK
from servelab.exercises.judge import judge
from servelab.units import MIB

# right answers


def seconds(p, o, t, r):
    return p + math.ceil((o - 1) / t) * r


def seconds_by_loop(prefill_s, output_tokens, tokens_per_round, round_s):
    got, total = 1, prefill_s
    while got < output_tokens:
        got, total = got + tokens_per_round, total + round_s
    return total


def held(n, s, x, d, h):
    return s + n * x + d


def held_by_adding(requests, shared_bytes, private_bytes, draft_bytes, host_index_bytes):
    return sum([shared_bytes, draft_bytes, *[private_bytes] * requests])


def choice(plans, pool_mib, deadline_s):
    best, price = "none", math.inf
    for name, mib, total, good in plans:
        if mib <= pool_mib and total <= deadline_s and total / good < price:
            best, price = name, total / good
    return best


def choice_by_sorting(plans, m, d):
    rest = sorted((s / g, name) for name, mib, s, g in plans if mib <= m and s <= d)
    return rest[0][1] if rest else "none"


def good_rate(requests, d):
    good = sum(r["correct"] and r["finish_s"] - r["arrival_s"] <= d for r in requests)
    return good / (max(r["finish_s"] for r in requests) - min(r["arrival_s"] for r in requests))


def good_rate_by_loop(requests, deadline_s):
    good, first, last = 0, math.inf, 0
    for each in requests:
        first, last = min(first, each["arrival_s"]), max(last, each["finish_s"])
        if each["correct"] and each["finish_s"] <= each["arrival_s"] + deadline_s:
            good += 1
    return good / (last - first)


RUNS = {"serial": BOOK[0], "continuous": BOOK[1]}


def of_runs(compute):
    return RUNS, 3, {name: compute(requests, 3) for name, requests in RUNS.items()}


RIGHT = [
    ("8-9a", seconds),
    ("8-9a", seconds_by_loop),
    ("8-9b", held),
    ("8-9b", held_by_adding),
    ("8-9c", choice),
    ("8-9c", choice_by_sorting),
    ("8-9d", "b"),
    ("8-9d", "(B)"),
    ("8-9e", good_rate),
    ("8-9e", good_rate_by_loop),
    ("8-9f", of_runs(good_rate)),
    ("8-9f", list(of_runs(good_rate_by_loop))),
]


def off(**changed):
    """The right answer to 8-9f, with another goodput for some configurations."""
    runs, deadline_s, mine = of_runs(good_rate)
    return runs, deadline_s, mine | changed


# wrong answers beyond the known ones, typed-in constants first

PLAUSIBLE = {
    "8-9a": [
        lambda p, o, t, r: 5.5536,
        lambda p, o, t, r: 2.04 + seconds(0, o, t, r),
        lambda p, o, t, r: seconds(p, 256, t, r),
        lambda p, o, t, r: seconds(p, o, 2, r),
        lambda p, o, t, r: p + 128 * r,
        lambda p, o, t, r: p + round((o - 1) / t) * r,
        lambda p, o, t, r: round(seconds(p, o, t, r), 2),
    ],
    "8-9b": [
        lambda n, s, x, d, h: 6048 * MIB,
        lambda n, s, x, d, h: held(16, s, x, d, h),
        lambda n, s, x, d, h: n * s + x + d,
        lambda n, s, x, d, h: s + (n - 1) * x + d,
        lambda n, s, x, d, h: held(n, s, x, d, h) / 2**20,
        lambda n, s, x, d, h: s + n * x + max(d, h),
    ],
    "8-9c": [
        lambda plans, m, d: "D",
        lambda plans, m, d: plans[0][0],
        lambda plans, m, d: choice(plans, 12 * 1024, d),
        lambda plans, m, d: choice(plans, m, 7),
        lambda plans, m, d: choice_by_sorting(plans, m, d).lower(),
        lambda plans, m, d: min(plans, key=lambda plan: plan[2] / plan[3])[0],
    ],
    "8-9e": [
        lambda requests, d: 1.54,
        lambda requests, d: good_rate(requests, 3),
        lambda requests, d: round(good_rate(requests, d), 1),
        lambda requests, d: (
            sum(r["correct"] and r["finish_s"] - r["first_token_s"] <= d for r in requests)
            / (max(r["finish_s"] for r in requests) - min(r["arrival_s"] for r in requests))
        ),
        lambda requests, d: good_rate(requests, d) * len(requests),
        lambda requests, d: 1 / good_rate(requests, d),
    ],
    "8-9f": [
        off(serial=1.54),
        off(continuous=0.0),
        off(serial=good_rate(BOOK[1], 3), continuous=good_rate(BOOK[0], 3)),
        off(continuous=-good_rate(BOOK[1], 3)),
        off(serial=good_rate(BOOK[0], 2), continuous=good_rate(BOOK[1], 2)),
    ],
}

# usual mistakes, written as a learner writes them; and in what words they are met

NAMED = [
    ("8-9a", lambda p, o, t, r: p + math.ceil(o / t) * r, "Where does the first one come from?"),
    ("8-9a", lambda p, o, t, r: p + (o - 1) / t * r, "whole or not at all"),
    ("8-9a", lambda p, o, t, r: p + (o - 1) // t * r, "the last round"),
    ("8-9b", lambda n, s, x, d, h: s + n * x + d + h, "lies in host memory"),
    ("8-9b", lambda n, s, x, d, h: n * (s + x) + d, "once for each request"),
    ("8-9b", lambda n, s, x, d, h: (s + n * x + d) / 2**20, "this is in MiB"),
    ("8-9c", lambda plans, m, d: choice([[*plan[:3], 1] for plan in plans], m, d), "how many good results"),
    ("8-9c", lambda plans, m, d: choice(plans, math.inf, d), "fit?"),
    ("8-9c", lambda plans, m, d: choice(plans, m, math.inf), "end in time?"),
    ("8-9e", lambda requests, d: good_rate(requests, d) * 0 + sum(r["correct"] for r in requests)
     / (max(r["finish_s"] for r in requests) - min(r["arrival_s"] for r in requests)), "came too late"),
    ("8-9e", lambda requests, d: sum(r["correct"] and r["finish_s"] <= d for r in requests)
     / (max(r["finish_s"] for r in requests) - min(r["arrival_s"] for r in requests)), "own arrival"),
    ("8-9f", of_runs(lambda requests, d: len(requests) / (max(r["finish_s"] for r in requests))), "completed requests"),
]  # fmt: skip


def answer_with(**changes):
    """A right answer with other records: `changes` of the first request of the first run."""
    runs, deadline_s, mine = copy.deepcopy(of_runs(good_rate))
    runs["serial"][0] |= changes
    return runs, deadline_s, mine


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (good_rate, "give three things"),
        ((RUNS, 3), "give three things"),
        (({"serial": BOOK[0]}, 3, {"serial": 1.0}), "two configurations or more"),
        ((RUNS, 0, of_runs(good_rate)[2]), "above 0"),
        ((RUNS, 3, {"serial": 1.0}), "serial, continuous"),
        ((RUNS, 3, dict.fromkeys(RUNS)), "must be a number"),
        (answer_with(finish_s=0.0), "then finish"),
        (answer_with(arrival_s=-1.0), "the same requests at the same times"),
        (({**RUNS, "serial": [{"arrival_s": 0}]}, 3, of_runs(good_rate)[2]), "lacks first_token_s, finish_s, correct"),
        (({"serial": [], "continuous": []}, 3, of_runs(good_rate)[2]), "one or more"),
    ],
)
def test_records_that_cannot_be_judged(answer, said):
    verdict = judge(find_part("8-9f"), answer)
    assert verdict.kind == "misuse"
    assert said in verdict.message


def test_the_configuration_that_is_off_is_named():
    assert "continuous: " in judge(find_part("8-9f"), off(continuous=9.0)).message
    share = sum(r["correct"] for r in BOOK[0]) / (max(r["finish_s"] for r in BOOK[0]) - BOOK[0][0]["arrival_s"])
    assert judge(find_part("8-9f"), off(serial=share)).message.startswith("serial: you count right answers")


# its numbers, against the chapter's


def test_the_books_numbers():
    totals = [find_part("8-9a").expected(*case) for case in find_part("8-9a").book]
    fact = FACTS["plan.e"]["value"]
    assert totals[2] == pytest.approx(fact["total_s"], abs=1e-4)
    assert totals[:2] == pytest.approx([FACTS["plan.total"]["value"][name] for name in "BD"], abs=6e-3)
    assert totals[3:5] == pytest.approx([FACTS["plan.short_output"]["value"][name] for name in "BD"], abs=6e-3)
    bytes_of = [find_part("8-9b").expected(*case) / MIB for case in find_part("8-9b").book]
    assert bytes_of == [fact["memory_mib"], FACTS["plan.memory"]["value"]["D"], fact["memory_mib"]]
    assert totals[2] / 16 == pytest.approx(fact["gpu_s_per_good"], abs=1e-4)


def test_the_choices():
    assert [find_part("8-9c").expected(*case) for case in find_part("8-9c").book] == ["D", "E", "E", "none"]
