"""Figures of section 8.1: what is drawn is what engine and library compute."""

import pytest

from servelab import catalog, latency, memory
from servelab.cost import StepCost
from servelab.engine import Request, simulate
from servelab.figures import capacity, continuous, goals, lifecycle, schedule
from servelab.figures.style import COLORS
from servelab.units import GIB

QWEN = catalog.model("qwen3-8b")
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
    assert (f"last after {story.total_s:.2f} s" in text) == (output > 1)
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


@pytest.mark.parametrize("lengths", capacity.LENGTHS.values())
@pytest.mark.parametrize("block_size", capacity.BLOCK_SIZES)
@pytest.mark.parametrize("kv_format", capacity.FORMATS.values())
@pytest.mark.parametrize("prefix", capacity.PREFIXES.values())
def test_memory_explorer_fills_the_pool(lengths, block_size, kv_format, prefix):
    fig, text = capacity.memory_explorer(QWEN, 12, lengths, block_size, kv_format, prefix)
    assert sum(bar.x[0] for bar in fig.data[:4]) == pytest.approx(12)
    assert all(bar.x[0] >= 0 for bar in fig.data[:4])
    shared = round(prefix * lengths[0])
    count = memory.max_requests(12 * GIB, QWEN, *lengths, block_size, kv_format, shared)
    assert f"{count} fit in 12 GiB" in text
    assert fig.data[4].x == (memory.max_requests(12 * GIB, QWEN, lengths[0], 1, block_size, kv_format, shared), count)
    assert ("fills no whole block" in text) == (0 < shared < block_size)


def test_memory_explorer_on_the_running_case():
    _, text = capacity.memory_explorer(QWEN, 12, (8192, 256), 16, "bf16", 0)
    assert text == (
        "A request holds 1,188 MiB to its last token: 10 fit in 12 GiB. Counted after prefill it is the same number."
    )
    _, text = capacity.memory_explorer(QWEN, 12, (2048, 256), 16, "bf16", 0)
    assert "37 fit in 12 GiB. Counted after prefill it would be 42: 5 too many." in text


def test_memory_explorer_says_when_nothing_fits():
    fig, text = capacity.memory_explorer(catalog.model("llama-3.1-70b"), 2, (8192, 256), 16, "bf16", 0)
    assert "0 fit in 2 GiB. Not even one" in text
    assert fig.layout.meta["alt"].startswith("0 requests")


def test_instance_names_its_parts():
    fig = capacity.instance({"weights": (15.26, "weights"), "KV pool": (12, "kv"), "rest": (4.74, "unused")})
    assert fig.layout.meta["alt"] == "32 GiB of memory: weights 15.3 GiB, KV pool 12.0 GiB, rest 4.7 GiB."


@pytest.mark.parametrize("batch", goals.BATCHES)
@pytest.mark.parametrize("measure", goals.NAMES)
def test_goals_explorer_says_what_the_trace_holds(batch, measure):
    run = goals.batch_trace(batch)
    assert all(step.num_tokens <= 4096 for step in run.steps)
    sample = goals.values(run, measure)
    assert len(sample) == (255 * batch if measure == "itl" else batch)
    for percentile in goals.PERCENTILES:
        fig, text = goals.goals_explorer(batch, percentile, measure)
        value = 1e3 * latency.percentile(sample, percentile)
        assert f"at most {value:.1f} ms." in text
        assert fig.data[3].y == (value,)
    assert ("within the 7 s" in text) == (batch == 1)


def test_means_hide_the_tail():
    run = goals.batch_trace(64)
    gaps, means = goals.values(run, "itl"), goals.values(run, "tpot")
    assert max(means) < 0.05 < 0.15 < latency.percentile(gaps, 95)


def test_tradeoff_states_its_ends_and_the_deadline():
    fig = goals.tradeoff([(1, 6.86, 37.3), (64, 14.06, 1165)], deadline_s=7)
    assert (
        "from 37 to 1,165 tokens a second, and the time until all are done from 6.86 to 14.1 s"
        in (fig.layout.meta["alt"])
    )
    assert fig.layout.shapes[0].x0 == 7
    assert not goals.tradeoff([(1, 1.0, 1.0), (2, 2.0, 2.0)]).layout.shapes


@pytest.mark.parametrize(
    ("policy", "total_ms", "gap_ms"), [("static", 870, 26), ("continuous", 766, 376), ("chunked", 844, 133)]
)
def test_policy_explorer_is_the_chapters_example(policy, total_ms, gap_ms):
    fig, text = continuous.policy_explorer(policy, 2, (0.0, 0.0, 0.02, 0.03))
    assert f"all done after {total_ms} ms, longest gap {gap_ms} ms." in text
    assert f"ends at {total_ms} ms" in fig.layout.meta["alt"]
    assert ("Static: 870 ms and 26 ms." in text) == (policy != "static")


def test_policy_explorer_draws_another_machine():
    twice = StepCost(**{name: 2 * value for name, value in vars(continuous.REFERENCE).items()})
    fig, text = continuous.policy_explorer("static", 2, (0.0, 0.0, 0.0, 0.0), twice)
    total_ms = 2e3 * continuous.run("static", 2, (0.0,) * 4).total_s
    assert f"all done after {total_ms:.0f} ms" in text
    assert fig.layout.xaxis.range[1] > total_ms / 1e3  # in seconds from 2 s on


@pytest.mark.parametrize("arrivals", continuous.ARRIVALS.values())
def test_policies_share_one_time_axis(arrivals):
    ends = {
        continuous.policy_explorer(policy, running, arrivals)[0].layout.xaxis.range[1]
        for policy in continuous.POLICIES.values()
        for running in continuous.MAX_RUNNING
    }
    longest = max(
        continuous.run(policy, running, arrivals).total_s
        for policy in continuous.POLICIES.values()
        for running in continuous.MAX_RUNNING
    )
    assert len(ends) == 1
    assert ends.pop() >= 1e3 * longest
