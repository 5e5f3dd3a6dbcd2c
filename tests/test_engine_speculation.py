"""Drafts in the scheduler: verified within all limits, taken back where rejected, found in no cache before."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_engine_properties import COST, limits, serve, workloads

from servelab.engine import BlockPool, CostExecutor, Engine, Request, Scheduler, Trace, simulate
from servelab.engine.executor import made_up_token
from servelab.speculation import NgramProposer


class Clairvoyant:
    """Knows what follows, and errs in every `period`-th token of a text (never, if it is None)."""

    def __init__(self, length=3, period=None):
        self.length, self.period = length, period
        self.known = set()

    def propose(self, request):
        self.known.add(request.id)
        text = list(request.token_ids)
        for _ in range(self.length):
            token = made_up_token(text)
            is_wrong = self.period is not None and len(text) % self.period == 0
            text.append(token + 1 if is_wrong else token)
        return text[request.num_tokens :]

    def forget(self, request_id):
        self.known.discard(request_id)


drafters = st.builds(Clairvoyant, st.integers(0, 6), st.none() | st.integers(1, 4))


@settings(max_examples=80)
@given(workloads(), limits(), drafters)
def test_drafts_break_no_limit_and_lose_no_block(requests, limits, drafter):
    engine, _ = serve(requests, limits, drafter)  # the accelerator looks at each step
    pool = engine.scheduler.pool
    assert pool.num_free == pool.num_blocks
    pool.check_integrity([])
    assert not drafter.known
    for record in engine.trace.requests:
        assert record.status in ("finished", "cancelled")
        assert record.num_output_tokens == engine.requests[record.id].num_output_tokens <= record.max_tokens
        assert record.status == "cancelled" or record.num_output_tokens == record.max_tokens
        assert record.num_preemptions == engine.requests[record.id].num_preemptions
    for step in engine.trace.steps:
        assert limits["policy"] != "chunked" or step.num_tokens <= limits["token_budget"]
        for row in step.rows:
            assert 0 <= row.num_accepted <= row.num_drafted
            assert not row.num_drafted or (row.kind == "decode" and row.num_tokens == 1 + row.num_drafted)
    assert Trace.from_json(engine.trace.to_json()) == engine.trace


@settings(max_examples=50)
@given(workloads(cancels=False), limits(), limits(), drafters)
def test_drafts_change_no_token(requests, limits, other_limits, drafter):
    plain, drafted = serve(requests, limits)[0], serve(requests, other_limits, drafter)[0]
    texts = [{record.id: record.output_token_ids for record in engine.trace.requests} for engine in (plain, drafted)]
    assert texts[0] == texts[1]


def one(max_tokens=12, drafter=None, **options):
    request = Request("a", 0.0, [1, 2, 3], max_tokens, **options.pop("request", {}))
    trace = simulate([request], COST, block_size=2, drafter=drafter, **options)
    return trace, trace["a"]


@pytest.mark.parametrize(("length", "steps"), [(0, 12), (1, 7), (3, 4), (11, 2), (100, 2)])
def test_right_drafts_save_steps(length, steps):
    """The prompt's step yields 1 token, each other one 1 + length; the last ones no more than are wanted."""
    trace, record = one(drafter=Clairvoyant(length))
    assert len(trace.steps) == steps
    assert record.num_accepted == record.num_drafted == 12 - steps
    assert record.output_token_ids == one()[1].output_token_ids
    assert record.token_s == sorted(record.token_s)


def test_wrong_drafts_cost_tokens_and_save_nothing():
    trace, record = one(drafter=Clairvoyant(3, period=1))
    assert len(trace.steps) == 12
    assert record.num_accepted == 0
    assert record.num_drafted == 3 * 8 + 2 + 1  # the last rounds want less
    assert [row.num_tokens for step in trace.steps for row in step.rows] == [3, *[4] * 8, 3, 2, 1]
    assert trace.total_s > one()[0].total_s


def test_a_stop_token_in_a_draft_ends_the_text():
    text = one()[1].output_token_ids
    for stop in range(12):
        _, record = one(drafter=Clairvoyant(4), request={"stop_tokens": [text[stop]]})
        assert record.output_token_ids == text[: stop + 1]
        assert record.num_output_tokens == stop + 1


@pytest.mark.parametrize(
    ("options", "most"), [({"token_budget": 3}, 2), ({"chunk": 2, "max_running": 3}, 1), ({"num_blocks": 7}, 3)]
)
def test_a_draft_is_cut_to_what_fits(options, most):
    """To the budget, the chunk (which counts only if there are two), the blocks."""
    requests = [Request(name, 0.0, [1, 2, 3], 12) for name in "ab"[: 2 if "chunk" in options else 1]]
    trace = simulate(requests, COST, block_size=2, drafter=Clairvoyant(3), **options)
    assert max(row.num_drafted for step in trace.steps for row in step.rows) == most
    assert not trace.num_preemptions


def test_nobody_is_preempted_for_a_draft():
    """Each has two slots left in its last block, and no block is free."""
    scheduler = Scheduler(BlockPool(4, 4), max_running=2)
    text = [1] * 6
    for _ in range(3):
        text.append(made_up_token(text))
    requests = [Request(name, 0.0, [1] * 6, 9, stop_tokens=text[-1:]) for name in "ab"]
    engine = Engine(scheduler, CostExecutor(COST), drafter=Clairvoyant(3))
    for request in requests:
        engine.add(request)
    trace = engine.run()
    assert not trace.num_preemptions
    assert trace["a"].num_drafted == trace["a"].num_accepted == 1  # of three


def test_rejected_tokens_give_whole_blocks_back_and_are_not_cached():
    pool = BlockPool(8, 2)
    scheduler = Scheduler(pool, prefix_caching=True)
    request = Request("a", 0.0, [1, 2, 3], 9)
    scheduler.add(request)
    scheduler.update(scheduler.schedule(), [[4]])
    scheduler.set_draft(request, [5, 6, 7, 8])
    batch = scheduler.schedule()
    (row,) = batch.rows
    assert (row.num_tokens, row.num_samples, row.token_ids) == (5, 1, [4, 5, 6, 7, 8])
    assert len(request.table.block_ids) == 4
    assert len(pool.prefix_cache) == 2  # 1 2 and 3 4: what is decided
    scheduler.update(batch, [[5, 6, 9]])
    assert request.output_token_ids == [4, 5, 6, 9]
    assert request.num_computed_tokens == request.table.num_tokens == 6
    assert len(request.table.block_ids) == 3
    assert len(pool.prefix_cache) == 3  # and 5 6, accepted
    scheduler.check_integrity()
    batch = scheduler.schedule()
    assert batch.rows[0].token_ids == [9]
    scheduler.update(batch, [[10]])


def test_a_preempted_request_loses_its_draft():
    scheduler = Scheduler(BlockPool(4, 2), max_running=2)
    requests = [Request(name, 0.0, [1, 2, 3], 4) for name in "ab"]
    for request in requests:
        scheduler.add(request)
    scheduler.update(scheduler.schedule(), [[7], [8]])
    scheduler.update(scheduler.schedule(), [[7], [8]])
    scheduler.set_draft(requests[1], [8])
    batch = scheduler.schedule()
    assert batch.preempted == [requests[1]]
    assert requests[1].spec_token_ids == []
    scheduler.update(batch, [[7]])
    scheduler.check_integrity()


@pytest.mark.parametrize("sampled", [[], [5, 6, 7, 8], [6, 7], [5, 7, 7], [None]])
def test_what_does_not_continue_the_draft_is_refused(sampled):
    scheduler = Scheduler(BlockPool(8, 4))
    request = Request("a", 0.0, [1, 2, 3], 9)
    scheduler.add(request)
    scheduler.update(scheduler.schedule(), [[4]])
    scheduler.set_draft(request, [5, 6])
    batch = scheduler.schedule()
    with pytest.raises(ValueError, match="sampled is"):
        scheduler.update(batch, [sampled])
    assert request.output_token_ids == [4]
    scheduler.update(batch, [[5, 9]])


def test_a_draft_that_has_no_place_is_refused():
    scheduler = Scheduler(BlockPool(8, 4))
    known, unknown = Request("a", 0.0, [1, 2, 3], 9), Request("b", 0.0, 3, 9)
    for request in (known, unknown):
        scheduler.add(request)
        with pytest.raises(ValueError, match=f"request '{request.id}' takes no draft now"):
            scheduler.set_draft(request, [5])
    scheduler.update(scheduler.schedule(), [[4], [None]])
    with pytest.raises(ValueError, match="request 'b' takes no draft"):
        scheduler.set_draft(unknown, [5])
    with pytest.raises(ValueError, match=r"token_ids\[1\] is -1"):
        scheduler.set_draft(known, [5, -1])
    assert known.spec_token_ids == []


def test_a_drafter_that_proposes_nothing_changes_nothing():
    rng = random.Random(0)
    requests = [Request(f"r{i}", i / 2, [rng.randrange(9) for _ in range(9)], 12, n=1 + i % 2) for i in range(8)]
    options = {"max_running": 4, "num_blocks": 16, "block_size": 4, "prefix_caching": True}
    traces = [simulate(requests, COST, drafter=drafter, **options) for drafter in (None, Clairvoyant(0))]
    assert traces[0] == traces[1]
    assert traces[0].num_preemptions


def test_ngrams_are_proposed_from_what_is_decided():
    """A text that repeats itself: after one period each draft is right."""
    period = [5, 6, 7, 8]
    executor = CostExecutor(COST, next_token=lambda text, sample: period[len(text) % 4])
    proposer = NgramProposer(3, min_n=1, max_n=2)
    engine = Engine(Scheduler(BlockPool(20, 4)), executor, drafter=proposer)
    engine.add(Request("a", 0.0, [period[i % 4] for i in range(8)], 13))
    trace = engine.run()
    assert trace["a"].num_accepted == trace["a"].num_drafted == 9
    assert len(trace.steps) == 4
    assert trace["a"].output_token_ids == [period[i % 4] for i in range(8, 21)]
    assert not proposer._drafters  # forgotten
    with pytest.raises(ValueError, match="num_speculative_tokens is 0"):
        NgramProposer(0)
    with pytest.raises(ValueError, match="max_n is 1"):
        NgramProposer(2, min_n=2, max_n=1)
