"""What goes wrong in the middle of a run: interruptions, and a thousand mixes of everything at once."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_engine_properties import COST, Accelerator, limits, make_scheduler, workloads
from test_engine_speculation import Clairvoyant, drafters

from servelab.engine import POLICIES, BlockPool, CostExecutor, Engine, Request, Scheduler


class Interrupted(Accelerator):
    """Is interrupted in some of its calls, before anything was written or after all was."""

    def __init__(self, scheduler, calls):
        super().__init__(scheduler)
        self.calls = calls  # {number of the call: whether it comes to its work first}
        self.num_calls = 0

    def execute(self, batch):
        is_late = self.calls.get(self.num_calls)
        self.num_calls += 1
        if is_late is False:
            raise KeyboardInterrupt
        sampled = super().execute(batch)
        if is_late:
            raise KeyboardInterrupt
        return sampled


def run_through(engine):
    """Run again after each interruption; returns how many there were."""
    interruptions = 0
    while True:
        try:
            engine.run()
            return interruptions
        except KeyboardInterrupt:
            interruptions += 1
            engine.scheduler.check_integrity()
            done = [record for record in engine.trace.requests if record.status == "finished"]
            assert all(record.num_output_tokens == record.max_tokens for record in done)


@settings(max_examples=80)
@given(workloads(), limits(), drafters, st.dictionaries(st.integers(0, 25), st.booleans(), min_size=1, max_size=6))
def test_an_interrupted_run_can_go_on(requests, limits, drafter, calls):
    engines = []
    for at in ({}, calls):
        scheduler = make_scheduler(requests, limits)
        executor = Interrupted(scheduler, at)  # looks at each read: what was not written must not be found
        executor.engine = engine = Engine(scheduler, executor, jump=False, drafter=drafter)
        for request in requests:
            engine.add(request.fresh())
        assert run_through(engine) == sum(number < executor.num_calls for number in at)
        assert scheduler.pool.num_free == scheduler.pool.num_blocks
        scheduler.pool.check_integrity([])
        engines.append(engine)
    plain, interrupted = engines
    for record in interrupted.trace.requests:
        assert record.status in ("finished", "cancelled")
        assert record.num_preemptions == interrupted.requests[record.id].num_preemptions
        if record.status == plain.trace[record.id].status == "finished":
            assert record.output_token_ids == plain.trace[record.id].output_token_ids


def random_mix(seed):
    """Requests of every kind, a scheduler whose pool is small, sometimes a drafter."""
    rng = random.Random(seed)
    beginning = [rng.randrange(50) for _ in range(12)]
    requests = []
    for number in range(rng.randrange(1, 12)):
        prompt = beginning[: rng.randrange(13)] + [rng.randrange(50) for _ in range(rng.randrange(1, 12))]
        arrival_s = rng.randrange(80) / 4
        requests.append(
            Request(
                f"r{number}",
                arrival_s,
                prompt if rng.random() < 0.8 else len(prompt),
                rng.randrange(1, 20),
                n=rng.choice([1, 1, 1, 2, 3]),
                cancel_s=arrival_s + rng.randrange(80) / 4 if rng.random() < 0.4 else None,
            )
        )
    settings = {
        "policy": rng.choice(POLICIES),
        "max_running": rng.randrange(3, 8),
        "token_budget": rng.randrange(1, 50),
        "chunk": rng.choice([None, rng.randrange(1, 20)]),
        "block_size": rng.randrange(1, 7),
        "spare_blocks": rng.randrange(10),
        "prefix_caching": rng.random() < 0.5,
    }
    drafter = Clairvoyant(rng.randrange(1, 6), rng.choice([None, 1, 2, 5])) if rng.random() < 0.4 else None
    return requests, settings, drafter


def test_a_thousand_mixes_end_with_every_block_free():
    num_preemptions = num_cancelled = num_accepted = 0
    for seed in range(1000):
        requests, settings, drafter = random_mix(seed)
        scheduler = make_scheduler(requests, settings)
        engine = Engine(scheduler, CostExecutor(COST), drafter=drafter)
        for request in requests:
            engine.add(request)
        trace = engine.run()
        assert scheduler.pool.num_free == scheduler.pool.num_blocks, seed
        assert not scheduler.requests, seed
        scheduler.pool.check_integrity([])
        statuses = [record.status for record in trace.requests]
        assert set(statuses) <= {"finished", "cancelled"}, seed
        num_cancelled += statuses.count("cancelled")
        num_preemptions += trace.num_preemptions
        num_accepted += trace.num_accepted
    assert min(num_preemptions, num_cancelled, num_accepted) > 500  # else they met little


def test_what_has_finished_is_there_after_an_interruption():
    scheduler = Scheduler(BlockPool(20, 4), max_running=2)
    engine = Engine(scheduler, Interrupted(scheduler, {5: False}), jump=False)
    engine.executor.engine = engine
    engine.add(Request("short", 0.0, [1, 2, 3], 3))
    engine.add(Request("long", 0.0, [1, 2, 3], 30))
    with pytest.raises(KeyboardInterrupt):
        engine.run()
    assert engine.trace["short"].status == "finished"
    assert len(engine.trace["short"].output_token_ids) == 3
    assert len(engine.requests["long"].output_token_ids) == engine.trace["long"].num_output_tokens == 5
    assert len(engine.trace.steps) == 5
    engine.cancel("long")
    assert engine.run()["long"].status == "cancelled"
    assert scheduler.pool.num_free == 20
