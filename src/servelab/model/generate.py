"""One prompt at a time, without an engine: a simple KV cache, and greedy or seeded sampling."""

import math
import random
from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from servelab.checks import require_int, require_number
from servelab.model.config import DecoderConfig
from servelab.model.decoder import Decoder, causal_attention


class KVCache:
    """Keys and values of the tokens so far, in one piece for each layer, with room for `max_tokens`.

    Its `attend` is what `Decoder` takes: it keeps the new tokens' keys and values and attends to all so far. All
    sequences of a batch have the same length. Positions are the caller's to give: the new tokens start at
    `num_tokens`.
    """

    def __init__(
        self,
        config: DecoderConfig,
        max_tokens: int,
        batch: Sequence[int] = (),
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ):
        shape = (2, config.num_hidden_layers, *batch, max_tokens, config.num_key_value_heads, config.head_dim)
        self.keys, self.values = torch.empty(shape, dtype=dtype, device=device)  # (layers, *batch, tokens, heads, dim)
        self.max_tokens = max_tokens
        self._lengths = [0] * config.num_hidden_layers

    @property
    def num_tokens(self) -> int:
        """Tokens that every layer holds."""
        return self._lengths[-1]

    def truncate(self, num_tokens: int) -> None:
        """Keep the first `num_tokens` tokens."""
        require_int("num_tokens", num_tokens, maximum=self.num_tokens)
        self._lengths = [num_tokens] * len(self._lengths)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Shapes as in `causal_attention`, the batch being that of the cache; raises `ValueError` when it is full."""
        start = self._lengths[layer]
        end = start + key.shape[-3]
        if end > self.max_tokens:
            raise ValueError(f"the cache would hold {end} tokens; it has room for {self.max_tokens}")
        keys, values = self.keys[layer], self.values[layer]  # (*batch, max_tokens, kv heads, head_dim)
        keys[..., start:end, :, :] = key
        values[..., start:end, :, :] = value
        self._lengths[layer] = end
        return causal_attention(layer, query, keys[..., :end, :, :], values[..., :end, :, :])


def check_logits(logits: Tensor) -> None:
    """Raise `FloatingPointError` unless all are finite: sampling from NaN would yield tokens that mean nothing."""
    if not bool(torch.isfinite(logits).all()):
        num_bad = int((~torch.isfinite(logits)).sum())
        raise FloatingPointError(
            f"{num_bad} of {logits.numel()} logits are NaN or infinite: the weights are damaged, or the number "
            f"format of the cache overflowed"
        )


def sample(logits: Tensor, temperature: float = 0.0, draw: float = 0.0) -> int:
    """The next token from `logits` (vocab_size,): the most likely one at temperature 0, else by `draw` in [0, 1)."""
    check_logits(logits)
    if temperature == 0:
        return int(logits.argmax())
    # In float64 on the CPU, so that the same draw means the same token on every device.
    probabilities = (logits.double().cpu() / temperature).softmax(-1)  # (vocab_size,)
    cumulative = probabilities.cumsum(-1)
    total = float(cumulative[-1])  # rounding can leave it a little off 1
    # Strictly below the total, whatever is rounded: past it there is no token.
    value = min(draw * total, math.nextafter(total, 0.0))
    return int(torch.searchsorted(cumulative, value, right=True))


def draw_at(position: int, seed: int, sample: int = 0) -> float:
    """A number in [0, 1) that depends on nothing but the arguments.

    So a request's text does not change with the other requests of its batch, with preemption or with the order of
    work: the token at `position` (0 is the first of the prompt) of sample `sample` is always drawn with the same
    number.
    """
    return random.Random(f"{seed}/{sample}/{position}").random()


@torch.inference_mode()
def generate(
    model: Decoder,
    prompt_ids: Sequence[int],
    max_tokens: int,
    temperature: float = 0.0,
    seed: int = 0,
    stop_tokens: Collection[int] = (),
    sample_index: int = 0,
) -> list[int]:
    """Up to `max_tokens` tokens that continue the prompt; the last is the first of `stop_tokens`, if one came.

    Greedy at `temperature` 0, else drawn: equal seeds give equal text, and each `sample_index` another. Raises
    `ValueError` on a bad argument and `FloatingPointError` if the model's logits are not finite.
    """
    require_int("max_tokens", max_tokens, minimum=1)
    require_number("temperature", temperature)
    if len(prompt_ids) == 0:
        raise ValueError("prompt_ids is empty; it must have at least one token")
    for position, token_id in enumerate(prompt_ids):
        require_int(f"prompt_ids[{position}]", token_id, maximum=model.config.vocab_size - 1)
    room = len(prompt_ids) + max_tokens - 1  # the last token is never fed back
    if room > model.config.max_position_embeddings:
        raise ValueError(
            f"prompt and max_tokens need {room} positions; the model has {model.config.max_position_embeddings}"
        )
    cache = KVCache(model.config, room, dtype=model.dtype, device=model.device)
    output, new = [], list(prompt_ids)
    while True:
        start = cache.num_tokens
        token_ids = torch.tensor(new, device=model.device)  # (new,)
        positions = torch.arange(start, start + len(new), device=model.device)  # (new,)
        hidden = model.hidden(token_ids, positions, cache.attend)  # (new, hidden_size)
        logits = model.logits(hidden[-1])  # (vocab_size,)
        output.append(sample(logits, temperature, draw_at(cache.num_tokens, seed, sample_index)))
        if len(output) == max_tokens or output[-1] in stop_tokens:
            return output
        new = output[-1:]
