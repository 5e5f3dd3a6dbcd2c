"""The scheduler by itself: who runs, who waits, who gives way; one rule a test. vLLM's own traces: test_replay.py."""

import pytest

from servelab.engine import BlockPool, Request, Scheduler


def make(num_blocks=100, block_size=4, **settings):
    return Scheduler(BlockPool(num_blocks, block_size), **settings)


def step(scheduler, token=1):
    """One step that samples `token`; returns (id, tokens) of its rows."""
    batch = scheduler.schedule()
    sampled = [[token] * row.num_samples if row.request.token_ids else [None] * row.num_samples for row in batch.rows]
    scheduler.update(batch, sampled)
    scheduler.check_integrity()
    return [(row.request.id, row.num_tokens) for row in batch.rows]


def test_decodes_come_first_and_prompts_share_what_is_left():
    scheduler = make(max_running=4, token_budget=10)
    scheduler.add(Request("a", 0.0, 6, 5))
    assert step(scheduler) == [("a", 6)]
    scheduler.add(Request("b", 0.0, 12, 5))
    scheduler.add(Request("c", 0.0, 5, 5))
    assert step(scheduler) == [("a", 1), ("b", 9)]
    assert step(scheduler) == [("a", 1), ("b", 3), ("c", 5)]


def test_chunk_caps_every_request_unless_it_is_alone():
    scheduler = make(max_running=4, token_budget=10, chunk=3)
    scheduler.add(Request("a", 0.0, 20, 5))
    assert step(scheduler) == [("a", 10)]
    scheduler.add(Request("b", 0.0, 20, 5))
    assert step(scheduler) == [("a", 3), ("b", 3)]


def test_nobody_overtakes_the_head_of_the_queue():
    scheduler = make(num_blocks=6, max_running=4, token_budget=100)
    scheduler.add(Request("a", 0.0, 12, 4))
    scheduler.add(Request("long", 0.0, 16, 4))
    scheduler.add(Request("short", 0.0, 4, 4))
    assert step(scheduler) == [("a", 12)]
    assert [request.id for request in scheduler.waiting] == ["long", "short"]


def test_without_chunks_a_prompt_waits_until_it_fits_the_budget():
    scheduler = make(policy="continuous", max_running=4, token_budget=10)
    for name in ("a", "b", "c"):
        scheduler.add(Request(name, 0.0, 5, 3))
    assert step(scheduler) == [("a", 5), ("b", 5)]
    assert step(scheduler) == [("a", 1), ("b", 1), ("c", 5)]


def test_the_last_one_gives_way_and_comes_back_first():
    scheduler = make(num_blocks=4, max_running=3, prefix_caching=True)
    for name in ("a", "b"):
        scheduler.add(Request(name, 0.0, [ord(name), *b"prompt"], 6))
    assert step(scheduler) == [("a", 7), ("b", 7)]
    scheduler.add(Request("c", 0.0, 1, 1))
    assert step(scheduler) == [("a", 1), ("b", 1)]
    assert step(scheduler) == [("a", 1)]  # b has lost its blocks; though c would fit, nobody is admitted in this step
    assert [request.id for request in scheduler.waiting] == ["b", "c"]
    victim = scheduler.waiting[0]
    assert (victim.num_computed_tokens, victim.num_output_tokens, victim.table.block_ids) == (0, 2, [])
    assert victim.num_cached_blocks == 0


def test_a_request_preempts_itself_if_it_is_the_last():
    scheduler = make(num_blocks=3, max_running=3)
    scheduler.add(Request("a", 0.0, 7, 2))
    scheduler.add(Request("b", 0.0, 4, 3))
    assert step(scheduler) == [("a", 7), ("b", 4)]
    assert step(scheduler) == [("a", 1)]
    assert [request.id for request in scheduler.waiting] == ["b"]
    assert step(scheduler) == [("b", 5)]


def test_an_equal_prompt_in_the_same_step_hits():
    scheduler = make(max_running=2, token_budget=100, prefix_caching=True)
    scheduler.add(Request("a", 0.0, [1, 2, 3, 4, 5], 2))
    scheduler.add(Request("b", 0.0, [1, 2, 3, 4, 5], 2))
    assert step(scheduler) == [("a", 5), ("b", 1)]
    assert scheduler.requests["a"].table.block_ids == [0, 1]
    assert scheduler.requests["b"].table.block_ids == [0, 2]


def test_a_request_that_is_to_fork_takes_all_its_places_at_once():
    scheduler = make(max_running=3, token_budget=4)
    scheduler.add(Request("a", 0.0, [1] * 6, 3, n=3))
    scheduler.add(Request("b", 0.0, [1] * 6, 3))
    assert step(scheduler) == [("a", 4)]
    assert step(scheduler) == [("a", 2)]
    assert step(scheduler) == [("a", 1), ("a/1", 1), ("a/2", 1)]


def test_forks_that_do_not_fit_give_way():
    scheduler = make(num_blocks=3, max_running=3)
    scheduler.add(Request("a", 0.0, [1] * 6, 6, n=3))
    assert step(scheduler) == [("a", 6)]
    assert step(scheduler) == [("a", 1), ("a/1", 1)]  # one block is left for a copy, then a/2 gives way
    assert [request.id for request in scheduler.waiting] == ["a/2"]
    while scheduler.requests:
        step(scheduler)
    assert scheduler.pool.num_free == 3


def test_cancelled_while_waiting_running_and_preempted():
    scheduler = make(num_blocks=4, max_running=2)
    for name in ("a", "b", "c"):
        scheduler.add(Request(name, 0.0, 7, 6))
    assert scheduler.cancel("c")
    for _ in range(3):
        step(scheduler)
    assert [request.id for request in scheduler.waiting] == ["b"]
    assert scheduler.cancel("b")
    assert scheduler.cancel("a")
    assert (scheduler.pool.num_free, scheduler.requests) == (4, {})
    assert step(scheduler) == []


def test_a_registered_id_is_taken_before_its_request_arrives():
    scheduler = make()
    request = Request("a", 0.0, 4, 1)
    scheduler.register(request)
    with pytest.raises(ValueError, match="id is 'a', which another request has"):
        scheduler.add(Request("a", 0.0, 8, 1))
    scheduler.add(request)
    assert step(scheduler) == [("a", 4)]
    with pytest.raises(ValueError, match="request 'a' was used already"):
        scheduler.add(request)


@pytest.mark.parametrize(
    ("sampled", "message"),
    [
        ([], "sampled has 0 rows; it must have 2"),
        ([[1], [1]], "sampled has 1 tokens for request 'b'; it must have 0"),
        ([[], []], "sampled has 0 tokens for request 'a'; it must have 1"),
        ([[None], []], r"sampled is \[None\] for request 'a'; it must be token ids"),
    ],
)
def test_update_refuses_what_does_not_match_the_batch(sampled, message):
    scheduler = make(token_budget=6)
    scheduler.add(Request("a", 0.0, [1] * 4, 3))
    scheduler.add(Request("b", 0.0, [1] * 4, 3))
    batch = scheduler.schedule()
    with pytest.raises(ValueError, match=message):
        scheduler.update(batch, sampled)
    scheduler.update(batch, [[1], []])
    scheduler.check_integrity()


def test_schedule_and_update_take_turns():
    scheduler = make()
    batch = scheduler.schedule()
    with pytest.raises(AssertionError, match="update"):
        scheduler.schedule()
    scheduler.update(batch, [])
    with pytest.raises(AssertionError, match="schedule"):
        scheduler.update(batch, [])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"policy": "continuous", "chunk": 4},
            "chunk is 4; it must be None, because policy 'continuous' cuts no prompt",
        ),
        ({"policy": "continuous", "token_budget": 7}, "without chunking it must be at most the token budget 7"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        make(**settings).add(Request("a", 0.0, 4, 5))


def _a_request_in_no_queue(scheduler):
    scheduler.running.pop()


def _a_request_twice(scheduler):
    scheduler.waiting.append(scheduler.running[0])


def _a_token_without_room(scheduler):
    scheduler.running[0].num_computed_tokens += 1


def _another_order(scheduler):
    scheduler.running.reverse()


def _blocks_while_waiting(scheduler):
    scheduler.waiting[0].num_computed_tokens = 1


def _too_many(scheduler):
    scheduler.max_running = 1


@pytest.mark.parametrize(
    "damage",
    [_a_request_in_no_queue, _a_request_twice, _a_token_without_room, _another_order, _blocks_while_waiting, _too_many],
    ids=lambda f: f.__name__,
)
def test_check_integrity_sees(damage):
    scheduler = make()
    for name in ("a", "b", "c"):
        scheduler.add(Request(name, 0.0, 4, 5))
    step(scheduler)
    damage(scheduler)
    with pytest.raises(RuntimeError):
        scheduler.check_integrity()
