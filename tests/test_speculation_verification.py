"""Greedy and sampled verification of drafts, against plain decoding and exact distributions."""

import random
import re
from collections import Counter
from fractions import Fraction
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servelab.speculation import (
    Verification,
    acceptance_rate,
    expected_tokens,
    generated_distribution,
    output_distribution,
    residual,
    round_distribution,
    sample,
    sequence_distribution,
    token_counts,
    verify_draft,
    verify_greedy,
    verify_token,
)

QUARTER = Fraction(1, 4)
TARGET = {"A": QUARTER, "B": 3 * QUARTER}


# ---- greedy
def test_figure_8_29():
    """Draft a b c d; the target says a b x, so that two tokens are accepted and three come out."""
    verification = verify_greedy("abcd", "abxyz")
    assert verification == Verification(("a", "b", "x"), draft_length=4)
    assert (verification.num_accepted, verification.num_discarded) == (2, 2)


@pytest.mark.parametrize(
    ("draft", "target", "tokens"),
    [
        ("abcd", "abcde", "abcde"),  # all accepted, and the target's next one
        ("abcd", "xbcde", "x"),  # one token at least
        ("", "a", "a"),  # no draft: plain decode
        ("abab", "abbab", "abb"),  # what agrees again behind the wrong token is of no use
    ],
)
def test_greedy(draft, target, tokens):
    assert "".join(verify_greedy(draft, target).tokens) == tokens


@settings(deadline=None)
@given(st.lists(st.integers(0, 2), max_size=6), st.integers(0, 100), st.integers(0, 4))
def test_greedy_gives_what_decode_gives(prompt, seed, draft_length):
    """Whatever is drafted, and however long: round after round puts out what one token a step does."""
    random_draft = random.Random(seed)

    def target(tokens):  # any deterministic rule will do
        return (sum(tokens) + 2 * len(tokens)) % 3

    plain, speculative = list(prompt), list(prompt)
    while len(plain) < len(prompt) + 12:
        plain.append(target(plain))
    while len(speculative) < len(plain):
        draft = [random_draft.randrange(3) for _ in range(draft_length)]
        choices = [target(speculative + draft[:position]) for position in range(draft_length + 1)]
        speculative += verify_greedy(draft, choices).tokens
    assert speculative[: len(plain)] == plain


# ---- exact distributions
@st.composite
def distributions(draw, tokens):
    """Rational probabilities of `tokens` tokens, zeros among them."""
    weights = draw(st.lists(st.integers(0, 6), min_size=tokens, max_size=tokens).filter(any))
    return [Fraction(weight, sum(weights)) for weight in weights]


PAIRS = st.integers(1, 5).flatmap(lambda tokens: st.tuples(distributions(tokens), distributions(tokens)))


@given(PAIRS)
def test_one_position_puts_out_exactly_the_target(pair):
    p, q = pair
    assert output_distribution(p, q) == p


@given(PAIRS)
def test_with_floats_it_is_the_target_up_to_rounding(pair):
    p, q = ([float(share) for share in distribution] for distribution in pair)
    assert output_distribution(p, q) == pytest.approx(p, abs=1e-12)


@given(PAIRS)
def test_acceptance_rate_is_the_overlap(pair):
    p, q = pair
    distance = sum(abs(a - b) for a, b in zip(p, q, strict=True)) / 2
    assert acceptance_rate(p, q) == acceptance_rate(q, p) == 1 - distance


@given(PAIRS)
def test_residual_is_a_distribution_of_what_q_gives_too_little(pair):
    p, q = pair
    rest = residual(p, q)
    assert sum(rest) == 1
    if p != q:
        assert all((share > 0) == (a > b) for share, a, b in zip(rest, p, q, strict=True))


def test_two_symbols():
    """Figures 8-30 and 8-31: both drafts give the target, but are accepted 1/4 and 3/4 of the time."""
    for symbol, accepted in (("A", QUARTER), ("B", 3 * QUARTER)):
        assert output_distribution(TARGET, {symbol: 1}) == TARGET
        assert acceptance_rate(TARGET, {symbol: 1}) == accepted
    assert residual(TARGET, {"A": 1}) == {"A": 0, "B": 1}
    assert residual(TARGET, TARGET) == TARGET


def test_resampling_from_the_target_itself_is_wrong():
    wrong = output_distribution(TARGET, {"A": 1}, resample_from=TARGET)
    assert wrong == {"A": QUARTER + 3 * QUARTER * QUARTER, "B": Fraction(9, 16)}


def test_a_token_that_only_the_draft_knows_never_comes_out():
    assert output_distribution({"A": 1}, {"C": 1}) == {"A": 1, "C": 0}


def tables(values):
    """A function from prefix to distribution, one of `values` for each length and last token."""
    return lambda prefix: values[(len(prefix) + sum(prefix)) % len(values)]


DEPENDENT = st.tuples(
    st.lists(distributions(3), min_size=1, max_size=3).map(tables),
    st.lists(distributions(3), min_size=1, max_size=3).map(tables),
)


@settings(max_examples=40, deadline=None)
@given(DEPENDENT, st.integers(0, 3), st.integers(0, 4))
def test_rounds_put_out_exactly_the_target_s_sequences(models, draft_length, num_tokens):
    target, drafter = models
    got = generated_distribution(target, drafter, draft_length, num_tokens)
    assert got == sequence_distribution(target, num_tokens)


@settings(max_examples=40, deadline=None)
@given(distributions(3), distributions(3), st.integers(0, 3))
def test_a_round_decides_the_expected_tokens(p, q, draft_length):
    outcomes = round_distribution(lambda prefix: p, lambda prefix: q, draft_length)
    assert sum(outcomes.values()) == 1
    rate = acceptance_rate(p, q)
    assert sum(len(tokens) * share for tokens, share in outcomes.items()) == expected_tokens(rate, draft_length)
    lengths = Counter()
    for tokens, share in outcomes.items():
        lengths[len(tokens)] += share
    assert [lengths[length] for length in range(1, draft_length + 2)] == token_counts(rate, draft_length)


# ---- sampled
def chi_square(counts, expected):
    assert not set(counts) - {outcome for outcome, share in expected.items() if share}
    total = sum(counts.values())
    return sum((counts[outcome] - total * share) ** 2 / (total * share) for outcome, share in expected.items() if share)


def test_sampled_tokens_follow_the_target():
    """20,000 samples; 18.47 is passed by 1 in 1,000 true samples at 4 degrees of freedom. The seed is fixed."""
    uniform = random.Random(85).random
    p, q = [0.1, 0.0, 0.4, 0.2, 0.05, 0.25], [0.3, 0.1, 0.1, 0.2, 0.3, 0.0]
    outputs = [verify_token(p, q, sample(q, uniform()), uniform(), uniform()) for _ in range(20_000)]
    assert chi_square(Counter(token for token, _ in outputs), dict(enumerate(p))) < 18.47
    assert mean(accepted for _, accepted in outputs) == pytest.approx(acceptance_rate(p, q), abs=0.01)


def test_sampled_drafts_follow_the_exact_round():
    """4,000 rounds of AAA and of BBB against the enumerated outcomes; 18.47 as above, of five outcomes each."""
    uniform = random.Random(8).random
    for symbol in "AB":
        q = {symbol: 1}
        rounds = Counter(
            verify_draft([TARGET] * 4, [q] * 3, symbol * 3, [uniform() for _ in range(4)]).tokens for _ in range(4_000)
        )
        assert chi_square(rounds, round_distribution(lambda prefix: TARGET, lambda prefix: q, 3)) < 18.47  # noqa: B023


def test_the_uniform_numbers_decide():
    q = {"A": 1}
    assert verify_token(TARGET, q, "A", 0.2499, 0.0) == ("A", True)
    assert verify_token(TARGET, q, "A", QUARTER, 0.0) == ("B", False)
    assert verify_draft([TARGET] * 3, [q] * 2, "AA", [0.1, 0.3, 0.99]) == Verification(("A", "B"), 2)
    assert verify_draft([TARGET] * 3, [q] * 2, "AA", [0.1, 0.1, 0.2]) == Verification(("A", "A", "A"), 2)
    assert verify_draft([TARGET], [], "", [0.25]) == Verification(("B",), 0)


def test_sample_reaches_each_token_over_its_share():
    assert [sample([0, Fraction(1, 2), 0, Fraction(1, 2)], u) for u in (0, 0.49, 0.5, 0.99)] == [1, 1, 3, 3]
    assert sample({"A": 0.1, "B": 0.9 - 1e-9, "C": 0}, 1 - 1e-12) == "B"  # the sum falls short by rounding


HALF = [0.5, 0.5]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: verify_greedy("ab", "ab"), "target has 2 entries; it must have 3"),
        (lambda: output_distribution([0.5, 0.4], HALF), "p sums to 0.9; it must sum to 1"),
        (lambda: output_distribution(HALF, [Fraction(1, 3), QUARTER]), "q sums to 7/12; it must sum to 1 exactly"),
        (lambda: output_distribution([1.5, -0.5], HALF), r"p\[0\] is 1.5"),
        (lambda: output_distribution({"A": True}, HALF), r"p\['A'\] is True"),
        (lambda: output_distribution([], []), "p sums to 0"),
        (lambda: output_distribution([1], HALF), "q has 2 tokens; it must have as many as p, 1"),
        (lambda: output_distribution(HALF, HALF, resample_from=[1, 1]), "resample_from sums to 2"),
        (lambda: acceptance_rate(HALF, [0.2]), "q sums to 0.2"),
        (lambda: residual(HALF, [-1, 2]), r"q\[0\] is -1"),
        (lambda: sample([0.5], 0), "distribution sums to 0.5"),
        (lambda: sample([1], 1), "uniform is 1; it must be a number of at least 0 and below 1"),
        (lambda: verify_token(HALF, [1, 0], 1, 0, 0), "token is 1; it must be one that q can draw"),
        (lambda: verify_token(HALF, HALF, 2, 0, 0), "token is 2"),
        (lambda: verify_token(HALF, HALF, 0, -0.1, 0), "accept_uniform is -0.1"),
        (lambda: verify_token(HALF, HALF, 0, 0, 1.0), "resample_uniform is 1.0"),
        (lambda: verify_draft([HALF], [HALF], [0], [0, 0]), "targets has 1 entries; it must have 2"),
        (lambda: verify_draft([HALF] * 2, [HALF], [0], [0]), "uniforms has 1 entries; it must have 2"),
        (lambda: verify_draft([HALF] * 2, [], [0], [0, 0]), "drafts has 0 entries; it must have one for each of 1"),
        (lambda: round_distribution(lambda _: [1], lambda _: [1], -1), "draft_length is -1"),
        (lambda: round_distribution(lambda _: [0.5], lambda _: [1], 0), "target sums to 0.5"),
        (lambda: generated_distribution(lambda _: [1], lambda _: [1], 1, -1), "num_tokens is -1"),
        (lambda: sequence_distribution(lambda _: [1], 0.5), "num_tokens is 0.5"),
        (lambda: Verification((), 2), "tokens has 0 entries; it must have 1 to 3"),
        (lambda: Verification("abc", 1), "tokens has 3 entries; it must have 1 to 2"),
        (lambda: Verification("a", -1), "draft_length is -1"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=re.compile(message)):
        call()
