"""What holds for every workload: limits, causality, Little's law, no block lost, no token changed by scheduling."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servelab.cost import StepCost
from servelab.engine import POLICIES, BlockPool, CostExecutor, Engine, Request, Scheduler, Trace, simulate

COST = StepCost(fixed_s=1.0, per_new_token_s=0.125, per_causal_pair_s=0.015625)  # exact in binary
TEXTS = (
    st.integers(0, 3)
    .flatmap(  # four beginnings, so that many prompts share one
        lambda beginning: st.lists(st.integers(0, 2), max_size=8).map(lambda end: [beginning] * (3 * beginning) + end)
    )
    .filter(bool)
)


@st.composite
def workloads(draw, cancels=True, forks=True, unknown_texts=True):
    """Requests in any order of arrival; times are multiples of 1/8 s."""
    requests = []
    for number in range(draw(st.integers(1, 8))):
        arrival_s = draw(st.integers(0, 200)) / 8
        cancel_s = draw(st.none() | st.integers(0, 160).map(lambda later: later / 8)) if cancels else None
        requests.append(
            Request(
                f"r{number}",
                arrival_s,
                draw(st.integers(1, 17) | TEXTS) if unknown_texts else draw(TEXTS),
                max_tokens=draw(st.integers(1, 12)),
                salt=draw(st.sampled_from([None, "tenant"])),
                n=draw(st.integers(1, 3)) if forks else 1,
                cancel_s=None if cancel_s is None else arrival_s + cancel_s,
            )
        )
    return requests


@st.composite
def limits(draw, policies=POLICIES):
    """Settings of a scheduler. `spare_blocks` says how many blocks there are beyond what the longest request needs."""
    return {
        "policy": draw(st.sampled_from(policies)),
        "max_running": draw(st.integers(3, 6)),
        "token_budget": draw(st.integers(1, 40)),
        "chunk": draw(st.none() | st.integers(1, 20)),
        "block_size": draw(st.integers(1, 5)),
        "spare_blocks": draw(st.integers(0, 12)),
        "prefix_caching": draw(st.booleans()),
    }


def make_scheduler(requests, limits):
    block_size = limits["block_size"]
    num_blocks = max(-(-request.max_written_tokens // block_size) for request in requests) + limits["spare_blocks"]
    is_chunked = limits["policy"] == "chunked"
    return Scheduler(
        BlockPool(num_blocks, block_size),
        limits["policy"],
        limits["max_running"],
        limits["token_budget"] if is_chunked else None,
        limits["chunk"] if is_chunked else None,
        limits["prefix_caching"],
    )


class Accelerator(CostExecutor):
    """Executes batches on a toy memory: a slot holds the token (and position) whose KV would lie there.

    Before anything is sampled, each row's whole text is read back through its table. Between the start and the end
    of the step it lets requests be cancelled, and looks at the blocks that the step uses.
    """

    def __init__(self, scheduler):
        super().__init__(COST)
        self.scheduler = scheduler
        self.memory = {}
        self.integral = Fraction(0)  # over time, of the number of requests in the system
        self.engine = None

    def execute(self, batch):
        scheduler, pool = self.scheduler, self.scheduler.pool
        scheduler.check_integrity()
        assert batch.rows
        assert len(scheduler.running) <= scheduler.max_running
        if scheduler.token_budget is not None:
            assert batch.num_tokens <= scheduler.token_budget
        for source, destination in batch.copies:
            for offset in range(pool.block_size):
                self.memory[destination, offset] = self.memory.get((source, offset))
        used = set()
        for row in batch.rows:
            used.update(row.request.table.block_ids)
            for position in row.positions:
                block_id, offset = row.request.table.slot(position)
                assert pool.ref_counts[block_id] == 1 or block_id in pool.prefix_cache, "written, but not private"
                self.memory[block_id, offset] = self.expected(row, position)
                assert position < row.request.num_tokens or block_id not in pool.prefix_cache, "a draft can be found"
        for row in batch.rows:
            length = row.num_computed_tokens + row.num_tokens
            read = [self.memory[row.request.table.slot(position)] for position in range(length)]
            assert read == [self.expected(row, position) for position in range(length)]

        start_s, num_requests = self.now(), len(scheduler.requests)
        sampled = super().execute(batch)
        self.integrate(start_s, num_requests)
        self.engine._deliver()  # cancellations that came meanwhile: the step is still in flight
        assert not used & set(pool.free_queue), "a block of the step in flight is free"
        return sampled

    def expected(self, row, position):
        request = row.request
        if request.token_ids is None:
            return request.id.split("/")[0], position
        return [*request.token_ids, *row.spec_token_ids][position]

    def integrate(self, start_s, num_requests):
        end_s = self.now()
        self.integral += num_requests * (Fraction(end_s) - Fraction(start_s))
        for arrival_s, _, request in self.engine._arrivals:
            if arrival_s <= end_s and (request.cancel_s is None or request.cancel_s > end_s):
                self.integral += Fraction(end_s) - Fraction(arrival_s)


def serve(requests, limits, drafter=None):
    scheduler = make_scheduler(requests, limits)
    executor = Accelerator(scheduler)
    engine = Engine(scheduler, executor, jump=False, drafter=drafter)
    executor.engine = engine
    for request in requests:
        engine.add(request.fresh())
    engine.run()
    return engine, executor


@settings(max_examples=150, deadline=None)
@given(workloads(), limits())
def test_every_request_ends_every_block_returns_and_every_read_is_right(requests, limits):
    engine, _ = serve(requests, limits)  # the accelerator looks at each step
    pool = engine.scheduler.pool
    assert pool.num_free == pool.num_blocks
    assert not engine.scheduler.requests
    pool.check_integrity([])
    for record in engine.trace.requests:
        request = engine.requests[record.id]
        assert record.status in ("finished", "cancelled")
        assert record.status == "cancelled" or record.num_output_tokens == record.max_tokens
        assert record.num_output_tokens == request.num_output_tokens
        assert record.num_preemptions == request.num_preemptions


@settings(max_examples=100, deadline=None)
@given(workloads(), limits())
def test_a_trace_obeys_limits_and_causality(requests, limits):
    engine, _ = serve(requests, limits)
    trace = engine.trace
    computed = {}
    end_before = 0.0
    for step in trace.steps:
        assert end_before <= step.start_s < step.end_s
        end_before = step.end_s
        assert len(step.rows) <= limits["max_running"]
        if limits["policy"] == "chunked":
            assert step.num_tokens <= limits["token_budget"]
        if limits["policy"] == "serial":
            assert len({row.request_id.split("/")[0] for row in step.rows}) == 1
        for request_id in step.preempted:
            computed[request_id] = 0
        assert step.seconds == COST.seconds([(row.num_tokens, row.num_computed_tokens) for row in step.rows])
        for row in step.rows:
            assert trace[row.request_id].arrival_s <= step.start_s
            if limits["prefix_caching"] or row.request_id not in computed:
                assert row.num_computed_tokens >= computed.get(row.request_id, 0)
            else:
                assert row.num_computed_tokens == computed[row.request_id]
            computed[row.request_id] = row.num_computed_tokens + row.num_tokens
    for record in trace.requests:
        times = [record.arrival_s, *record.token_s, record.finish_s]
        assert times == sorted(times)
        assert record.status == "cancelled" or record.finish_s == record.token_s[-1]
        assert len(record.itl_s) == max(0, record.num_output_tokens - 1)
    assert trace.max_itl_s == max((max(record.itl_s) for record in trace.requests if record.itl_s), default=None)


@settings(max_examples=100, deadline=None)
@given(workloads(cancels=False, forks=False), limits())
def test_littles_law_holds_exactly(requests, limits):
    """The sum of the times in the system is the integral over time of the number in it."""
    engine, executor = serve(requests, limits)
    records = engine.trace.requests
    assert sum(Fraction(record.finish_s) - Fraction(record.arrival_s) for record in records) == executor.integral


@settings(max_examples=60, deadline=None)
@given(workloads(cancels=False, unknown_texts=False), limits(), limits())
def test_scheduling_changes_no_token(requests, limits, other_limits):
    """Policy, budget, chunk, block size, prefix cache, preemption: the text of each request stays the same."""
    texts = [
        {record.id: record.output_token_ids for record in serve(requests, settings)[0].trace.requests}
        for settings in (limits, other_limits)
    ]
    assert texts[0] == texts[1]
    assert all(texts[0].values())


@settings(max_examples=200, deadline=None)
@given(workloads(), limits())
def test_a_jump_gives_the_same_trace_as_steps(requests, limits):
    engines = []
    for jump in (True, False):
        scheduler = make_scheduler(requests, limits)
        engine = Engine(scheduler, CostExecutor(COST), jump)
        for request in requests:
            engine.add(request.fresh())
        engine.run()
        engines.append(engine)
    jumped, stepped = engines
    assert jumped.trace == stepped.trace
    assert list(jumped.trace.steps) == list(stepped.trace.steps)
    pools = [engine.scheduler.pool for engine in engines]
    assert list(pools[0].free_queue) == list(pools[1].free_queue)
    assert list(pools[0].prefix_cache) == list(pools[1].prefix_cache)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("prefix_caching", [False, True])
def test_long_jumps_give_the_same_trace_as_steps(policy, prefix_caching):
    requests = [Request(f"r{i}", i * 3.0, [i // 8] * 40 + [i], 50 + 7 * i) for i in range(30)]
    requests += [Request(f"u{i}", 20.0 + i, 60, 90) for i in range(5)]
    options = {"policy": policy, "max_running": 6, "token_budget": 64, "chunk": 32, "num_blocks": 75, "block_size": 4}
    traces = [simulate(requests, COST, **options, prefix_caching=prefix_caching, jump=jump) for jump in (True, False)]
    assert traces[0] == traces[1]
    assert policy == "serial" or traces[0].num_preemptions > 0
    assert all(request.num_cached_tokens == 0 for request in traces[0].requests) != prefix_caching


@pytest.mark.parametrize("time_s", [3.0, 5.0, 5.5])
@pytest.mark.parametrize("event", ["arrival", "cancel"])
def test_an_event_at_the_very_end_of_a_step_ends_a_jump(event, time_s):
    requests = [Request("a", 0.0, 4, 20), Request("b", 0.0, 4, 20, cancel_s=time_s if event == "cancel" else None)]
    requests += [Request("c", time_s, 4, 20)] if event == "arrival" else []
    second = StepCost(1.0, 0.0, 0.0)
    traces = [simulate(requests, second, max_running=3, jump=jump) for jump in (True, False)]
    assert traces[0] == traces[1]


def test_samples_beyond_the_token_budget_take_turns_in_a_jump_too():
    requests = [Request("a", 0.0, [1] * 4, 9, n=3)]
    traces = [
        simulate(requests, COST, max_running=3, token_budget=2, block_size=4, jump=jump) for jump in (True, False)
    ]
    assert traces[0] == traces[1]
    assert max(step.num_tokens for step in traces[0].steps) == 2


@settings(max_examples=40, deadline=None)
@given(workloads(), limits())
def test_a_trace_survives_json(requests, limits):
    trace = serve(requests, limits)[0].trace
    again = Trace.from_json(trace.to_json())
    assert again == trace
    assert list(again.steps) == list(trace.steps)
    assert [request.token_s for request in again.requests] == [request.token_s for request in trace.requests]
