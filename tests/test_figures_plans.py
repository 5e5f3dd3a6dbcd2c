"""Figures of 8.6.3: the plane shows what the planner says, and the curves are Amdahl's law."""

import itertools
from dataclasses import replace

import pytest

from servelab import chapter_plans, planning
from servelab.figures import plans
from servelab.units import GIB

CASE = (12, 256, 7, 6144, 3)


def table(fig):
    return {row[0][0]: row[1:] for row in fig.layout.meta["tables"][0]["rows"]}


def test_the_case_of_the_book():
    """Figure 8-35: only D lies within 12 GiB and 7 s."""
    fig, text = plans.plan_explorer(*CASE)
    feasible, rejected = fig.data
    assert list(feasible.text) == ["<b>D</b>"]
    assert (feasible.x[0], feasible.y[0]) == pytest.approx((9.02, 4.56), abs=0.005)
    assert sorted(rejected.text) == ["<b>A</b>", "<b>B</b>", "<b>C</b>"]
    assert text.startswith("Choice: D, 4.56 s. A good answer takes 0.285 GPU s and at most 171 J.")
    assert "A by memory and time, B by time, C by time" in text
    assert table(fig)["A"][0] == "18.56"
    assert "lies D" in fig.layout.meta["alt"]


@pytest.mark.parametrize("state", list(itertools.product([6, 12, 20], [16, 256], [3, 15], [6144, 0], [1, 3])))
def test_what_lies_in_the_area_is_feasible(state):
    fig, text = plans.plan_explorer(*state)
    area = fig.layout.shapes[0]
    assert (area.x1, area.y1) == (state[0], state[2])
    for trace, inside in zip(fig.data, (True, False), strict=True):
        assert all((x <= area.x1 and y <= area.y1) is inside for x, y in zip(trace.x, trace.y, strict=True))
        assert all(0 < x < fig.layout.xaxis.range[1] for x in trace.x)
        assert all(0 < y < fig.layout.yaxis.range[1] for y in trace.y)
    assert ("No plan is feasible" in text) == (len(fig.data[0].x) == 0)


@pytest.mark.parametrize(
    ("state", "begins"),
    [
        ((6, 256, 7, 6144, 3), "No plan is feasible. Rejected: A by memory and time, B by time"),
        ((12, 16, 7, 6144, 3), "Choice: D, 2.37 s (B 2.45 s)"),
        ((12, 256, 15, 6144, 1), "Choice: B, 9.01 s (C 14.55 s, D 9.21 s)"),  # drafts that are never accepted
        ((12, 256, 15, 0, 3), "Choice: C, 14.55 s"),
        ((9, 256, 7, 6144, 3), "No plan is feasible"),  # by 20 MiB: D's peak at start-up
    ],
)
def test_choices(state, begins):
    assert plans.plan_explorer(*state)[1].startswith(begins)


def test_without_a_common_prefix_a_and_b_are_one_point():
    fig, text = plans.plan_explorer(20, 256, 15, 0, 3)
    assert "<b>A, B</b>" in fig.data[0].text
    assert "B is A" in text


def test_configurations_of_a_workload_without_a_prefix():
    alone = chapter_plans.configurations(replace(chapter_plans.WORKLOAD, shared_prefix=0))
    case = chapter_plans.configurations()
    assert alone["A"] == case["A"]
    assert (alone["B"].prefill_s, alone["B"].round_s) == (alone["A"].prefill_s, alone["A"].round_s)
    assert alone["D"].prefill_s == pytest.approx(case["D"].prefill_s / case["B"].prefill_s * alone["A"].prefill_s)


def test_amdahl_curves():
    """Figure 8-36, with the two examples of the chapter marked."""
    fig = plans.amdahl_curves([0.2, 0.5, 0.8], marks=[(0.5, 4), (0.2, 4)])
    *curves, marks = fig.data
    for fraction, curve in zip((0.2, 0.5, 0.8), curves, strict=True):
        assert curve.y[0] == 1
        assert curve.y[-1] == pytest.approx(planning.amdahl(fraction, 16))
        assert list(curve.y) == sorted(curve.y)
        assert curve.y[-1] < 1 / (1 - fraction)
    assert list(marks.text) == ["1.60", "1.18"]
    assert table(fig)["8"] == ["1.67", "2.50", "4.00", "5.00"]
    assert "80% of the time: 4.00 at most of 5.00" in fig.layout.meta["alt"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plans.plan_explorer(-1, 256, 7, 6144, 3), "pool_bytes is"),
        (lambda: plans.plan_explorer(12, 0, 7, 6144, 3), "output_tokens is 0"),
        (lambda: plans.plan_explorer(12, 256, 0, 6144, 3), "deadline_s is 0"),
        (lambda: plans.plan_explorer(12, 256, 7, 9000, 3), "shared_prefix is 9000"),
        (lambda: plans.plan_explorer(12, 256, 7, 6144, 0.5), "tokens_per_round is 0.5"),
        (lambda: plans.amdahl_curves([1.5]), "fraction is 1.5"),
        (lambda: plans.amdahl_curves([0.5], largest=0), "largest is 0"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_memory_is_what_the_planner_counts():
    (_, b, _, d) = plans.plans(*CASE)
    assert d.memory_bytes - b.memory_bytes == chapter_plans.draft_bytes()
    assert b.memory_bytes / GIB == pytest.approx(5.906, abs=0.001)
