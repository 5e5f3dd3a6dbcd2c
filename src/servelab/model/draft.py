"""Drafts of a small model for the requests of an engine (section 8.5.3): a `servelab.engine.Drafter`."""

import torch

from servelab.checks import require_int
from servelab.engine import Request
from servelab.model.decoder import Decoder
from servelab.model.generate import KVCache, draw_at, sample


class DraftModelProposer:
    """Lets `model` go on for up to `num_speculative_tokens` tokens; it must have the vocabulary of the target.

    It keeps a KV cache of its own for each request: what the target rejected is taken back at the next proposal, what
    the target decided is fed. A request with a temperature is drafted with the numbers that the target will draw with,
    so that two models of like mind draw like tokens.
    """

    def __init__(self, model: Decoder, num_speculative_tokens: int = 4):
        require_int("num_speculative_tokens", num_speculative_tokens, minimum=1)
        self.model = model
        self.num_speculative_tokens = num_speculative_tokens
        self._caches: dict[str, KVCache] = {}
        self._fed: dict[str, list[int]] = {}  # by request id: the tokens in its cache, drafted ones included

    def forget(self, request_id: str) -> None:
        self._caches.pop(request_id, None)
        self._fed.pop(request_id, None)

    @torch.inference_mode()
    def propose(self, request: Request) -> list[int]:
        """A draft, no longer than its output may still become. Raises `FloatingPointError` on logits that are none."""
        wanted = request.num_prompt_tokens + request.max_tokens - request.num_tokens - 1  # the target adds one itself
        new = self._roll_back(request)
        draft: list[int] = []
        while len(draft) < min(wanted, self.num_speculative_tokens):
            logits = self._feed(request.id, new)
            draw = draw_at(len(request.token_ids) + len(draft), request.seed, request.sample)
            new = [sample(logits, request.temperature, draw)]
            draft += new
        return draft

    def _roll_back(self, request: Request) -> list[int]:
        """Keep of its cache what agrees with its text, but for the last token; returns the tokens to feed."""
        model, text = self.model, request.token_ids
        if request.id not in self._caches:
            room = request.max_written_tokens
            self._caches[request.id] = KVCache(model.config, room, dtype=model.dtype, device=model.device)
            self._fed[request.id] = []
        fed = self._fed[request.id]
        agree = next((at for at, (ours, theirs) in enumerate(zip(fed, text, strict=False)) if ours != theirs), len(fed))
        agree = min(agree, len(text) - 1)
        del fed[agree:]
        self._caches[request.id].truncate(agree)
        return text[agree:]

    def _feed(self, request_id: str, new: list[int]) -> torch.Tensor:
        """Run the model on `new` tokens. Returns the logits (vocab_size,) of what comes behind them."""
        cache, fed, device = self._caches[request_id], self._fed[request_id], self.model.device
        positions = torch.arange(len(fed), len(fed) + len(new), device=device)
        hidden = self.model.hidden(torch.tensor(new, device=device), positions, cache.attend)
        fed += new
        return self.model.logits(hidden[-1])
