"""Drafts for the requests of an engine (section 8.5.3): `servelab.engine.Drafter` by look-up. Names as in vLLM V1."""

from servelab.checks import require_int
from servelab.engine import Request
from servelab.speculation.ngram import NgramDrafter


class NgramProposer:
    """An `NgramDrafter` for each request: up to `num_speculative_tokens` tokens that followed an equal n-gram before.

    It costs a few dictionary reads, and proposes nothing where the text does not repeat itself.
    """

    def __init__(self, num_speculative_tokens: int = 4, min_n: int = 1, max_n: int = 3):
        require_int("num_speculative_tokens", num_speculative_tokens, minimum=1)
        self.num_speculative_tokens = num_speculative_tokens
        self._new_drafter = lambda: NgramDrafter(min_n, max_n)
        self._new_drafter()  # refuses a bad n
        self._drafters: dict[str, NgramDrafter] = {}

    def propose(self, request: Request) -> list[int]:
        if request.id not in self._drafters:
            self._drafters[request.id] = self._new_drafter()
        drafter = self._drafters[request.id]
        drafter.extend(request.token_ids[len(drafter.tokens) :])
        return drafter.draft(self.num_speculative_tokens)

    def forget(self, request_id: str) -> None:
        self._drafters.pop(request_id, None)
