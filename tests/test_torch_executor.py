"""The engine on a real model: scheduling changes no token, forks do not disturb each other, formats keep bounds."""

import copy
import random

import pytest
import torch
from torch_cases import KERNEL, TINY, StepClock, greedy, make_requests, random_model

from servelab.engine import POLICIES, BlockPool, Engine, Request, Scheduler
from servelab.model.draft import DraftModelProposer
from servelab.model.executor import TorchExecutor
from servelab.model.generate import generate
from servelab.model.kv_formats import FORMATS, KVFormat
from servelab.model.serve import outputs_of, serve
from servelab.quantization import dequantize, quantize
from servelab.speculation import NgramProposer


def run(model, requests, **options):
    """`serve` on a clock that does not wait."""
    clock = StepClock()
    return serve(model, requests, clock=clock, sleep=clock.sleep, **options)


def random_options(rng, requests):
    """Settings of a scheduler; the pool is often so small that requests are preempted."""
    block_size = rng.choice([1, 2, 3, 5, 8, 16])
    longest = max(-(-request.max_written_tokens // block_size) for request in requests)
    return {
        "policy": rng.choice(POLICIES),
        "max_running": rng.randrange(1, 7),
        "token_budget": rng.choice([3, 8, 20, 64]),
        "chunk": rng.choice([None, 2, 11, 30]),
        "block_size": block_size,
        "num_blocks": longest + rng.choice([0, 1, longest, 8 * longest]),
        "prefix_caching": rng.random() < 0.5,
    }


def run_seen(trace):
    """What a run met."""
    kinds = [{row.kind for row in step.rows} for step in trace.steps]
    segments = [segment for record in trace.requests for segment in record.segments]
    met = {
        "preemption": trace.num_preemptions,
        "hit": any(record.num_cached_tokens for record in trace.requests),
        "mixed step": {"prefill", "decode"} in kinds,
        "chunk": any(not segment.num_samples for segment in segments),
        "accepted": trace.num_accepted,
        "rejected": trace.num_drafted > trace.num_accepted,
    }
    return {name for name, value in met.items() if value}


def random_drafter(rng, model):
    """None, look-up, the model itself (nearly always right), or another one (nearly always wrong)."""
    length = rng.randrange(1, 6)
    proposers = [
        NgramProposer(length),
        DraftModelProposer(model, length),
        DraftModelProposer(random_model(seed=9), length),
    ]
    return rng.choice([None, *proposers])


def test_scheduling_changes_no_greedy_token():
    """Policy, budget, chunk, block size, prefix cache, preemption, speculation: the text is that of `generate`."""
    seen = set()
    for seed in range(24):
        model, rng = random_model(seed=seed % 2), random.Random(seed)
        requests, texts = make_requests(model, 5, seed % 4)
        options = random_options(rng, requests)
        trace, outputs = run(model, requests, **options, drafter=random_drafter(rng, model))
        assert outputs == texts, (seed, options)
        assert {record.status for record in trace.requests} == {"finished"}
        seen |= run_seen(trace)
    assert seen == {"preemption", "hit", "mixed step", "chunk", "accepted", "rejected"}  # else this would prove little


@pytest.mark.parametrize("kernels", [True, False])
def test_the_compiled_kernel_serves_the_same_text(kernels):
    model = random_model(KERNEL)
    requests, texts = make_requests(model, 5, 1)
    options = {"max_running": 4, "token_budget": 16, "chunk": 7, "block_size": 4, "num_blocks": 20}
    trace, outputs = run(model, requests, **options, kernels=kernels)
    assert outputs == texts
    assert trace.num_preemptions


def test_text_is_that_of_transformers():
    transformers = pytest.importorskip("transformers", reason="transformers, the oracle, is not installed")
    model = random_model()
    config = transformers.Qwen3Config(**{**TINY.to_dict(), "rope_parameters": {"rope_theta": TINY.rope_theta}})
    theirs = transformers.Qwen3ForCausalLM(config).eval()
    theirs.load_state_dict(model.state_dict())
    requests, _ = make_requests(model, 5, 2)
    _, outputs = run(model, requests, max_running=3, token_budget=9, chunk=5, block_size=4, prefix_caching=True)
    for request in requests:
        options = {"max_new_tokens": request.max_tokens, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        text = theirs.generate(torch.tensor([request.prompt]), **options)[0, len(request.prompt) :]
        assert outputs[request.id] == text.tolist()


@pytest.mark.parametrize("seed", range(4))
def test_samples_are_those_of_runs_of_their_own(seed):
    """Forks share blocks, copy on write, are preempted, drafted for; each draws as `generate` draws its sample."""
    model, rng = random_model(), random.Random(seed)
    prompts = [[rng.randrange(61) for _ in range(rng.randrange(1, 20))] for _ in range(3)]
    requests = [
        Request(f"r{i}", 0.0, prompt, 12, n=i + 1, temperature=1.5, seed=seed) for i, prompt in enumerate(prompts)
    ]
    options = {**random_options(rng, requests), "max_running": rng.randrange(3, 6)}
    trace, outputs = run(model, requests, **options, drafter=random_drafter(rng, model) if seed else None)
    for request in requests:
        for sample, sample_id in enumerate(request.sample_ids):
            alone = generate(model, request.prompt, 12, temperature=1.5, seed=seed, sample_index=sample)
            assert outputs[sample_id] == alone
    assert len({tuple(outputs[sample_id]) for sample_id in requests[2].sample_ids}) == 3
    assert trace["r2/1"].parent == "r2"


def test_drafts_that_are_drawn_as_the_target_draws_are_accepted():
    """The model drafts for itself: all its drafts are right, greedy and drawn, and steps are saved."""
    model = random_model()
    for temperature in (0.0, 1.0):
        requests = [Request("a", 0.0, [5, 1, 4], 21, temperature=temperature, seed=3)]
        trace, outputs = run(model, requests, drafter=DraftModelProposer(model, 4))
        assert outputs["a"] == generate(model, [5, 1, 4], 21, temperature, 3)
        assert trace.num_accepted == trace.num_drafted == 16
        assert len(trace.steps) == 5


def test_a_copied_block_is_its_owners_alone():
    """Two forks end in one block; after the copy each has its own, with the same tokens up to the fork."""
    model = random_model()
    scheduler = Scheduler(BlockPool(8, 4), max_running=2)
    executor = TorchExecutor(model, 8, 4, clock=StepClock())
    scheduler.add(Request("a", 0.0, [5, 6, 7, 8, 9, 10], 6, n=2, temperature=2.0, seed=1))
    copies = []
    while scheduler.requests:
        batch = scheduler.schedule()
        before = executor.kv.keys.clone()
        sampled = executor.execute(batch)
        for source, destination in batch.copies:
            copies.append((source, destination))
            assert torch.equal(executor.kv.keys[:, destination, :, :2], before[:, source, :, :2])
            assert not torch.equal(executor.kv.keys[:, destination, :, 2], executor.kv.keys[:, source, :, 2])
        scheduler.update(batch, sampled)
    assert len(copies) == 1


@pytest.mark.parametrize(
    ("config", "kv_dtype", "bound"),
    [
        *[(TINY, "f32", 1e-4), (TINY, "f16", 0.02), (TINY, "bf16", 0.2), (TINY, "fp8", 1.5), (TINY, "q8_0", 0.3)],
        *[(TINY, "q4_0", 4.0), (KERNEL, "f32", 1e-4), (KERNEL, "q8_0", 0.3)],  # these two by compiled kernels
    ],
)
def test_a_format_moves_logits_by_no_more_than_it_may(config, kv_dtype, bound):
    """The same tokens are forced through chunks and decodes over the cache, and compared with no cache at all."""
    model = random_model(config)
    text = [(7 * i) % 61 for i in range(30)]
    executor = TorchExecutor(model, 16, 4, kv_dtype)
    logits = []
    table = [9, 3, 14, 0, 7, 1, 12, 5]
    with torch.inference_mode():
        context = 0
        for num_tokens in [13, 9, *[1] * 8]:
            sequences = executor.kv.plan([(context, num_tokens, table)])

            def attend(layer, query, key, value, sequences=sequences):
                executor.kv.write(layer, sequences, key, value)
                return executor.kv.attend(layer, sequences, query)

            positions = torch.arange(context, context + num_tokens)
            logits.append(model(torch.tensor(text)[positions], positions, attend))
            context += num_tokens
        error = (torch.cat(logits) - model(torch.tensor(text))).abs().max()
    assert error < bound
    assert kv_dtype == "f32" or error > bound / 100  # it was used


def test_a_request_with_an_early_stop_and_one_that_is_cancelled_give_their_blocks_back():
    model = random_model()
    text, _ = greedy(model, (3, 1, 4, 1, 5), 20)
    requests = [
        Request("stops", 0.0, [3, 1, 4, 1, 5], 20, stop_tokens=[text[6]]),
        Request("cancelled", 0.0, [2, 7, 1], 200, cancel_s=3.0),
        Request("stays", 0.0, [3, 1, 4, 1, 5], 20),
    ]
    clock = StepClock()
    scheduler = Scheduler(BlockPool(80, 3), max_running=3, prefix_caching=True)
    engine = Engine(scheduler, TorchExecutor(model, 80, 3, clock=clock, sleep=clock.sleep))
    for request in requests:
        engine.add(request)
    trace = engine.run()
    outputs = outputs_of(engine)
    assert outputs["stops"] == text[: text.index(text[6]) + 1]
    assert outputs["stays"] == text
    assert trace["cancelled"].status == "cancelled"
    assert 0 < trace["cancelled"].num_output_tokens < 60
    assert scheduler.pool.num_free == 80
    scheduler.pool.check_integrity([])


def test_the_engine_waits_for_an_arrival():
    clock = StepClock()
    trace, _ = serve(random_model(), [Request("a", 30.0, [1, 2], 3)], clock=clock, sleep=clock.sleep)
    assert trace["a"].arrival_s <= trace.steps[0].start_s < 30.5
    assert trace["a"].ttft_s < 1


@pytest.mark.parametrize("kv_dtype", ["q8_0", "q4_0", "fp8"])
def test_bytes_and_values_are_those_of_the_codecs(kv_dtype):
    values = torch.randn(40, 3, 64, generator=torch.Generator().manual_seed(0))
    values[0, 0, :32] = 0
    values[1] *= 1e-7  # a scale that rounds to 0
    values[2] *= 300  # beyond what FP8 holds
    values[3, :, ::2] = values[3, :, :1]  # ties for the largest
    stored = FORMATS[kv_dtype].encode(values)
    assert stored.shape[-1] == FORMATS[kv_dtype].row_size(64)
    assert stored.numpy().tolist() == quantize(values.numpy(), kv_dtype).tolist()
    decoded = FORMATS[kv_dtype].decode(stored)
    assert torch.equal(decoded, torch.from_numpy(dequantize(stored.numpy(), kv_dtype)))


def test_a_format_of_ones_own():
    """Sixteenths in two bytes: one class is all that it takes."""

    class Sixteenths(KVFormat):
        def encode(self, heads):
            return (heads * 16).round().to(torch.int16)

        def decode(self, stored):
            return stored.float() / 16

    model = random_model()
    request = Request("a", 0.0, list(range(12)), 8)
    _, outputs = run(model, [request], kv_dtype=Sixteenths("sixteenths", torch.int16), kernels=False)
    assert len(outputs["a"]) == 8
    assert TorchExecutor(model, 4, 4, "f32").kv.nbytes == 2 * TorchExecutor(model, 4, 4, "bf16").kv.nbytes


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
@pytest.mark.parametrize("kv_dtype", ["f32", "f16", "bf16", "fp8", "q8_0", "q4_0"])
def test_the_same_on_a_gpu(kv_dtype):
    model = random_model()
    requests, texts = make_requests(model, 5, 3)
    trace, outputs = run(copy.deepcopy(model).cuda(), requests, max_running=3, num_blocks=30, kv_dtype=kv_dtype)
    assert kv_dtype != "f32" or outputs == texts
    assert trace.total_s > 0
    assert set(outputs) == set(texts)
