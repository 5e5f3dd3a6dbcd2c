"""LRU over the blocks of a KV pool, for requests served one after the other (section 8.3.4, exercise 8-4)."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from servelab import memory
from servelab.checks import require_int


class BlockLRU:
    """A pool of `num_blocks` blocks of `block_size` tokens, in which texts stay until their blocks are needed.

    Only full blocks can be found again, and the last token of a request is always computed, since its logits are
    needed. Of one request the last block goes first: without the blocks before it, a later one is of no use. The
    order is vLLM's. This counts hits only; `servelab.engine` has requests that run side by side.
    """

    def __init__(self, num_blocks: int, block_size: int = 16):
        require_int("num_blocks", num_blocks, minimum=1)
        require_int("block_size", block_size, minimum=1)
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._ids: dict[tuple, int] = {}  # (id of the block before, tokens) -> id, also once evicted
        self._cached: dict[int, None] = {}  # ids of full blocks in the pool, the next to go first

    @property
    def num_cached(self) -> int:
        """Full blocks that a later request can find."""
        return len(self._cached)

    def serve(self, tokens: Sequence) -> int:
        """Run a request with this input and one output token; returns the input tokens whose KV was found.

        Raises `ValueError` if the text has no token or more than the pool has room for; the pool is unchanged then.
        """
        require_int("len(tokens)", len(tokens), minimum=1, maximum=self.num_blocks * self.block_size)
        block_ids = self._block_ids(tokens)
        hits = 0
        for block_id in block_ids[: (len(tokens) - 1) // self.block_size]:
            if block_id not in self._cached:
                break
            hits += 1
        # While the request runs it holds all its blocks; those it found are out of reach of eviction.
        for block_id in block_ids[:hits]:
            del self._cached[block_id]
        spare = self.num_blocks - memory.num_blocks(len(tokens), self.block_size)
        for block_id in list(self._cached)[: max(0, len(self._cached) - spare)]:
            del self._cached[block_id]
        for block_id in reversed(block_ids):
            self._cached.pop(block_id, None)
            self._cached[block_id] = None
        return hits * self.block_size

    def _block_ids(self, tokens: Sequence) -> list[int]:
        """One id for each full block; equal ids mean equal text from the start to the end of the block."""
        block_ids = []
        for start in range(0, len(tokens) - self.block_size + 1, self.block_size):
            parent = block_ids[-1] if block_ids else None
            key = (parent, tuple(tokens[start : start + self.block_size]))
            block_ids.append(self._ids.setdefault(key, len(self._ids)))
        return block_ids


def replay_turns(
    turns: Iterable[Sequence], num_blocks: int, block_size: int = 16, load_requests: int = 0, load_tokens: int = 1
) -> list[int]:
    """Hit tokens of each turn of a conversation when others use the same pool.

    Between two turns, `load_requests` texts of `load_tokens` tokens are served that have nothing in common with
    anything. The recorded load (record "agent-conditions") is 3 of 4000.
    """
    require_int("load_requests", load_requests)
    require_int("load_tokens", load_tokens, minimum=1)
    pool = BlockLRU(num_blocks, block_size)
    hit_tokens = []
    for turn, tokens in enumerate(turns):
        for request in range(load_requests if turn else 0):
            pool.serve([("load", turn, request)] * load_tokens)  # a token that no other text has
        hit_tokens.append(pool.serve(tokens))
    return hit_tokens


class HitRatios(NamedTuple):
    """Shares of all input tokens."""

    common: float  # in common with the turn before: what an unlimited cache of single tokens could reuse
    actual: float  # found in the cache


def hit_ratios(input_tokens: Sequence[int], common_tokens: Sequence[int], hit_tokens: Sequence[int]) -> HitRatios:
    """What turns have in common against what was found; each argument has one entry a turn.

    They differ by partly filled blocks and by what was evicted. Ratio of sums: long turns count for more.
    """
    if not len(input_tokens) == len(common_tokens) == len(hit_tokens) > 0:
        lengths = f"{len(input_tokens)}, {len(common_tokens)} and {len(hit_tokens)}"
        raise ValueError(f"input_tokens, common_tokens and hit_tokens have {lengths} entries; it must be one a turn")
    for tokens, common, hits in zip(input_tokens, common_tokens, hit_tokens, strict=True):
        require_int("input_tokens", tokens, minimum=1)
        require_int("common_tokens", common, maximum=tokens)
        require_int("hit_tokens", hits, maximum=tokens)
    total = sum(input_tokens)
    return HitRatios(sum(common_tokens) / total, sum(hit_tokens) / total)
