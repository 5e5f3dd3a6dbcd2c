"""Paired outcomes and retries beyond the chapter's own numbers, and what is refused. Facts: test_facts_reuse.py."""

import itertools
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servelab import catalog, quality

RECORD = catalog.record("kv-quality")
BF16, FP8, FP8_BF16_Q = (
    quality.outcomes(RECORD.where(kv_q_format=name)) for name in ("bf16_kv_bf16_q", "fp8_kv_fp8_q", "fp8_kv_bf16_q")
)
ROW = {"task": 1, "concurrency": 1, "repeat": 1, "correct": 1}


def test_the_grid_of_figures_8_26_to_8_28():
    right, wrong = (True,) * 4, (False,) * 4
    others = {task: right for task in (1, 2, 3, 4, 7, 8)}
    assert quality.grid(BF16) == others | {5: wrong, 6: right}
    assert quality.grid(FP8) == others | {5: (True, True, False, False), 6: wrong}  # at concurrency 1 and at 4
    assert quality.grid(FP8_BF16_Q) == others | {5: right, 6: wrong}
    assert list(quality.grid(BF16)) == list(range(1, 9))


def test_equal_scores_hide_flips():
    pairing = quality.pair(BF16, FP8_BF16_Q)
    assert sum(BF16.values()) == sum(FP8_BF16_Q.values())
    assert (len(pairing.both), len(pairing.only_first), len(pairing.only_second), len(pairing.neither)) == (24, 4, 4, 0)
    assert pairing.flips == 8
    assert pairing.p_value == 1
    assert {task for task, *_ in pairing.only_first} == {6}


def test_the_original_fp8_loses_two_and_the_test_cannot_tell():
    pairing = quality.pair(BF16, FP8)
    assert (len(pairing.only_first), len(pairing.only_second)) == (4, 2)
    assert pairing.p_value == 0.6875
    assert quality.changed_tasks(BF16, FP8) == {5: (0, 2), 6: (4, 0)}


def test_nothing_changes_against_itself():
    assert quality.pair(FP8, FP8).flips == 0
    assert quality.changed_tasks(FP8, FP8) == {}


OUTCOMES = st.dictionaries(st.tuples(st.integers(0, 5), st.integers(0, 3)), st.tuples(st.booleans(), st.booleans()))


@given(OUTCOMES)
def test_pairs_account_for_every_run(results):
    first = {run: before for run, (before, _) in results.items()}
    second = {run: after for run, (_, after) in results.items()}
    pairing, reverse = quality.pair(first, second), quality.pair(second, first)
    parts = (pairing.both, pairing.only_first, pairing.only_second, pairing.neither)
    assert sorted(itertools.chain(*parts)) == sorted(results)
    gained = len(pairing.only_second) - len(pairing.only_first)
    assert sum(second.values()) - sum(first.values()) == gained
    assert (reverse.only_first, reverse.only_second) == (pairing.only_second, pairing.only_first)
    assert reverse.p_value == pairing.p_value


@pytest.mark.parametrize(("only_first", "only_second"), [(a, b) for a in range(7) for b in range(7) if a + b <= 10])
def test_mcnemar_against_all_ways_the_flips_could_have_gone(only_first, only_second):
    flips = only_first + only_second
    ways = list(itertools.product((0, 1), repeat=flips))
    as_uneven = sum(abs(2 * sum(way) - flips) >= abs(only_first - only_second) for way in ways)
    assert quality.mcnemar_p_value(only_first, only_second) == pytest.approx(as_uneven / len(ways), rel=1e-12)


@given(st.integers(0, 400), st.integers(0, 400))
def test_mcnemar_is_a_symmetric_probability(a, b):
    assert 0 < quality.mcnemar_p_value(a, b) == quality.mcnemar_p_value(b, a) <= 1


def test_mcnemar_needs_six_flips_one_way_for_five_percent():
    assert quality.mcnemar_p_value(0, 5) == 0.0625
    assert quality.mcnemar_p_value(0, 6) == 0.03125
    assert quality.mcnemar_p_value(0, 2000) == pytest.approx(math.ldexp(1, -1074), abs=1e-300)  # no overflow


def test_recorded_retries_from_first_to_last_attempt():
    rows = catalog.record("retries").rows
    costs = quality.recorded_costs(rows)
    assert [cost.total_s for cost in costs] == pytest.approx([row["task_total_s"] for row in rows], abs=2e-4)
    total = quality.total_cost(costs)
    assert (total.succeeded, total.retries, total.retry_tokens) == (8, 2, 92)
    assert total.total_s == pytest.approx(10.005, abs=1e-3)
    assert total.last_only_s == pytest.approx(8.007, abs=1e-3)  # looks like eight answers of a second each
    assert total.hidden_s == pytest.approx(1.998, abs=1e-3)


def test_a_task_that_never_succeeds_still_costs():
    attempts = [quality.Attempt(1.0, 10, False), quality.Attempt(2.0, 20, False), quality.Attempt(4.0, 40, False)]
    cost = quality.retry_cost(attempts, check_s=0.5)
    assert (cost.succeeded, cost.retries, cost.retry_tokens) == (0, 2, 60)
    assert (cost.total_s, cost.last_only_s, cost.retry_s, cost.hidden_s) == (7.5, 4.0, 6.0, 3.5)


@given(st.floats(0, 10), st.floats(0.01, 10), st.floats(0, 1), st.floats(0, 1), st.floats(0, 10))
def test_at_break_even_the_faster_answer_gains_nothing(answer_s, retry_s, check_s, error_rate, saved_s):
    more = quality.break_even_error_rate(saved_s, retry_s, check_s)
    if error_rate + more <= 1:
        slow = quality.expected_task_seconds(answer_s + saved_s, error_rate, retry_s, check_s)
        fast = quality.expected_task_seconds(answer_s, error_rate + more, retry_s, check_s)
        assert fast == pytest.approx(slow)


def test_expected_task_seconds():
    assert quality.expected_task_seconds(1.0, 0.25, 2.0, check_s=0.5) == 1.0 + 0.5 + 0.25 * 2.5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: quality.outcomes([ROW, ROW]), r"rows has the run \(1, 1, 1\) twice; it must have each once"),
        (lambda: quality.outcomes([ROW | {"correct": 2}]), r"correct is 2 in run \(1, 1, 1\); it must be 0 or 1"),
        (lambda: quality.outcomes([ROW], ["tsak"]), "run_columns is 'tsak', which is not known; did you mean task"),
        (
            lambda: quality.grid({(1, 1): True, (2, 2): True}),
            r"results has the runs \[\(2,\)\] of task 2; it must have",
        ),
        (lambda: quality.pair({1: True}, {1: True, 2: True}), r"second lacks, or has beyond first, the runs \[2\]"),
        (lambda: quality.changed_tasks({(1, 1): True}, {}), r"the runs \[\(1, 1\)\]; it must have the same as first"),
        (lambda: quality.mcnemar_p_value(-1, 2), "only_first is -1; it must be an integer of at least 0"),
        (lambda: quality.mcnemar_p_value(1, 0.5), "only_second is 0.5"),
        (lambda: quality.Attempt(-1.0, 1, True), "generate_s is -1.0; it must be a .*number .*at least 0"),
        (lambda: quality.Attempt(1.0, -1, True), "output_tokens is -1"),
        (lambda: quality.retry_cost([]), "attempts is empty; it must hold at least one"),
        (lambda: quality.retry_cost([quality.Attempt(1, 1, True)] * 2), "attempts goes on after a right answer"),
        (lambda: quality.retry_cost([quality.Attempt(1, 1, True)], -1), "check_s is -1"),
        (lambda: quality.total_cost([]), "costs is empty"),
        (
            lambda: quality.recorded_costs([catalog.record("retries").rows[0] | {"attempts": 3}]),
            "attempts is 3; it must be an integer from 1 to 2",
        ),
        (lambda: quality.expected_task_seconds(-1, 0, 1), "answer_s is -1"),
        (lambda: quality.expected_task_seconds(1, 1.5, 1), "error_rate is 1.5; .* at least 0 and at most 1"),
        (lambda: quality.expected_task_seconds(1, 0, -1), "retry_s is -1"),
        (lambda: quality.expected_task_seconds(1, 0, 1, -1), "check_s is -1"),
        (lambda: quality.break_even_error_rate(-1, 1), "saved_s is -1"),
        (lambda: quality.break_even_error_rate(1, 0), "retry_s is 0; it must be a .*number above 0"),
        (lambda: quality.break_even_error_rate(1, 1, -1), "check_s is -1"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=re.compile(message)):
        call()
