"""Figures of 8.5.1: rounds, shares and counts are the library's; bad input gets a clear error."""

from collections import Counter
from fractions import Fraction

import pytest

from servelab import speculation
from servelab.figures import sampling, speculating

QUARTER = Fraction(1, 4)


def table(fig):
    return fig.layout.meta["tables"][0]["rows"]


@pytest.mark.parametrize(
    ("draft", "text", "kv_tokens", "blocks"),
    [("abcd", "tuvabx", 5, "0, 1"), ("abxy", "tuvabxyz", 7, "0, 1"), ("bcde", "tuva", 3, "0"), ("", "tuva", 3, "0")],
)
def test_round_ends_with_what_was_decided(draft, text, kv_tokens, blocks):
    fig, sentence = speculating.verify_explorer(draft, "rollback")
    rows = dict(map(tuple, table(fig)))
    assert rows["text"] == " ".join(text)
    assert (rows["KV"], rows["blocks"]) == (kv_tokens, blocks)
    assert f"KV of {kv_tokens} tokens counts" in sentence
    kv = [width for width, row in zip(fig.data[3].x, fig.data[3].y, strict=True) if row == "KV"]
    assert sum(kv) == pytest.approx(kv_tokens, abs=0.2)


def test_the_target_is_asked_about_the_draft_as_it_is():
    """Behind a wrong token its choice may equal the draft, and is void all the same."""
    fig, sentence = speculating.verify_explorer("abcd", "accept")
    assert dict(map(tuple, table(fig)))["target"] == "a b x d e"
    assert "even where both agree" in sentence
    assert [text for text in fig.data[-1].text if text == "<b>d</b>"] == ["<b>d</b>"] * 2


@pytest.mark.parametrize(("draft", "kept", "says"), [("abxy", "4", "bonus: 5 tokens"), ("abcd", "2", "3 tokens from")])
def test_correction_or_bonus(draft, kept, says):
    fig, sentence = speculating.verify_explorer(draft, "correct")
    assert str(dict(map(tuple, table(fig)))["accepted"]) == kept
    assert says in sentence


def test_round_refuses_an_unknown_step():
    with pytest.raises(ValueError, match="step is 'guess'"):
        speculating.verify_explorer("abcd", "guess")


@pytest.mark.parametrize(("q", "rate", "always"), [(Fraction(1), "1/4", "A"), (Fraction(0), "3/4", "B")])
def test_paths_of_the_two_drafts(q, rate, always):
    """Figures 8-30 and 8-31: both end in the target's distribution."""
    fig, sentence = sampling.paths_explorer(QUARTER, q, "the residual")
    assert sentence.startswith(f"Accepted with probability {rate}.")
    assert [(row[0], row[-1]) for row in table(fig)] == [("A", "1/4"), ("B", "3/4")]
    (rejected,) = fig.data[2].x
    assert rejected == 1 - float(Fraction(rate))
    for bar in fig.data:
        assert len(bar.x) == len(bar.base) == len(bar.y)
    assert sum(x for bar in fig.data for x in bar.x) == pytest.approx(3)  # three rows, each of probability 1


def test_the_mistake_shifts_the_output():
    fig, sentence = sampling.paths_explorer(QUARTER, Fraction(1), "p")
    assert table(fig)[0] == ["A", "1/4", "1", "1/4", "3/16", "7/16"]
    assert "7/16 instead of 1/4" in sentence
    assert "missed" in fig.layout.meta["alt"]


def test_draws_are_counted_and_judged():
    for source in sampling.SOURCES:
        fig, sentence = sampling.draws_explorer(1024, "far from p", source)
        counts = Counter(sampling.outputs("far from p", source)[:1024])
        assert [row[2] for row in table(fig)] == [counts[token] for token in sampling.TARGET]
        assert sum(fig.data[0].y) == pytest.approx(1)
        assert list(fig.data[1].y) == [0.5, 0.25, 0.125, 0.125]
        assert (", beyond chance" in sentence) == (source == "p")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sampling.paths_explorer(QUARTER, QUARTER, "q"), "replace_from is 'q'"),
        (lambda: sampling.draws_explorer(0, "far from p", "p"), "draws is 0"),
        (lambda: sampling.draws_explorer(64, "near", "p"), "drafter is 'near'"),
        (lambda: speculation.chi_square({}, {"A": 1}), "counts has no draw"),
        (lambda: speculation.chi_square({"A": -1}, {"A": 1}), r"counts\['A'\] is -1"),
        (lambda: speculation.chi_square_limit(0), "degrees is 0"),
        (lambda: speculation.chi_square_limit(3, chance=0), "chance is 0"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_chi_square():
    half = {"A": Fraction(1, 2), "B": Fraction(1, 2)}
    assert speculation.chi_square({"A": 50, "B": 50}, half) == 0
    assert speculation.chi_square({"A": 60, "B": 40}, half) == 4
    assert speculation.chi_square({"A": 1, "C": 1}, half) == float("inf")
    assert speculation.chi_square({"A": 4, "C": 0}, {"A": 1}) == 0


@pytest.mark.parametrize(("degrees", "quantile"), [(3, 16.27), (10, 29.59), (100, 149.45)])
def test_chi_square_limit_is_near_the_tabulated_quantile(degrees, quantile):
    assert speculation.chi_square_limit(degrees) == pytest.approx(quantile, rel=0.03)
