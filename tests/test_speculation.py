"""Expected tokens of a round, its cost, and the length of a draft. Facts: facts_formats.py."""

import math
import re
from fractions import Fraction
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servelab import catalog, cost, speculation
from servelab.speculation import (
    best_length,
    expected_rounds,
    expected_tokens,
    marginal,
    measured_acceptance,
    token_counts,
)

QUARTER = Fraction(1, 4)
QWEN, CARD = catalog.model("qwen3-8b"), catalog.accelerator("rtx-pro-6000")


# ---- expected tokens
ACCEPTANCES = st.lists(st.fractions(0, 1, max_denominator=8), max_size=6)


@settings(deadline=None)
@given(ACCEPTANCES)
def test_per_position_acceptance(acceptances):
    length = len(acceptances)
    by_formula = 1 + sum(math.prod(acceptances[:count]) for count in range(1, length + 1))
    assert expected_tokens(acceptances, length) == by_formula
    counts = token_counts(acceptances, length)
    assert sum(counts) == 1
    assert sum(tokens * share for tokens, share in enumerate(counts, start=1)) == by_formula
    assert expected_tokens(acceptances, length // 2) <= by_formula


def test_constant_acceptance():
    assert expected_tokens(3 * QUARTER, 4) == expected_tokens([3 * QUARTER] * 4, 4) == Fraction(781, 256)
    assert (expected_tokens(0, 8), expected_tokens(1, 8), expected_tokens(0.5, 0)) == (1, 9, 1)


@settings(deadline=None)
@given(st.fractions(0, 1, max_denominator=4), st.integers(0, 4), st.integers(0, 12))
def test_expected_rounds_lie_between_two_bounds(rate, draft_length, num_tokens):
    rounds = expected_rounds(rate, draft_length, num_tokens)
    tokens = expected_tokens(rate, draft_length)
    assert num_tokens / tokens <= rounds <= (num_tokens + draft_length) / tokens  # Wald: the last round overshoots
    assert expected_rounds(0, draft_length, num_tokens) == num_tokens


@pytest.mark.parametrize(("configuration", "length"), [("dflash_k7", 7), ("dflash_k15", 15)])
def test_measured_acceptance_gives_the_measured_mean(configuration, length):
    accepted = [
        row["accepted_draft_tokens"] for row in catalog.record("dflash-times").where(configuration=configuration)
    ]
    conditional = measured_acceptance(accepted, length)
    assert len(conditional) == length
    assert expected_tokens(conditional, length) == 1 + Fraction(sum(accepted), len(accepted))


def test_measured_acceptance_by_hand():
    assert measured_acceptance([0, 1, 1, 3], 4) == [Fraction(3, 4), Fraction(1, 3), 1, 0]


# ---- costs and lengths
def test_draft_times():
    assert [speculation.draft_s(source, 3.0, 4) for source in speculation.DRAFT_SOURCES] == [3, 12, 3]
    assert [speculation.draft_s(source, 3.0, 0) for source in speculation.DRAFT_SOURCES] == [0, 0, 0]
    assert [speculation.draft_s("serial", 1.0, length, group=4) for length in (1, 4, 5)] == [4, 4, 8]


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 10), st.integers(1, 9)), min_size=1))
def test_ratio_of_sums_weighs_each_token_alike(rounds):
    rounds_s, tokens = zip(*rounds, strict=True)
    each_token = [seconds / count for seconds, count in rounds for _ in range(count)]
    assert speculation.time_per_token(rounds_s, tokens) == pytest.approx(mean(each_token), abs=1e-9)
    each_round = [seconds / count for seconds, count in rounds]
    assert speculation.mean_of_ratios(rounds_s, tokens) == pytest.approx(mean(each_round), abs=1e-9)


def test_verification_of_16_drafts_computes_less_than_it_reads():
    """Plan D of section 8.6.3: 128 rows, 2.56 TFLOP, 8.8 ms at the 57.8 % of the peak that prefill reached."""
    bounds = speculation.verify_roofline(QWEN, CARD, 7, 8192, requests=16, mfu=0.578)
    assert bounds.compute_s * CARD.flops * 0.578 == pytest.approx(2.56e12, abs=0.005e12)
    assert bounds.compute_s == pytest.approx(8.8e-3, abs=0.05e-3)
    assert bounds.bound == "read"


def test_verification_of_no_draft_is_a_decode_step():
    assert speculation.verify_roofline(QWEN, CARD, 0, 2048, requests=4) == cost.roofline(QWEN, CARD, [(1, 2048)] * 4)


def test_rows_are_padded_to_the_captured_shape():
    computed = [speculation.verify_roofline(QWEN, CARD, m, 0, captured=(8, 16)).compute_s for m in (3, 4, 7, 8)]
    assert computed[0] == pytest.approx(computed[1], rel=1e-4) == pytest.approx(computed[2], rel=1e-4)
    assert computed[3] == pytest.approx(2 * computed[2], rel=1e-4)


def ex_8_7(length, group=1):
    return 26.3 + speculation.draft_s("serial", 3.6, length, group)


def in_groups(length):
    return ex_8_7(length, group=4)


def test_exercise_8_7():
    assert best_length(0.75, ex_8_7, [1, 2, 4, 8]) == 4
    assert best_length(0.75, in_groups, [4, 5]) == 4
    fifth = marginal(0.75, in_groups, 4, 5)
    assert fifth.extra_tokens == pytest.approx(0.75**5)
    assert fifth.extra_s == pytest.approx(14.4)
    assert not fifth.pays  # 60.7 ms a token against 13.3
    assert fifth.extra_s_per_token == pytest.approx(60.68, abs=0.01)
    assert fifth.present_s_per_token == pytest.approx(13.34, abs=0.01)


@settings(deadline=None)
@given(
    st.lists(st.fractions(0, 1, max_denominator=8), min_size=9, max_size=9),
    st.lists(st.integers(1, 40), min_size=9, max_size=9),
    st.integers(0, 7),
    st.integers(1, 8),
)
def test_the_marginal_rule_says_what_the_ratio_says(acceptances, times, length, more):
    longer = min(8, length + more)
    verdict = marginal(acceptances, times.__getitem__, length, longer)
    before, behind = (Fraction(times[m]) / expected_tokens(acceptances, m) for m in (length, longer))
    assert verdict.pays == (behind < before)
    best = best_length(acceptances, times.__getitem__, range(9))
    assert all(not marginal(acceptances, times.__getitem__, best, m).pays for m in range(best + 1, 9))


def test_one_token_more_may_not_pay_where_a_whole_shape_does():
    round_s = {0: 10, 1: 16, 2: 16, 3: 16, 4: 16}.__getitem__
    assert not marginal(0.5, round_s, 0, 1).pays
    assert marginal(0.5, round_s, 0, 4).pays
    assert best_length(0.5, round_s, range(5)) == 4
    assert marginal(0, round_s, 0, 1).extra_s_per_token == math.inf


def test_an_index_may_never_pay():
    assert speculation.index_break_even_tokens(1, 0.01, 0.01) == math.inf
    assert speculation.index_break_even_tokens(0, 0.02, 0.01) == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: expected_tokens(1.1, 2), "acceptance is 1.1; it must be a finite number of at least 0 and at most 1"),
        (lambda: expected_tokens([0.5, -1], 2), r"acceptance\[1\] is -1"),
        (lambda: expected_tokens([0.5], 2), "acceptance has 1 positions; it must have one for each of 2"),
        (lambda: expected_tokens(0.5, -1), "draft_length is -1"),
        (lambda: token_counts(0.5, 1.0), "draft_length is 1.0"),
        (lambda: expected_rounds(0.5, 1, -1), "num_tokens is -1"),
        (lambda: measured_acceptance([], 3), "accepted is empty"),
        (lambda: measured_acceptance([4], 3), "accepted is 4; it must be an integer from 0 to 3"),
        (lambda: speculation.time_per_token([], []), "rounds_s has 0 entries"),
        (lambda: speculation.time_per_token([1], [1, 2]), "rounds_s has 1 entries, tokens 2"),
        (lambda: speculation.time_per_token([-1], [1]), "rounds_s is -1"),
        (lambda: speculation.mean_of_ratios([1], [0.5]), "tokens is 0.5"),
        (lambda: speculation.draft_s("eagle", 1, 1), "source is 'eagle'"),
        (lambda: speculation.draft_s("serial", -1, 1), "unit_s is -1"),
        (lambda: speculation.draft_s("serial", 1, -1), "draft_length is -1"),
        (lambda: speculation.draft_s("serial", 1, 1, group=0), "group is 0"),
        (lambda: speculation.verify_roofline(QWEN, CARD, -1, 0), "draft_length is -1"),
        (lambda: speculation.verify_roofline(QWEN, CARD, 1, -1), "context is -1"),
        (lambda: speculation.verify_roofline(QWEN, CARD, 1, 0, requests=0), "requests is 0"),
        (lambda: speculation.verify_roofline(QWEN, CARD, 1, 0, mfu=2), "mfu is 2"),
        (lambda: speculation.draft_budget_s(0.5, 1, 1), "tokens_per_round is 0.5"),
        (lambda: speculation.draft_budget_s(1, 0, 1), "decode_s is 0"),
        (lambda: speculation.draft_budget_s(1, 1, -1), "verify_s is -1"),
        (lambda: speculation.index_break_even_tokens(-1, 1, 1), "index_s is -1"),
        (lambda: speculation.index_break_even_tokens(1, 0, 1), "decode_s is 0"),
        (lambda: speculation.index_break_even_tokens(1, 1, 0), "speculative_s is 0"),
        (lambda: marginal(0.5, ex_8_7, 4, 4), "longer is 4; it must be an integer of at least 5"),
        (lambda: marginal(0.5, ex_8_7, -1, 4), "length is -1"),
        (lambda: marginal(0.5, lambda m: 0, 0, 1), r"round_s\(0\) is 0"),
        (lambda: best_length(0.5, ex_8_7, []), "lengths is empty"),
        (lambda: best_length(0.5, ex_8_7, [-1]), "draft_length is -1"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=re.compile(message)):
        call()
