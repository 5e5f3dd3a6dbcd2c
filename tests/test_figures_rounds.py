"""Figures of 8.5.2: their numbers are the library's and the chapter's; bad input gets a clear error."""

from fractions import Fraction

import pytest

from servelab import speculation
from servelab.engine.trace import RequestRecord, Segment, Trace
from servelab.figures import rounds

QUARTER = Fraction(1, 4)
DRAFTS = {"AAAA": (QUARTER, 4), "BBBB": (3 * QUARTER, 4)}


def numbers(fig):
    return dict(map(tuple, fig.layout.meta["tables"][0]["rows"]))


@pytest.mark.parametrize(("rate", "ms", "even"), [(QUARTER, "19.79", "8.7"), (3 * QUARTER, "8.64", "53.9")])
def test_round_of_the_chapter(rate, ms, even):
    fig, sentence = rounds.round_explorer(rate, 4, 0.1, rounds.DECODE_MS)
    assert numbers(fig)["time for each token (ms)"] == ms
    assert numbers(fig)["look-up at break-even (ms)"] == even
    assert f"{ms} ms a token, faster" in sentence
    assert f"less than {even} ms" in sentence
    assert fig.layout.meta["alt"].endswith("faster than plain decode with 26.26 ms.")


@pytest.mark.parametrize("rate", [Fraction(0), QUARTER, Fraction(1)])
@pytest.mark.parametrize("length", [1, 8])
def test_bars_add_up_to_the_mean(rate, length):
    fig, _ = rounds.round_explorer(rate, length, 5, 30)
    assert sum(fig.data[0].y) == pytest.approx(float(speculation.expected_tokens(rate, length)))
    assert fig.data[0].y[0] == 1  # each round decides a token
    assert len(fig.data[0].x) == length + 1 <= rounds.MOST_TOKENS


def test_a_round_may_have_no_break_even():
    fig, sentence = rounds.round_explorer(Fraction(0), 4, 0.1, 1.5 * rounds.DECODE_MS)
    assert numbers(fig)["look-up at break-even (ms)"] == "none"
    assert "slower than" in sentence
    assert "No look-up is fast enough" in sentence


def test_lines_meet_plain_decode_at_break_even():
    for rate, length in DRAFTS.values():
        budget = rounds.budget_ms(rate, length, 30)
        assert rounds.ms_per_token(rate, length, budget, 30) == pytest.approx(rounds.DECODE_MS)


def test_lookup_lines_are_figure_8_32():
    fig = rounds.lookup_lines(DRAFTS, lookup_ms=0.1)
    rows = fig.layout.meta["tables"][0]["rows"]
    assert rows == [["AAAA", "1.33", "19.79", "8.7"], ["BBBB", "3.05", "8.64", "53.9"]]
    assert [note.text for note in fig.layout.annotations[:2]] == ["even at 8.7", "even at 53.9"]
    assert "BBBB takes 8.64 ms a token" in fig.layout.meta["alt"]


def test_lookup_off_the_axis_is_refused():
    with pytest.raises(ValueError, match="lookup_ms is 61"):
        rounds.lookup_lines(DRAFTS, lookup_ms=61)


def test_token_times_count_moments():
    """Three steps of 10 ms that yield 1, 3 and 2 tokens: three moments, and gaps of 0 within a step."""
    trace = Trace()
    segments = [Segment(step, 1, 1, 8 + step, samples, 0) for step, samples in enumerate((1, 3, 2))]
    trace.requests.append(RequestRecord("r", 0.0, 8, 6, segments=segments, steps=trace.steps))
    for step in range(3):
        trace.steps.append(0.01 * step, 0.01 * (step + 1), num_free_blocks=1)
    fig = rounds.token_times({"drafts": trace["r"]})
    assert fig.layout.meta["tables"][0]["rows"] == [["drafts", 6, 3, "20.0"]]
    assert list(fig.data[0].x) == pytest.approx([0, 10, 10, 10, 20, 20])
    assert "6 tokens in 3 steps of the stair" in fig.layout.meta["alt"]
