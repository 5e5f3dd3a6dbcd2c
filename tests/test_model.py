"""The decoder: transformers as the oracle, its three ways of attention, simple generation."""

import itertools

import pytest
import torch

from servelab.model.config import DecoderConfig
from servelab.model.decoder import Decoder, causal_attention
from servelab.model.generate import KVCache, check_logits, draw_at, generate, sample

TINY = DecoderConfig(61, 32, 48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16)


def random_model(config=TINY, seed=0):
    torch.manual_seed(seed)
    model = Decoder(config)
    for parameter in model.parameters():  # norms as well, or a missing one would go unnoticed
        torch.nn.init.normal_(parameter, mean=1.0 if parameter.ndim == 1 else 0.0, std=0.3)
    return model.requires_grad_(False)


def oracle(seed=0, **changes):
    """transformers' model with random weights, and ours with the same."""
    transformers = pytest.importorskip("transformers", reason="transformers, the oracle, is not installed")
    values = {
        **{"vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": 16},
        **{"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": False},
    }
    config = transformers.Qwen3Config(**{**values, **changes})
    theirs = transformers.Qwen3ForCausalLM(config).eval()
    ours = random_model(DecoderConfig.from_dict(config.to_dict()), seed)
    theirs.load_state_dict(ours.state_dict())
    return theirs, ours


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_attention_heads": 6, "num_key_value_heads": 1, "head_dim": 8},
        {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 128, "num_hidden_layers": 3},
        {"tie_word_embeddings": True, "rms_norm_eps": 1e-3},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0}},
    ],
)
@torch.inference_mode()
def test_logits_are_those_of_transformers(changes):
    theirs, ours = oracle(seed=len(changes), **changes)
    token_ids = torch.randint(61, (2, 37), generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(ours(token_ids), theirs(token_ids).logits, rtol=1e-5, atol=1e-5)
    positions = torch.arange(1000, 1037)
    shifted = theirs(token_ids, position_ids=positions[None]).logits
    torch.testing.assert_close(ours(token_ids, positions), shifted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_greedy_text_is_that_of_transformers(seed):
    theirs, ours = oracle(seed)
    prompt = [7, 3, 42, 11, 5][: seed + 1]
    options = {"max_new_tokens": 40, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    expected = theirs.generate(torch.tensor([prompt]), **options)[0, len(prompt) :]
    assert generate(ours, prompt, 40) == expected.tolist()


def test_bf16_is_that_of_transformers():
    """Rotation angles must not be rounded: at positions above 256 bf16 would merge neighbours."""
    theirs, ours = oracle()
    token_ids = torch.arange(40)[None] % 61
    positions = torch.arange(3000, 3040)[None]
    with torch.inference_mode():
        expected = theirs.bfloat16()(token_ids, position_ids=positions).logits
        torch.testing.assert_close(ours.bfloat16()(token_ids, positions), expected, rtol=0.1, atol=0.3)


@torch.inference_mode()
def test_flat_tokens_of_several_sequences():
    """An engine's way: all tokens in one row, each sequence attending to its own keys."""
    model = random_model()
    lengths = [5, 1, 9]
    sequences = [torch.arange(length) * 7 % 61 for length in lengths]
    ends = [0, *itertools.accumulate(lengths)]
    layers = []

    def attend(layer, query, key, value):
        assert query.shape == (15, 4, 16)
        assert key.shape == value.shape == (15, 2, 16)
        layers.append(layer)
        parts = [slice(start, end) for start, end in itertools.pairwise(ends)]
        return torch.cat([causal_attention(layer, query[part], key[part], value[part]) for part in parts])

    positions = torch.cat([torch.arange(length) for length in lengths])  # (num_tokens,)
    hidden = model.hidden(torch.cat(sequences), positions, attend)
    assert layers == [0, 1]
    last = model.logits(hidden[torch.tensor(ends[1:]) - 1])  # (3, vocab_size)
    expected = torch.stack([model(sequence)[-1] for sequence in sequences])
    torch.testing.assert_close(last, expected, rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def test_the_paged_kernel_attends():
    """Two requests in one mixed step, one prefilling and one decoding, with K and V in blocks of a shared pool.

    Each token is a sequence of its own to the kernel: it reads its request's blocks up to itself.
    """
    np = pytest.importorskip("numpy", reason="NumPy, which the kernel is in, is not installed")
    from servelab.kernels.reference import paged_attention

    config = DecoderConfig(61, 32, 48, 2, num_attention_heads=4, num_key_value_heads=2, head_dim=128)
    model = random_model(config)
    block_size, tables = 4, np.array([[5, 2, 7], [0, 6, 1]], dtype=np.int32)
    keys, values = np.zeros((2, config.num_hidden_layers, 8, 2, block_size, 128), dtype=np.float32)

    def step(tokens):
        """`tokens`: (request, position, token id) of each. Returns logits (num_tokens, vocab_size)."""
        requests, positions, token_ids = (np.array(column) for column in zip(*tokens, strict=True))
        blocks = tables[requests, positions // block_size]

        def attend(layer, query, key, value):
            keys[layer][blocks, :, positions % block_size] = key
            values[layer][blocks, :, positions % block_size] = value
            seq_lens = (positions + 1).astype(np.int32)
            return torch.from_numpy(
                paged_attention(query.numpy(), keys[layer], values[layer], tables[requests], seq_lens)
            )

        return model(torch.from_numpy(token_ids), torch.from_numpy(positions), attend)

    first, second = list(range(7, 18)), list(range(30, 40))
    step([(1, position, token) for position, token in enumerate(second[:9])])
    mixed = step([(1, 9, second[9]), *((0, position, token) for position, token in enumerate(first))])
    torch.testing.assert_close(mixed[0], model(torch.tensor(second))[-1], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(mixed[1:], model(torch.tensor(first)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("chunks", [[12], [5, 7], [1] * 12, [3, 1, 6, 2]])
@pytest.mark.parametrize("batch", [(), (3,)])
@torch.inference_mode()
def test_the_cache_changes_nothing(chunks, batch):
    model = random_model()
    token_ids = torch.randint(61, (*batch, 12), generator=torch.Generator().manual_seed(1))
    cache = KVCache(TINY, 12, batch)
    outputs = []
    for chunk in chunks:
        start = cache.num_tokens
        positions = torch.arange(start, start + chunk)
        outputs.append(model(token_ids[..., start : start + chunk], positions, cache.attend))
    torch.testing.assert_close(torch.cat(outputs, dim=-2), model(token_ids), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="would hold 13 tokens; it has room for 12"):
        model(token_ids[..., :1], torch.tensor([12]), cache.attend)
    assert cache.num_tokens == 12


def test_gradients_reach_every_parameter():
    model = random_model().requires_grad_(True)
    model(torch.arange(10)[None]).square().mean().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.parameters())


def test_sampling_repeats_with_its_seed_and_stops():
    model = random_model()
    texts = {seed: generate(model, [1, 2], 30, temperature=2.0, seed=seed) for seed in range(3)}
    assert len({tuple(text) for text in texts.values()}) == 3
    assert generate(model, [1, 2], 30, temperature=2.0, seed=1) == texts[1]
    stop = texts[1][4]
    assert generate(model, [1, 2], 30, 2.0, 1, stop_tokens=[stop]) == texts[1][: texts[1].index(stop) + 1]


def test_a_sampled_token_depends_on_its_position_alone():
    """What was recomputed after a preemption goes on as it would have."""
    model = random_model()
    text = generate(model, [1, 2], 20, temperature=1.0, seed=5)
    assert generate(model, [1, 2, *text[:8]], 12, temperature=1.0, seed=5) == text[8:]
    assert len({draw_at(10, 5), draw_at(11, 5), draw_at(10, 6), draw_at(10, 5, sample=1)}) == 4


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_probabilities(temperature):
    logits = torch.tensor([0.0, 1.0, 1.5])
    counts = [0, 0, 0]
    for position in range(6000):
        counts[sample(logits, temperature, draw_at(position, 0))] += 1
    probabilities = (logits / temperature).softmax(-1)
    for count, probability in zip(counts, probabilities.tolist(), strict=True):
        assert count / 6000 == pytest.approx(probability, abs=0.02)
    assert sample(logits, temperature, 0.0) == 0
    assert sample(logits, temperature, 1 - 2**-53) == 2


def test_what_has_no_probability_is_never_drawn():
    logits = torch.tensor([-1e4, 0.0, -1e4])
    assert {sample(logits, 1.0, draw) for draw in (0.0, 0.5, 1 - 2**-53)} == {1}


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_logits_that_are_not_finite(bad):
    with pytest.raises(FloatingPointError, match="1 of 3 logits are NaN or infinite"):
        check_logits(torch.tensor([1.0, bad, 2.0]))
    model = random_model()
    model.model.layers[1].mlp.down_proj.weight[0, 0] = bad
    with pytest.raises(FloatingPointError):
        generate(model, [1, 2], 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], 3), "prompt_ids is empty"),
        (([61], 3), r"prompt_ids\[0\] is 61; it must be an integer from 0 to 60"),
        (([1, -1], 3), r"prompt_ids\[1\] is -1"),
        (([1], 0), "max_tokens is 0"),
        (([1], 3, -0.5), "temperature is -0.5"),
        (([1, 2], 32_768), "need 32769 positions; the model has 32768"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        generate(random_model(), *arguments)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_key_value_heads": 3}, "num_attention_heads is 4; it must be a multiple of num_key_value_heads, 3"),
        ({"head_dim": 15}, "head_dim is 15; it must be even"),
        ({"hidden_size": 0}, "hidden_size is 0"),
        ({"rope_theta": float("nan")}, "rope_theta is nan"),
        ({"model_type": "llama"}, "model_type is 'llama'; it must be 'qwen3'"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "rope_type is 'yarn'"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types is"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantization_config is"),
    ],
)
def test_configurations_that_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        DecoderConfig.from_dict({**TINY.to_dict(), **changes})


def test_a_configuration_must_state_its_sizes():
    values = TINY.to_dict()
    assert DecoderConfig.from_dict(values) == TINY
    del values["head_dim"]
    with pytest.raises(ValueError, match="head_dim is missing"):
        DecoderConfig.from_dict(values)
