"""Figures of 8.5.4: their numbers are the library's and the records'; bad input gets a clear error."""

import pytest

from servelab import catalog, speculation
from servelab.figures import lengths


def table(fig):
    return fig.layout.meta["tables"][0]["rows"]


@pytest.mark.parametrize("shapes", lengths.SHAPES)
@pytest.mark.parametrize("batch", [1, 256])
def test_best_length_is_the_least_of_the_line(shapes, batch):
    for name in lengths.profiles():
        fig, sentence = lengths.length_explorer(name, shapes, batch)
        line, best = fig.data[1], fig.data[3]
        assert best.y[0] == min(line.y)
        assert line.y[best.x[0]] == best.y[0]
        assert ("lose" in sentence) == any(ms >= line.y[0] for ms in line.y[1:])
        assert len(table(fig)) == lengths.LONGEST + 1


def test_load_shortens_the_best_draft():
    best = [lengths.length_explorer("always 0.8", "look-up", batch)[0].data[3].x[0] for batch in (1, 32, 256)]
    assert best == sorted(best, reverse=True)
    assert best[0] > best[-1]


def test_groups_of_four_may_leave_nothing_to_gain():
    fig, sentence = lengths.length_explorer("always 0.4", "serial network, groups of 4", 64)
    assert fig.data[3].x[0] == 0
    assert "not to draft" in sentence
    assert "any length lose" in sentence


def test_an_unfilled_group_loses_where_a_full_one_wins():
    fig, sentence = lengths.length_explorer("always 0.4", "serial network, groups of 4", 1)
    line = fig.data[1]
    assert line.y[4] < line.y[0] < min(line.y[1], line.y[5])
    assert sentence.endswith("Drafts of 5 lose: 33.10 ms against 26.25. So do drafts of 1.")


def test_a_round_costs_step_and_drafting():
    step_ms = 1e3 * lengths.STEP_COST.seconds([(5, lengths.CONTEXT)] * 8)
    assert lengths.round_ms(4, 8, "look-up") == pytest.approx(step_ms + 0.1)
    assert lengths.round_ms(4, 8, "serial network") == pytest.approx(step_ms + 4 * 3.57, abs=0.02)
    five, eight = (lengths.round_ms(length, 1, "serial network, groups of 4") for length in (5, 8))
    assert eight - five < 0.2  # the rows only: both draft eight tokens
    padded = lengths.round_ms(4, 8, "look-up, padded rows") - lengths.round_ms(4, 8, "look-up")
    assert padded == pytest.approx(24 * 1e3 * lengths.STEP_COST.per_new_token_s, rel=0.01)  # 40 rows run as 64


def test_recorded_profile_gives_the_recorded_mean():
    accepted = [
        row["accepted_draft_tokens"] for row in catalog.record("dflash-times").where(configuration="dflash_k15")
    ]
    profile = lengths.profiles()["recorded: DFlash, 11 rounds"]
    assert speculation.expected_tokens(profile, 15) == pytest.approx(1 + sum(accepted) / len(accepted))


def test_recorded_rounds_show_both_lengths():
    fig = lengths.recorded_rounds()
    assert [sum(bar.y) for bar in fig.data] == [80, 18, 83, 82]
    assert "K7 takes 14 rounds and accepts 80 of 98" in fig.layout.meta["alt"]
    assert table(fig)[0] == ["K7", 1, 1, 6]
    assert table(fig)[14] == ["K15", 1, 1, 14]


def test_speed_by_length_says_its_numbers():
    fig = lengths.speed_by_length({"1 at once": {1: 1.5, 15: 2.0}, "16 at once": {1: 1.2, 15: 0.5}})
    assert table(fig) == [["1 at once", "1.50", "2.00"], ["16 at once", "1.20", "0.50"]]
    assert "16 at once: 1.20, 0.50 at drafts of 1, 15" in fig.layout.meta["alt"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lengths.length_explorer("best", "look-up", 1), "profile is 'best'"),
        (lambda: lengths.length_explorer("always 0.8", "guess", 1), "shapes is 'guess'"),
        (lambda: lengths.round_ms(4, 0, "look-up"), "batch is 0"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
