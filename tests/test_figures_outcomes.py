"""Figures of 8.4.4: marks, boxes and times are those of the records; bad input gets a clear error."""

import pytest

from servelab import catalog, quality
from servelab.figures import outcomes

BF16, FP8, FP8_BF16_Q = outcomes.CONFIGURATIONS


def marks(fig):
    """Right, wrong and boxed runs of the first grid, then of the second."""
    return [len(trace.x) for trace in fig.data]


@pytest.mark.parametrize(
    ("first", "second", "concurrency", "expected"),
    [
        (BF16, FP8, "both", [28, 4, 0, 26, 6, 6]),
        (BF16, FP8_BF16_Q, "both", [28, 4, 0, 28, 4, 8]),
        (BF16, FP8, "1", [14, 2, 0, 14, 2, 4]),
        (BF16, FP8, "4", [14, 2, 0, 12, 4, 2]),
        (FP8, FP8, "both", [26, 6, 0, 26, 6, 0]),
    ],
)
def test_explorer_marks_every_run(first, second, concurrency, expected):
    fig, text = outcomes.quality_explorer(first, second, concurrency)
    assert marks(fig) == expected
    assert f"{expected[0]} and {expected[3]} of {expected[0] + expected[1]} right" in text
    assert fig.layout.meta["alt"].startswith(f"{first}: {expected[0]} of {expected[0] + expected[1]} answers right.")


def test_boxes_are_on_the_tasks_that_changed():
    fig, text = outcomes.quality_explorer(BF16, FP8_BF16_Q, "both")
    assert sorted(zip(fig.data[5].x, fig.data[5].y, strict=True)) == [
        (run, task) for run in range(4) for task in (4, 5)
    ]
    assert "task 5 from 0 to 4 of 4 right, task 6 from 4 to 0 of 4 right" in text
    rows = fig.layout.meta["tables"][0]["rows"]
    assert sum(before != after for *_, before, after in rows) == 8


def test_explorer_says_when_nothing_changed():
    assert "against itself" in outcomes.quality_explorer(BF16, BF16, "4")[1]
    assert "14 and 14 of 16 right, and no" not in outcomes.quality_explorer(BF16, FP8, "1")[1]
    assert outcomes.quality_explorer(FP8_BF16_Q, FP8, "1")[1] == "14 and 14 of 16 right, and no answer changed."


def test_grids_of_other_outcomes():
    first, second = {("a", 1): True, ("b", 1): False}, {("a", 1): True, ("b", 1): True}
    fig = outcomes.grids(first, second, ["f32", "q8_0"], ["a", "b"], "task", "run")
    assert marks(fig) == [1, 1, 0, 2, 0, 1]
    assert fig.layout.meta["alt"] == "f32: 1 of 2 answers right. q8_0: 2 right. 0 became wrong, 1 became right."


def test_retries_are_the_record():
    rows = catalog.record("retries").rows
    fig = outcomes.retries(rows)
    costs = quality.total_cost(quality.recorded_costs(rows))
    assert sum(fig.data[1].x) == pytest.approx(costs.retry_s)
    assert sum(fig.data[0].x) + sum(fig.data[1].x) == pytest.approx(costs.total_s, abs=0.02)  # beside checking
    assert "known-01, run 1 and known-01, run 2 take two" in fig.layout.meta["alt"]


@pytest.mark.parametrize(
    ("saved", "error_rate", "own", "verdict"),
    [(0.1, 0.2, 1.1, "10% more"), (0.2, 0.1, 0.9, "10% less"), (0.1, 0.1, 1.0, "as long as"), (0, 0, 1, "as long as")],
)
def test_retry_explorer_adds_the_retry_to_the_task(saved, error_rate, own, verdict):
    fig, text = outcomes.retry_explorer(saved, error_rate)
    assert fig.data[2].y[0] == pytest.approx(own)
    assert verdict in text
    low, high = fig.data[0].y
    assert low + (high - low) * 2 * error_rate == pytest.approx(own)  # the point lies on the line
    assert f"it is {own:.2f}" in fig.layout.meta["alt"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: outcomes.quality_explorer("FP8", BF16, "1"), "configuration is 'FP8'"),
        (lambda: outcomes.quality_explorer(BF16, FP8, "2"), "concurrency is '2'"),
        (lambda: outcomes.grids({1: True}, {2: True}, ["a", "b"], ["1"], "task", "run"), "must have the same as first"),
        (lambda: outcomes.retry_explorer(1.5, 0), "saved is 1.5"),
        (lambda: outcomes.retry_explorer(0, 0.6), "error_rate is 0.6"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
