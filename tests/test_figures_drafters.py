"""Figures of 8.5.3: their numbers are the library's and the chapter's; bad input gets a clear error."""

import pytest

from servelab import speculation
from servelab.figures import drafters

DFLASH_GIB = 1.953


def rows(fig):
    return {row[0]: row[1:] for row in fig.layout.meta["tables"][0]["rows"]}


def test_a_forward_reads_the_weights():
    assert drafters.forward_ms(DFLASH_GIB) == pytest.approx(3.57, abs=0.005)
    with pytest.raises(ValueError, match="weights_gib is 0"):
        drafters.forward_ms(0)


@pytest.mark.parametrize(("source", "forwards"), [("serial", 4), ("parallel", 1)])
def test_bars_are_forwards_and_a_verify_step(source, forwards):
    fig, sentence = drafters.source_explorer(source, DFLASH_GIB, 0.6, 4)
    bar = fig.data[0]
    assert len(bar.x) == forwards + 1
    assert sum(bar.x) == pytest.approx(forwards * 3.57 + 26.26, abs=0.02)
    assert bar.base[-1] + bar.x[-1] == pytest.approx(sum(bar.x))
    tokens = speculation.expected_tokens(0.6, 4)
    assert rows(fig)[source][1] == f"{sum(bar.x) / tokens:.2f}"
    assert f"{tokens:.2f} tokens a round" in sentence


def test_a_lookup_reads_no_weights():
    small, large = (drafters.source_explorer("lookup", weights, 0.6, 4)[1] for weights in (0.5, 4))
    assert small == large
    assert "reads no weights" in small


def test_equal_acceptance_is_where_the_lines_are_level():
    own = drafters.ms_per_token("serial", DFLASH_GIB, 0.6, 4)
    same = drafters.equal_acceptance("parallel", DFLASH_GIB, own, 4)
    assert 0 < same < 0.6
    assert drafters.ms_per_token("parallel", DFLASH_GIB, same, 4) <= own
    assert drafters.ms_per_token("parallel", DFLASH_GIB, same - 0.001, 4) > own
    fast = drafters.ms_per_token("parallel", DFLASH_GIB, 1.0, 8)
    assert drafters.equal_acceptance("serial", DFLASH_GIB, fast, 8) is None
    assert "never gets there" in drafters.source_explorer("parallel", DFLASH_GIB, 1.0, 8)[1]


def test_slower_than_plain_is_said():
    _, sentence = drafters.source_explorer("serial", 4, 0.0, 8)
    assert "slower than plain decode" in sentence
    assert "faster even if nothing is accepted" in sentence


def test_rounds_by_source_divide_by_tokens():
    fig = drafters.rounds_by_source({"serial": (14.28, 26.26, 3), "parallel": (3.57, 26.26, 2)})
    assert [row[-1] for row in fig.layout.meta["tables"][0]["rows"]] == ["13.51", "14.92"]
    assert "parallel: 3.57 + 26.26 ms for 2.00 tokens, 14.92 ms a token" in fig.layout.meta["alt"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: drafters.source_explorer("guess", 1, 0.5, 4), "source is 'guess'"),
        (lambda: drafters.rounds_by_source({"a": (1, 1, 0.5)}), "tokens of a is 0.5"),
        (lambda: drafters.rounds_by_source({"a": (-1, 1, 2)}), "drafting of a is -1"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
