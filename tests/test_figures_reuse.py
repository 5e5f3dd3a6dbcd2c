"""Figures of section 8.3.3: trees, edits, checkpoints and windows are drawn as the library computes them."""

import pytest

from servelab import catalog, reuse
from servelab.figures import restoring, reusing
from servelab.units import MIB

TURNS = catalog.record("agent-turns").rows


def tables(fig):
    return [table["rows"] for table in fig.layout.meta["tables"]]


def test_conversation_with_a_clock():
    plain = reusing.conversation(4)
    assert [len(text) for text in plain] == [row["input_tokens"] for row in TURNS[:4]]
    for clock, common in ((0, [0, 0, 0, 0]), (206, [0, 206, 206, 206]), ("end", [0, 206, 312, 666])):
        stamped = reusing.conversation(4, clock)
        assert [len(text) for text in stamped] == [len(text) + 1 for text in plain]
        assert reuse.common_prefixes(stamped) == common


@pytest.mark.parametrize(("turns", "clock"), [(0, None), (13, None), (4, 207), (4, -1)])
def test_conversation_refuses(turns, clock):
    with pytest.raises(ValueError, match=r"turns is|clock is"):
        reusing.conversation(turns, clock)


def test_turns_explorer_draws_each_stored_token_once():
    fig, text = reusing.turns_explorer(4, None)
    crosses, shared, private, *_ = fig.data
    assert sorted(zip(shared.base, shared.x, shared.y, strict=True)) == [(0, 206, 1), (206, 106, 2), (312, 354, 3)]
    assert sorted(private.x) == [4, 4, 4, 218]
    assert [x for x in crosses.x if x is not None] == [206, 206, 312, 312, 666, 666]
    assert "2,080 tokens" in text
    assert "stores 896; 1,184 (57 %)" in text
    assert tables(fig)[1][11] == [12, 3136, 2918, 218]
    assert "2,918 tokens are those of turn 11" in fig.layout.meta["alt"]


def test_lower_bars_are_all_recorded_turns_and_fade_the_later_ones():
    fig, _ = reusing.turns_explorer(4, None)
    common, rest = fig.data[-2:]
    assert list(common.y) == [row["common_prefix_with_previous_turn_tokens"] for row in TURNS]
    assert [a + b for a, b in zip(common.y, rest.y, strict=True)] == [row["input_tokens"] for row in TURNS]
    assert [value < 1 for value in common.marker.opacity] == [False] * 4 + [True] * 8


def test_a_clock_at_the_front_shares_nothing():
    fig, text = reusing.turns_explorer(12, 0)
    assert sum(fig.data[1].x) == 0
    assert sum(fig.data[2].x) == sum(row["input_tokens"] + 1 for row in TURNS)
    assert "0 (0 %)" in text
    assert reusing.turn_list((2, 3)) == "3 to 4"


def test_edits_of_figure_8_20():
    fig, text = reusing.edits_explorer(8192, 0, 2048)
    assert tables(fig)[0] == [
        ["append", 8192, 1024, 0], ["rewrite", 0, 9216, 0], ["summary 1", 8192, 0, 2048], ["summary 2", 0, 3072, 0],
    ]  # fmt: skip
    assert "6,144 tokens shorter" in text
    _, half = reusing.edits_explorer(8192, 0.5, 2048)
    assert "from token 4,096 on, processes 5,120" in half
    assert "rewrite: 0 reused, 9216 processed" in fig.layout.meta["alt"]
    with pytest.raises(ValueError, match="summary_tokens is 4096"):
        reusing.edits_explorer(2048, 0, 4096)


@pytest.mark.parametrize(("matched", "restored"), [(4095, 0), (4096, 4096), (10752, 8192)])
def test_checkpoints_explorer_restores_the_last_state_before_the_match(matched, restored):
    fig, text = restoring.checkpoints_explorer(matched, 4096)
    found, again, beyond, states = fig.data[:4]
    assert (found.x[0], again.x[0], beyond.x[0]) == (restored, matched - restored, restoring.CONTEXT - matched)
    assert list(states.x) == [4096, 8192]
    assert f"{matched - restored:,} tokens computed again" in text
    assert ("no state" in text) == (restored == 0)
    assert f"the one at {restored} is" in fig.layout.meta["alt"]


def test_checkpoints_cost_what_the_record_says():
    fig, _ = restoring.checkpoints_explorer(10752, 4096)
    costs = fig.data[4]
    assert costs.x[restoring.SPACINGS.index(4096)] == pytest.approx(2 * restoring.checkpoint_size() / MIB)
    assert list(costs.x) == sorted(costs.x, reverse=True)
    assert list(costs.y) == sorted(costs.y)
    with pytest.raises(ValueError, match="spacing is 0"):
        restoring.checkpoints_explorer(10752, 0)


@pytest.mark.parametrize(
    ("path", "drawn"),
    [
        ("global_and_window", [(8064, "found"), (128, "found"), (1024, "compute"), (128, "replay")]),
        ("global_only", [(8064, "found"), (128, "replay"), (1024, "compute"), (128, "replay")]),
        ("none", [(8064, "compute"), (128, "compute"), (1024, "compute"), (128, "replay")]),
    ],
)
def test_boxes_of_figure_8_21(path, drawn):
    assert restoring.boxes(path, 8192, 1024) == drawn
    now = reuse.recover(path, 8192, 1024)
    encoder = [tokens for tokens, state in drawn[:3] if state != "found"]
    assert sum(encoder) == now.encoder_tokens


def test_windows_explorer_marks_the_chosen_path():
    path = "global_and_window"
    fig, text = restoring.windows_explorer("global_only", 8192, 1024)
    assert [shape.line.dash for shape in fig.layout.shapes] == ["dot"] * 4 + ["solid"] * 4 + ["dot"] * 4
    assert "1,152 tokens, 128 of them" in text
    notes, names, *_ = fig.data
    rows = [
        f"{tokens:,}<br>{state}" for each in reuse.RECOVERY_PATHS for tokens, state in restoring.boxes(each, 8192, 1024)
    ]
    assert list(notes.text[4:]) == rows
    assert [name.startswith("<b>") for name in names.text] == [False, True, False]
    assert "approximate" in text
    assert "kept" not in text
    assert "96 of these outputs of the encoder must have been kept" in restoring.windows_explorer(path, 8192, 32)[1]
    assert "exact" in restoring.windows_explorer("none", 8192, 1024)[1]
    assert [row[4] for row in tables(fig)[0]] == [(n + 128) * 20 for n in (1024, 1152, 9216)]
    assert "global KV only found: the encoder takes 1,152" in fig.layout.meta["alt"]
    with pytest.raises(ValueError, match="hit is 'all'"):
        restoring.windows_explorer("all", 8192, 1024)


def test_a_prefix_shorter_than_a_window_is_replayed_whole_and_exactly():
    assert restoring.boxes("global_only", 100, 32) == [(0, ""), (100, "replay"), (32, "compute"), (128, "replay")]
    assert "(then exact)" in restoring.windows_explorer("global_only", 100, 32)[1]


def test_bars_too_small_for_a_number_have_none():
    few, many = (reusing.turns_explorer(turns, None)[0] for turns in (4, 12))
    assert list(few.data[1].text) == ["206", "+106", "+354"]
    assert list(few.data[2].text) == ["", "", "", "+218"]
    assert not any(many.data[1].text)
