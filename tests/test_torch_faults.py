"""A real model in the engine, and what goes wrong: too long, too small, NaN, Ctrl-C, cancels; nothing is lost."""

import random
import signal

import pytest
import torch
from torch_cases import TINY, StepClock, greedy, make_requests, random_model

from servelab.engine import BlockPool, Engine, Request, Scheduler
from servelab.model.draft import DraftModelProposer
from servelab.model.executor import TorchExecutor
from servelab.model.paged import PagedKV
from servelab.model.serve import outputs_of, serve
from servelab.speculation import NgramProposer


@pytest.mark.parametrize(
    ("request_", "options", "message"),
    [
        (Request("a", 0.0, [1] * 30, 3), {"num_blocks": 7, "block_size": 4}, "writes 32 tokens; it must be at most 28"),
        (Request("a", 0.0, [1], 3), {"num_blocks": 0}, "num_blocks is 0; it must be an integer of at least 1"),
        (Request("a", 0.0, [1, 61], 3), {}, r"prompt\[1\] is 61; it must be an integer from 0 to 60"),
        (Request("a", 0.0, 5, 3), {}, "prompt is 5, a number of tokens; a model needs their ids"),
        (Request("a", 0.0, [1], 32_769), {}, "needs 32769 positions; it must be at most 32768"),
        (Request("a", 0.0, [1], 3, adapter="x"), {}, "adapter is 'x'; it must be None"),
        (Request("a", 0.0, [1], 3), {"kv_dtype": "q5"}, "kv_dtype is 'q5', which is not known"),
        (Request("a", 0.0, [1], 3), {"kernels": True}, "kernels is True with head_dim 32"),
        (Request("a", 0.0, [1], 3, n=3), {}, "n is 3; it must be at most max_running, 2"),
    ],
)
def test_what_can_never_run_is_refused_before_anything_runs(request_, options, message):
    with pytest.raises(ValueError, match=message):
        serve(random_model(), [request_], **options)


def test_a_pool_of_no_blocks_and_one_that_is_not_the_schedulers():
    with pytest.raises(ValueError, match="num_blocks is 0"):
        PagedKV(TINY, 0, 4)
    with pytest.raises(ValueError, match="head_dim is 16; q8_0 needs a multiple of 32"):
        PagedKV(type(TINY)(61, 32, 48, 2, 4, 2, head_dim=16), 4, 4, "q8_0")
    scheduler = Scheduler(BlockPool(9, 4))
    engine = Engine(scheduler, TorchExecutor(random_model(), 8, 4))
    engine.add(Request("a", 0.0, [1], 3))
    with pytest.raises(ValueError, match="pool has 9 blocks of 4 tokens; it must have at most 8 of 4"):
        engine.run()
    assert scheduler.pool.num_free == 9


def poisoned_model():
    """Logits of whoever has token 60 are NaN, and so are its K and V."""
    model = random_model(seed=1)
    poisoned = type(model)(model.config)
    poisoned.load_state_dict(model.state_dict())
    poisoned.requires_grad_(False).model.embed_tokens.weight[60] = torch.nan
    return model, poisoned


def test_nan_logits_name_their_request_and_cost_nobody_else_a_token():
    model, poisoned = poisoned_model()
    requests, texts = make_requests(model, 4, 1)
    bad = Request("bad", 0.0, [3, 60, 5], 5)
    requests = [request for request in requests if 60 not in [*request.prompt, *texts[request.id]]]
    assert len(requests) > 1
    clock = StepClock()
    options = {"max_running": 4, "num_blocks": 25, "block_size": 4, "prefix_caching": True}
    with pytest.raises(FloatingPointError, match="request 'bad': 61 of 61 logits are NaN or infinite") as caught:
        serve(poisoned, [requests[0], bad, *requests[1:]], **options, clock=clock, sleep=clock.sleep)
    engine = caught.value.engine
    engine.scheduler.check_integrity()
    engine.cancel("bad")
    trace = engine.run()  # in blocks that hold NaN
    outputs = outputs_of(engine)
    assert {request.id: outputs[request.id] for request in requests} == {r.id: texts[r.id] for r in requests}
    assert outputs["bad"] == []
    assert trace["bad"].status == "cancelled"
    assert engine.scheduler.pool.num_free == 25


def test_ctrl_c_keeps_what_has_finished():
    """A real signal, in the middle of a step."""
    model = random_model()
    requests, texts = make_requests(model, 5, 2)
    clock = StepClock()

    class Impatient(NgramProposer):
        rounds = 0

        def propose(self, request):
            self.rounds += 1
            if self.rounds == 25:
                signal.raise_signal(signal.SIGINT)
            return super().propose(request)

    drafter = Impatient(2)
    with pytest.raises(KeyboardInterrupt) as caught:
        serve(model, requests, clock=clock, sleep=clock.sleep, drafter=drafter)
    engine = caught.value.engine
    finished = [record.id for record in engine.trace.requests if record.status == "finished"]
    assert 0 < len(finished) < 5
    assert all(engine.trace[request_id].output_token_ids == texts[request_id] for request_id in finished)
    so_far = outputs_of(engine)
    assert all(texts[request_id][: len(tokens)] == tokens for request_id, tokens in so_far.items())
    engine.run()
    assert outputs_of(engine) == texts


class Interrupted(TorchExecutor):
    """Is interrupted in the attention of the second layer of some of its steps: K and V are half written."""

    def __init__(self, *arguments, at, **options):
        super().__init__(*arguments, **options)
        self.at, self.step = at, 0
        attend = self.kv.attend

        def interrupted(layer, sequences, query):
            if layer == 1 and self.step in self.at:
                raise KeyboardInterrupt
            return attend(layer, sequences, query)

        self.kv.attend = interrupted

    def execute(self, batch):
        self.step += 1
        return super().execute(batch)


@pytest.mark.parametrize("kind", ["plain", "look-up", "model"])
def test_a_run_goes_on_after_interruptions(kind):
    model = random_model()
    requests, texts = make_requests(model, 5, 3)
    drafter = {"plain": None, "look-up": NgramProposer(3), "model": DraftModelProposer(model, 3)}[kind]
    clock = StepClock()
    scheduler = Scheduler(BlockPool(15, 4), max_running=3, token_budget=20, chunk=9, prefix_caching=True)
    executor = Interrupted(model, 15, 4, at={2, 5, 6, 11}, clock=clock, sleep=clock.sleep)
    engine = Engine(scheduler, executor, drafter=drafter)
    for request in requests:
        engine.add(request)
    for _ in range(4):
        with pytest.raises(KeyboardInterrupt):
            engine.run()
        scheduler.check_integrity()
    engine.run()
    assert outputs_of(engine) == texts
    assert scheduler.pool.num_free == 15


def test_a_draft_that_the_model_has_no_token_for():
    class Careless:
        def propose(self, request):
            return [61]

        def forget(self, request_id):
            pass

    with pytest.raises(ValueError, match="draft of request 'a' is 61; it must be an integer from 0 to 60"):
        serve(random_model(), [Request("a", 0.0, [1], 5)], drafter=Careless())


def test_random_mixes_end_with_every_block_free():
    model = random_model()
    num_cancelled = num_preemptions = 0
    for seed in range(30):
        rng = random.Random(seed)
        clock = StepClock()
        block_size = rng.randrange(2, 9)
        scheduler = Scheduler(
            BlockPool(-(-40 // block_size) + rng.randrange(4), block_size),
            max_running=rng.randrange(2, 6),
            token_budget=rng.randrange(4, 40),
            chunk=rng.choice([None, 6, 15]),
            prefix_caching=rng.random() < 0.5,
        )
        executor = TorchExecutor(
            model, scheduler.pool.num_blocks, block_size, rng.choice(["f32", "q8_0"]), clock=clock, sleep=clock.sleep
        )
        drafter = rng.choice([None, NgramProposer(2), DraftModelProposer(model, 2)])
        engine = Engine(scheduler, executor, drafter=drafter)
        for number in range(6):
            prompt = [rng.randrange(61)] * rng.randrange(1, 25)
            cancel_s = rng.randrange(1, 30) / 4 if rng.random() < 0.4 else None
            options = {"n": rng.choice([1, 1, 2]), "temperature": rng.choice([0.0, 1.0]), "cancel_s": cancel_s}
            engine.add(Request(f"r{number}", 0.0, prompt, rng.randrange(1, 15), **options))
        trace = engine.run()
        assert scheduler.pool.num_free == scheduler.pool.num_blocks
        scheduler.pool.check_integrity([])
        for record in trace.requests:
            assert record.status == "cancelled" or record.num_output_tokens == record.max_tokens
            num_cancelled += record.status == "cancelled"
        num_preemptions += trace.num_preemptions
    assert num_cancelled > 10
    assert num_preemptions > 10


def test_a_single_token_prompt_and_a_single_output_token():
    text, _ = greedy(random_model(), (7,), 1)
    assert serve(random_model(), [Request("a", 0.0, [7], 1)])[1] == {"a": text}
