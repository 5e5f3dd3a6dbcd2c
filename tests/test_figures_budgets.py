"""Figures of section 8.2.4: what is drawn is what scheduler, cost model and record say."""

import pytest

from servelab.cost import padded_rows
from servelab.experiments import recorded
from servelab.figures import budgets, chunks


@pytest.mark.parametrize("fixed_ms", chunks.FIXED_MS.values())
@pytest.mark.parametrize("request_id", budgets.WATCHED.values())
def test_budget_explorer_draws_the_replay(request_id, fixed_ms):
    for i, budget in enumerate(budgets.BUDGETS):
        fig, text = budgets.budget_explorer(budget, request_id, fixed_ms)
        trace = recorded.replay(chunks.step_cost(fixed_ms), budget)
        assert fig.data[0].y[i] == pytest.approx(1e3 * trace.max_itl_s, abs=0.06)
        parts = [bar.y[i] for bar in fig.data[1:4]]
        assert min(parts) >= 0
        assert sum(parts) == pytest.approx(1e3 * trace[request_id].ttft_s, abs=0.2)
        assert f"longest gap {1e3 * trace.max_itl_s:.0f} ms" in text
        assert ("within the 50" in text) == (trace.max_itl_s < 0.05)
        assert ("Recorded" in text) == (budget in (512, 8192))


def test_budget_explorer_shows_the_record():
    fig, text = budgets.budget_explorer(512, "r4", 12.936)
    assert "Recorded: 32 ms; 216 ms, of them 149 in the queue." in text
    gaps, firsts = fig.data[4:]
    assert list(gaps.x) == list(firsts.x) == ["512", "8192"]
    assert list(gaps.y) == [31.94, 183.066]
    assert list(firsts.y) == [216.115, 184.255]
    assert "of them 0 in the queue" in budgets.budget_explorer(8192, "r4", 12.936)[1]


def test_the_engines_queue_begins_when_the_step_under_way_ends():
    """Only so does 8.2.4's record of 0.01 ms come about, while a step of more than 160 ms was running."""
    parts = budgets.waits(recorded.replay(chunks.step_cost(12.936), 8192), "r4")
    assert parts.queue_s == 0
    assert parts.under_way_s > 0.09
    small = budgets.waits(recorded.replay(chunks.step_cost(12.936), 512), "r4")
    assert small.queue_s == pytest.approx(0.149, rel=0.15)


def test_a_request_that_is_not_watched_is_refused():
    with pytest.raises(ValueError, match="request is 'r9'"):
        budgets.budget_explorer(512, "r9", 12.936)


@pytest.mark.parametrize("rows", budgets.ROWS)
@pytest.mark.parametrize("captured", budgets.CAPTURED.values())
def test_shapes_explorer_draws_padded_rows(rows, captured):
    fig, text = budgets.shapes_explorer(rows, captured)
    own, padding = fig.data
    assert [a + b for a, b in zip(own.y, padding.y, strict=True)] == [padded_rows(n, captured) for n in own.x]
    computed = padded_rows(rows, captured)
    share = f": {computed - rows} of {computed}" if computed > rows else ", unpadded."
    assert (f" as {computed}{share}" in text) == (computed in captured)
    assert ("launched one by one" in text) == (computed not in captured)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (18, "18 rows run as 32: 14 of 32 rows are padding. One row less would run as 32, and save nothing."),
        (17, "17 rows run as 32: 15 of 32 rows are padding. One row less would run as 16."),
        (15, "15 rows run as 16: 1 of 16 rows is padding."),
        (16, "16 rows run as 16, unpadded. One row less would run as 16, and save nothing."),
        (1, "1 row runs as 16: 15 of 16 rows are padding."),
        (33, "33 rows: beyond the largest shape, 32."),
    ],
)
def test_the_chapters_example_of_shapes(rows, says):
    assert budgets.shapes_explorer(rows, (16, 32))[1].startswith(says)


def test_rows_outside_the_picture_are_refused():
    with pytest.raises(ValueError, match="rows is 0"):
        budgets.shapes_explorer(0, (16,))
    with pytest.raises(ValueError, match="rows is 41"):
        budgets.shapes_explorer(41, (16,))
