"""Figures of 8.6.2: what is counted as good is what the record counts, and both charts share order and axis."""

from statistics import median

import pytest

from servelab import catalog
from servelab.figures import goodput
from servelab.service import Load

WINDOWS = catalog.record("service-windows")


def tables(fig):
    return [table["rows"] for table in fig.layout.meta["tables"]]


@pytest.mark.parametrize("policy", goodput.POLICIES.values())
@pytest.mark.parametrize("rate", goodput.RATES)
def test_at_three_seconds_the_explorer_counts_what_the_record_does(policy, rate):
    fig, text = goodput.goodput_explorer(policy, rate, 3)
    recorded_rate = None if policy == "all_at_once" else rate
    row = WINDOWS.row(admission=policy, arrival_rate_req_per_s=recorded_rate, window=1)
    assert f": {row['correct_within_3s']} of 16 are right and in time" in text
    assert f"{row['goodput_req_per_s']:.2f} are good" in text
    assert f"{row['completed_req_per_s']:.2f} a second are completed" in text
    assert ("no arrival rate" in text) == (policy == "all_at_once")
    answers, rates = tables(fig)
    assert [len(trace.x) for trace in fig.data[:3]] == [
        sum(answer[2] == name for answer in answers) for name in goodput.FATES
    ]
    assert len(rates) == (1 if policy == "all_at_once" else 3)


def test_a_longer_deadline_never_makes_an_answer_bad():
    counts = [tables(goodput.goodput_explorer("continuous", 16, d)[0])[0] for d in goodput.DEADLINES_S]
    good = [sum(row[2] == "good" for row in rows) for rows in counts]
    assert good == sorted(good)
    assert good[-1] == 14  # the two wrong ones stay wrong
    assert {sum(row[2] == "wrong" for row in rows) for rows in counts} == {2}


def test_best_rate_depends_on_the_deadline():
    """Four together: most good answers at 1/s with 1 s, at 4/s with 3 s, at 16/s with 8 s."""
    best = {}
    for deadline in (1, 3, 8):
        rates = tables(goodput.goodput_explorer("continuous", 4, deadline)[0])[1]
        best[deadline] = max(rates, key=lambda row: float(row[2]))[0]
    assert best == {1: "1/s", 3: "4/s", 8: "16/s"}


def test_windows_share_order_and_axis():
    """Figures 8-33 and 8-34."""
    figures = [goodput.windows(column) for column in goodput.COLUMNS]
    completed, good = figures
    assert completed.data[0].y == good.data[0].y
    assert completed.layout.xaxis.range == good.layout.xaxis.range
    for fig, column in zip(figures, goodput.COLUMNS, strict=True):
        own = [row[column] for row in WINDOWS.where(admission="continuous", arrival_rate_req_per_s=4)]
        place = fig.data[0].y.index("four, 4/s")
        assert fig.data[0].x[place] == median(own)
        assert [x for x, y in zip(fig.data[1].x, fig.data[1].y, strict=True) if y == "four, 4/s"] == own
        assert len(fig.data[1].x) == 21
        assert "four, 4/s" in fig.layout.meta["alt"]
    assert all(low <= high for low, high in zip(good.data[0].x, completed.data[0].x, strict=True))


def test_load_curves_ring_the_knee():
    curve = [Load(1, 1.0, 1.0), Load(2, 2.0, 1.8), Load(4, 2.1, 0.5)]
    fig = goodput.load_curves({"sixteen": curve})
    assert list(fig.data[0].marker.symbol) == ["circle", "circle-open", "circle"]
    assert "highest, 1.80, at 2 arrivals" in fig.layout.meta["alt"]
    assert len(tables(fig)[0]) == 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: goodput.goodput_explorer("both", 4, 3), "policy is 'both'"),
        (lambda: goodput.windows("speed"), "column is 'speed'"),
        (lambda: goodput.goodput_explorer("serial", 5, 3), "no row with"),
        (lambda: goodput.goodput_explorer("serial", 4, 0), "deadline_s is 0"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
