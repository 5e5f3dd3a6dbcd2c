"""What the tests of `TorchExecutor` share: tiny models, texts whose margins are known, a clock that does not wait."""

import random
from functools import cache

import torch

from servelab.engine import Request
from servelab.model.config import DecoderConfig
from servelab.model.decoder import Decoder
from servelab.model.generate import generate

TINY = DecoderConfig(61, 32, 48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=32)
KERNEL = DecoderConfig(61, 32, 48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=128)
MARGIN = 1e-3  # logits of these models are of size 1 to 10; their rounding in float32 is below 1e-5


@cache
def random_model(config=TINY, seed=0):
    torch.manual_seed(seed)
    model = Decoder(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=1.0 if parameter.ndim == 1 else 0.0, std=0.3)
    return model.requires_grad_(False)


@cache
def greedy(model, prompt, max_tokens):
    """What `generate` says, and the smallest lead of a best logit on the way."""
    text = generate(model, prompt, max_tokens)
    with torch.inference_mode():
        logits = model(torch.tensor([*prompt, *text[:-1]]))[len(prompt) - 1 :]  # (max_tokens, vocab_size)
    best, second = logits.topk(2).values.T
    return text, float((best - second).min())


def make_requests(model, count, seed, max_prompt=40, max_tokens=16, **options):
    """Requests with clear greedy texts; about half of the prompts share a beginning. Returns them and the texts."""
    rng = random.Random(seed)
    beginning = tuple(rng.randrange(61) for _ in range(max_prompt // 2))
    requests, texts = [], {}
    while len(requests) < count:
        prompt = beginning * rng.randrange(2) + tuple(
            rng.randrange(61) for _ in range(rng.randrange(1, max_prompt // 2))
        )
        length = rng.randrange(1, max_tokens + 1)
        text, margin = greedy(model, prompt, length)
        if margin > MARGIN:
            request_id = f"r{len(requests)}"
            requests.append(Request(request_id, rng.randrange(4) * 0.5, list(prompt), length, **options))
            texts[request_id] = text
    return requests, texts


class StepClock:
    """A clock of 1/16 s a look; waiting moves it on."""

    def __init__(self):
        self.time_s = 100.0

    def __call__(self):
        self.time_s += 1 / 16
        return self.time_s

    def sleep(self, seconds):
        assert seconds > 0
        self.time_s += seconds
