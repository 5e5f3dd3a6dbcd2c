"""Figures of section 8.1: what is drawn is what engine and library compute."""

import pytest

from servelab import catalog
from servelab.engine import Request, simulate
from servelab.figures import lifecycle, schedule
from servelab.figures.style import COLORS

STEP = catalog.step_cost("rtx-pro-6000", "qwen3-8b")
FOUR = [("r0", 0.0, 2048, 8), ("r1", 0.0, 2048, 2), ("r2", 0.02, 8192, 2), ("r3", 0.03, 2048, 4)]


def trace(policy="continuous", requests=FOUR, **limits):
    return simulate([Request(*request) for request in requests], STEP, policy=policy, **limits)


def test_life_is_the_chapters_example():
    assert lifecycle.life(0.1, 2048, 256).total_s == pytest.approx(6.9535)
    interrupted = lifecycle.life(0.1, 2048, 256, inserted=1)
    assert interrupted.total_s == pytest.approx(7.0495)
    assert max(interrupted.gaps_s) == pytest.approx(0.1225)
    assert interrupted.interrupted == (127,)


@pytest.mark.parametrize("output", lifecycle.OUTPUTS)
@pytest.mark.parametrize("inserted", lifecycle.INSERTED)
def test_life_explorer_draws_all_of_the_time(output, inserted):
    fig, text = lifecycle.life_explorer(0.5, 8192, output, inserted)
    own = sum(length for bar in fig.data[:3] for length in bar.x)
    others = sum(fig.data[3].x)
    story = lifecycle.life(0.5, 8192, output, inserted)
    assert own + others == pytest.approx(story.total_s)
    assert len(fig.data[3].x) == (0 if output == 1 else inserted)
    assert f"last after {story.total_s:.2f} s" in text
    assert ("nothing to interrupt" in text) == (output == 1)
    assert ("too late" in text) == (story.total_s > 7)
    assert fig.layout.meta["tables"][0]["rows"][-1] == ["in all", f"{story.total_s:.3f}"]


@pytest.mark.parametrize("policy", ["serial", "static", "continuous", "chunked"])
def test_timeline_draws_every_row_of_every_step(policy):
    run = trace(policy)
    fig = schedule.timeline(run)
    for kind in ("prefill", "decode"):
        rows = [(step, row) for step in run.steps for row in step.rows if row.kind == kind]
        (bars,) = [bar for bar in fig.data[:3] if bar.marker.color == COLORS[kind] and not bar.marker.pattern.shape]
        assert len(bars.x) == len(rows)
        drawn_ms = sum(data[2] for data in bars.customdata)
        assert drawn_ms == pytest.approx(1e3 * sum(step.seconds for step, _ in rows))
    assert f"longest gap {1e3 * run.max_itl_s:.0f} ms" in [note.text for note in fig.layout.annotations]
    assert f"ends at {1e3 * run.total_s:.0f} ms" in fig.layout.meta["alt"]


def test_long_timeline_joins_decodes_and_loses_no_time():
    run = trace(requests=[("long", 0.0, 2048, 200), ("late", 1.0, 512, 20)])
    drawn = [bar for bar in schedule.bars(run) if bar.kind == "decode"]
    assert len(drawn) == 2  # late's prefill comes in a step in which long decodes
    assert sum(bar.num_tokens for bar in drawn) == 199 + 19
    decode_s = sum(step.seconds for step in run.steps for row in step.rows if row.kind == "decode")
    assert sum(bar.end_s - bar.start_s for bar in drawn) == pytest.approx(decode_s)


def test_waiting_is_drawn_from_arrival_to_the_first_step():
    waits = {bar.request: bar.end_s - bar.start_s for bar in schedule.bars(trace("static")) if bar.kind == "waiting"}
    run = trace("static")
    assert waits == {i: run.requests[i].admitted_s - run.requests[i].arrival_s for i in (2, 3)}


def test_places_pass_from_one_request_to_the_next():
    run = trace(requests=[("A", 0, 2048, 6), ("B", 0, 512, 3), ("C", 0, 1024, 3)])
    assert schedule.places(run) == [{0: "A", 1: "B"}] * 3 + [{0: "A", 1: "C"}] * 3
    fig = schedule.places_by_step(run)
    assert "step 3: A, B; step 4: A, C" in fig.layout.meta["alt"]
    assert sum(len(bar.x) for bar in fig.data) == 12


def test_no_gap_no_mark():
    run = trace(requests=[("one", 0.0, 16, 1)])
    assert schedule.longest_gap(run) is None
    assert "gap" not in schedule.timeline(run).layout.meta["alt"]
