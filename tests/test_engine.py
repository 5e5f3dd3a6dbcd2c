"""The engine on a virtual clock: the chapter's example, times, traces, cancellation, and what is refused."""

import json

import pytest

from servelab.cost import StepCost, causal_pairs
from servelab.engine import BlockPool, CostExecutor, Engine, Request, Scheduler, Status, Trace, simulate

CHAPTER_COST = StepCost(26.22e-3, 30.4e-6, 3e-9)
SECOND = StepCost(1.0, 0.0, 0.0)  # each step takes one second


def four_requests():
    return [
        Request("r0", 0.0, 2048, 8),
        Request("r1", 0.0, 2048, 2),
        Request("r2", 0.020, 8192, 2),
        Request("r3", 0.030, 2048, 4),
    ]


def make_engine(num_blocks=20, block_size=4, step_cost=SECOND, executor=None, **scheduler):
    pool = BlockPool(num_blocks, block_size)
    return Engine(Scheduler(pool, **scheduler), executor or CostExecutor(step_cost))


# ---- the example of section 8.2.2


@pytest.mark.parametrize(
    ("policy", "total_ms", "max_itl_ms"),
    [("static", 870, 26), ("continuous", 766, 376), ("chunked", 844, 133)],
)
def test_the_four_requests_of_the_chapter(policy, total_ms, max_itl_ms):
    trace = simulate(four_requests(), CHAPTER_COST, policy=policy)
    assert trace.total_s * 1e3 == pytest.approx(total_ms, abs=1)
    assert trace.max_itl_s * 1e3 == pytest.approx(max_itl_ms, abs=0.5)


def test_static_waits_for_the_whole_group():
    trace = simulate(four_requests(), CHAPTER_COST, policy="static")
    groups = [sorted({row.request_id for row in step.rows}) for step in trace.steps]
    assert groups[0] == ["r0", "r1"]
    assert trace["r2"].admitted_s == trace["r3"].admitted_s == trace["r0"].finish_s
    assert trace["r1"].finish_s < trace["r0"].finish_s


def test_serial_serves_one_after_the_other():
    trace = simulate(four_requests(), CHAPTER_COST, policy="serial")
    assert all(len(step.rows) == 1 for step in trace.steps)
    assert [request.admitted_s for request in trace.requests[1:]] == [r.finish_s for r in trace.requests[:-1]]


def test_the_long_gap_of_continuous_batching_is_the_step_with_the_long_prompt():
    trace = simulate(four_requests(), CHAPTER_COST, policy="continuous")
    longest = max(trace.steps, key=lambda step: step.seconds)
    assert longest.seconds == pytest.approx(trace.max_itl_s, rel=1e-12)
    assert [(row.request_id, row.kind, row.num_tokens) for row in longest.rows] == [
        ("r0", "decode", 1),
        ("r2", "prefill", 8192),
    ]


def test_chunks_follow_the_decodes():
    trace = simulate(four_requests(), CHAPTER_COST, policy="chunked")
    rows = [[tuple(row[:3]) for row in step.rows] for step in trace.steps[2:6]]
    assert rows == [[("r0", 1, 2049 + i), ("r2", 2048, 2048 * i)] for i in range(4)]
    assert [step.rows[1].num_samples for step in trace.steps[2:6]] == [0, 0, 0, 1]


def test_requests_can_be_simulated_again():
    requests = four_requests()
    assert simulate(requests, CHAPTER_COST) == simulate(requests, CHAPTER_COST)
    assert requests[0].num_output_tokens == 0


def test_a_short_decode_and_prefill_alone_take_what_the_chapter_says():
    trace = simulate([Request("a", 0.0, 2048, 2)], CHAPTER_COST)
    assert [step.seconds * 1e3 for step in trace.steps] == [
        pytest.approx(94.8, abs=0.05),
        pytest.approx(26.26, abs=0.005),
    ]


def test_pairs_are_those_of_the_figures():
    assert [causal_pairs(512, 0), causal_pairs(512, 7680)] == [131_328, 4_063_488]
    assert [causal_pairs(4, 0), causal_pairs(4, 8)] == [10, 42]
    pairs = StepCost(0.0, 0.0, 1.0)
    assert pairs.seconds([(4, 0), (4, 8)]) == 52


# ---- times of a request


def test_times_of_a_request_that_waits():
    trace = simulate([Request("a", 0.5, 3, 3), Request("b", 1.0, 3, 1)], SECOND, max_running=1)
    a, b = trace.requests
    assert (a.admitted_s, a.ttft_s, a.itl_s, a.tpot_s, a.finish_s, a.latency_s) == (0.5, 1.0, [1.0, 1.0], 1.0, 3.5, 3.0)
    assert (b.admitted_s, b.ttft_s, b.itl_s, b.tpot_s, b.max_itl_s, b.finish_s) == (3.5, 3.5, [], None, None, 4.5)
    assert (trace.total_s, trace.max_itl_s, trace.num_output_tokens) == (4.5, 1.0, 4)


def test_the_engine_waits_for_the_next_arrival():
    trace = simulate([Request("late", 100.0, 4, 1), Request("early", 0.0, 4, 1)], SECOND)
    assert [(step.start_s, step.end_s) for step in trace.steps] == [(0.0, 1.0), (100.0, 101.0)]


def test_no_requests_give_an_empty_trace():
    trace = simulate([], SECOND)
    assert (trace.total_s, trace.max_itl_s, len(trace.steps), trace.requests) == (0.0, None, 0, [])
    assert Trace.from_json(trace.to_json()) == trace


def test_preemption_and_recompute_show_in_the_trace():
    trace = simulate(
        [Request("a", 0.0, 4, 6), Request("b", 0.0, 4, 6)], SECOND, policy="chunked", num_blocks=4, block_size=4
    )
    assert [(step.index, step.preempted) for step in trace.steps if step.preempted] == [(5, ["b"])]
    assert (trace["b"].num_preemptions, trace.num_preemptions) == (1, 1)
    recomputed = next(row for step in trace.steps[6:] for row in step.rows if row.request_id == "b")
    assert (recomputed.kind, recomputed.num_tokens, recomputed.num_computed_tokens) == ("prefill", 9, 0)
    assert [len(request.token_s) for request in trace.requests] == [6, 6]


def test_prefix_hits_show_in_the_trace():
    prompt = list(range(40))
    requests = [Request("a", 0.0, prompt, 1), Request("b", 5.0, [*prompt, 7], 1), Request("c", 9.0, prompt, 1)]
    trace = simulate(requests, SECOND, block_size=8, prefix_caching=True)
    assert [request.num_cached_tokens for request in trace.requests] == [0, 40, 32]
    salted = [*requests[:1], Request("b", 5.0, prompt, 1, salt="x"), Request("c", 9.0, prompt, 1, adapter="x")]
    assert [r.num_cached_tokens for r in simulate(salted, SECOND, prefix_caching=True).requests] == [0, 0, 0]
    unknown = [Request("a", 0.0, 40, 1), Request("b", 5.0, 40, 1)]
    assert [r.num_cached_tokens for r in simulate(unknown, SECOND, prefix_caching=True).requests] == [0, 0]


def test_samples_share_the_prompt_and_copy_its_last_block():
    engine = make_engine(max_running=4)
    request = Request("a", 0.0, [1] * 6, 3, n=3)
    engine.add(request)
    engine.step()
    tables = {name: r.table for name, r in engine.scheduler.requests.items()}
    assert sorted(tables) == ["a", "a/1", "a/2"]
    assert all(table.block_ids == [0, 1] for table in tables.values())
    copies = []
    execute = engine.executor.execute
    engine.executor.execute = lambda batch: copies.extend(batch.copies) or execute(batch)
    engine.step()
    assert copies == [(1, 2), (1, 3)]  # the last of the three writes in place
    assert {name: table.block_ids for name, table in tables.items()} == {"a": [0, 2], "a/1": [0, 3], "a/2": [0, 1]}
    trace = engine.run()
    assert [(r.id, r.parent, len(r.token_s)) for r in trace.requests] == [
        ("a", None, 3),
        ("a/1", "a", 3),
        ("a/2", "a", 3),
    ]
    assert len({tuple(r.output_token_ids) for r in trace.requests}) == 3
    assert len(trace.steps[0].rows) == 1
    assert engine.scheduler.pool.num_free == 20


def test_a_stop_token_ends_a_request():
    executor = CostExecutor(SECOND, next_token=lambda token_ids, sample: len(token_ids))
    engine = make_engine(executor=executor)
    request = Request("a", 0.0, [0, 0, 0], 50, stop_tokens=[5])
    engine.add(request)
    engine.run()
    assert (request.output_token_ids, request.status) == ([3, 4, 5], Status.FINISHED)


# ---- cancellation


def test_a_cancelled_request_keeps_its_blocks_until_the_step_has_finished():
    seen = []

    class Watch(CostExecutor):
        def execute(self, batch):
            sampled = super().execute(batch)
            if len(engine.trace.steps) == 2:
                engine.scheduler.cancel("a")
                seen.append((engine.scheduler.pool.num_free, list(engine.scheduler.running)))
            return sampled

    engine = make_engine(executor=Watch(SECOND))
    a, b = Request("a", 0.0, 8, 9), Request("b", 0.0, 4, 9)
    engine.add(a)
    engine.add(b)
    for _ in range(3):
        engine.step()
    assert seen == [(15, [b])]  # 3 + 2 blocks of 20 are held, though `a` runs no more
    assert engine.scheduler.pool.num_free == 18
    assert (a.status, a.num_output_tokens) == (Status.CANCELLED, 2)  # what the step sampled is lost
    engine.scheduler.check_integrity()


def test_cancelling_at_a_time():
    requests = [
        Request("running", 0.0, 4, 20, cancel_s=2.5),
        Request("waiting", 0.5, 4, 20, cancel_s=1.25),
        Request("ended", 0.0, 4, 2, cancel_s=2.5),
        Request("at once", 7.0, 4, 2, cancel_s=7.0),
    ]
    trace = simulate(requests, SECOND)
    assert {r.id: (r.status, r.finish_s, r.num_output_tokens) for r in trace.requests} == {
        "running": ("cancelled", 3.0, 2),
        "waiting": ("cancelled", 1.25, 0),
        "ended": ("finished", 2.0, 2),
        "at once": ("cancelled", 7.0, 0),
    }
    assert trace["waiting"].ttft_s is None


def test_cancelling_a_request_cancels_its_samples():
    trace = simulate([Request("a", 0.0, [1] * 4, 9, n=3, cancel_s=2.5)], SECOND, max_running=3)
    assert [(r.id, r.status, r.finish_s) for r in trace.requests] == [
        ("a", "cancelled", 3.0),
        ("a/1", "cancelled", 3.0),
        ("a/2", "cancelled", 3.0),
    ]


def test_cancel_refuses_unknown_ids_and_ignores_what_has_ended():
    engine = make_engine()
    engine.add(Request("a", 1.0, 4, 1))
    with pytest.raises(ValueError, match="request_id is 'b'; no request has this id"):
        engine.cancel("b")
    with pytest.raises(ValueError, match=r"time_s is 0\.0; it must be at least the request's arrival_s"):
        engine.cancel("a")
    engine.run()
    engine.cancel("a")
    assert engine.run()["a"].status == "finished"
    assert engine.scheduler.cancel("a") is False
    with pytest.raises(ValueError, match="request_id is 'b'"):
        engine.scheduler.cancel("b")


# ---- the trace


def test_steps_behave_like_a_list():
    trace = simulate(four_requests(), CHAPTER_COST)
    steps = list(trace.steps)
    assert len(steps) == len(trace.steps) == 11
    assert (trace.steps[-1], trace.steps[2:4]) == (steps[10], steps[2:4])
    with pytest.raises(IndexError):
        trace.steps[11]
    with pytest.raises(KeyError):
        trace["r9"]


def test_a_step_reads_the_same_whenever_it_is_asked_for():
    engine = make_engine()
    engine.add(Request("a", 0.0, 4, 5))
    engine.step()
    first = engine.trace.steps[0]
    engine.run()
    assert engine.trace.steps[0] == first
    assert len(engine.trace.steps) == 5


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format": "other"}',
        '{"format": "servelab-trace-1", "config": {}, "requests": [{}], "steps": {}}',
    ],
)
def test_what_is_no_trace_is_refused(text):
    with pytest.raises(ValueError, match=r"format is|text is no trace"):
        Trace.from_json(text)


def test_json_is_plain_and_compact():
    text = simulate(four_requests(), CHAPTER_COST).to_json()
    assert json.loads(text)["config"]["policy"] == "chunked"
    assert len(text) < 3000


def test_pandas_gets_a_line_for_each_row_and_each_request():
    trace = simulate(four_requests(), CHAPTER_COST)
    steps, requests = trace.to_pandas()
    assert len(steps) == sum(len(step.rows) for step in trace.steps)
    assert steps.groupby("request_id")["num_tokens"].sum().to_dict() == {
        request.id: request.num_prompt_tokens + request.num_output_tokens - 1 for request in trace.requests
    }
    assert requests["ttft_s"].tolist() == [request.ttft_s for request in trace.requests]


# ---- what is refused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arrival_s": -1.0}, "arrival_s is -1.0; it must be a finite number of at least 0"),
        ({"arrival_s": float("nan")}, "arrival_s is nan"),
        ({"arrival_s": "now"}, "arrival_s is 'now'"),
        ({"prompt": 0}, "prompt is 0; it must be an integer of at least 1"),
        ({"prompt": []}, "prompt is empty; it must have at least one token"),
        ({"prompt": "text"}, "prompt is 'text'; it must be an integer of at least 1"),
        ({"prompt": 2.5}, "prompt is 2.5"),
        ({"prompt": [3, -1]}, r"prompt\[1\] is -1; it must be an integer from 0 to"),
        ({"max_tokens": 0}, "max_tokens is 0; it must be an integer of at least 1"),
        ({"n": 0}, "n is 0; it must be an integer of at least 1"),
        ({"arrival_s": 2.0, "cancel_s": 1.0}, "cancel_s is 1.0; it must be at least arrival_s, 2.0"),
    ],
)
def test_bad_requests_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Request(**{"id": "a", "arrival_s": 0.0, "prompt": 4, "max_tokens": 1} | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policy": "fifo"}, "policy is 'fifo'; it must be one of serial, static, continuous, chunked"),
        ({"max_running": 0}, "max_running is 0; it must be an integer of at least 1"),
        ({"token_budget": 0}, "token_budget is 0; it must be an integer of at least 1"),
        ({"chunk": 0}, "chunk is 0; it must be an integer of at least 1"),
        ({"num_blocks": 0}, "num_blocks is 0; it must be an integer of at least 1"),
        ({"block_size": 0}, "block_size is 0; it must be an integer of at least 1"),
        ({"num_blocks": 3, "block_size": 4}, "request 'b' writes 13 tokens; it must be at most 12, all blocks"),
    ],
)
def test_bad_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        simulate([Request("a", 0.0, 4, 1), Request("b", 0.0, 4, 10)], SECOND, **change)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request("a", 0.0, 4, 1), "id is 'a', which another request has"),
        (Request("b", 0.0, 4, 1, n=3), "n is 3; it must be at most max_running, 2"),
        (Request("b", 0.0, 80, 2), "request 'b' writes 81 tokens; it must be at most 80, all blocks"),
        (Request("b", 0.0, 4, 1, stop_tokens=[0]), "request 'b' has stop_tokens; its prompt must be token ids"),
    ],
)
def test_the_engine_refuses_what_can_never_run_and_goes_on(request_, message):
    engine = make_engine()
    engine.add(Request("a", 0.0, 4, 2))
    with pytest.raises(ValueError, match=message):
        engine.add(request_)
    trace = engine.run()
    assert [(record.id, record.status) for record in trace.requests] == [("a", "finished")]


def test_a_request_is_used_once():
    request = Request("a", 0.0, 4, 1)
    make_engine().add(request)
    with pytest.raises(ValueError, match="request 'a' was used already"):
        make_engine().add(request)
    make_engine().add(request.fresh())


@pytest.mark.parametrize("field", ["fixed_s", "per_new_token_s", "per_causal_pair_s"])
def test_a_step_cost_is_not_negative(field):
    with pytest.raises(ValueError, match=f"{field} is -1"):
        StepCost(**{"fixed_s": 0.0, "per_new_token_s": 0.0, "per_causal_pair_s": 0.0} | {field: -1})
