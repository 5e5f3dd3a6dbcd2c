"""Which blocks hold the KV of which text, so that an equal beginning need not be computed again (section 8.3.2).

Only full blocks can be found. A block's key depends on all tokens from the start of the text to the end of the block,
because the K and V of a token depend on everything before it, and on what else changes them: the LoRA adapter,
and a salt that keeps tenants apart. Behaviour follows vLLM V1 (0.32.0).
"""

from array import array
from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import islice


def extend_keys(keys: list[bytes], tokens: Sequence[int], block_size: int, adapter=None, salt=None) -> None:
    """Append to `keys` those of the full blocks of `tokens` that it lacks: SHA-256 of parent key, tokens and extras.

    Two texts have the same key for block i only if they agree in blocks 0 to i, in the adapter and in the salt.
    """
    extras = repr((adapter, salt)).encode()
    for start in range(len(keys) * block_size, len(tokens) // block_size * block_size, block_size):
        parent = keys[-1] if keys else bytes(32)
        keys.append(sha256(parent + array("q", tokens[start : start + block_size]).tobytes() + extras).digest())


class PrefixCache:
    """Full blocks by key. A block stays here when nobody holds it, until it is handed out for other content.

    Several blocks may carry the same key (equal requests that ran side by side): tables are never changed to merge
    them. `find` returns the one added first; when that is forgotten, the next takes over.
    """

    def __init__(self):
        self._key_of: dict[int, bytes] = {}
        self._blocks_of: dict[bytes, dict[int, None]] = {}  # the inner dict is an ordered set

    def __len__(self) -> int:
        return len(self._key_of)

    def __iter__(self):
        return iter(self._key_of)

    def __contains__(self, block_id: int) -> bool:
        return block_id in self._key_of

    def members(self, block_ids: Iterable[int]) -> set[int]:
        """Those of `block_ids` that are here."""
        return self._key_of.keys() & block_ids

    def add(self, block_id: int, key: bytes) -> None:
        """Make `block_id`, which holds the text of `key`, findable."""
        if self._key_of.setdefault(block_id, key) != key:
            raise ValueError(f"block_id is {block_id}, which the cache holds under another key")
        self._blocks_of.setdefault(key, {})[block_id] = None

    def forget(self, block_id: int) -> None:
        """The content of `block_id` is about to be lost. Does nothing if the block is not here."""
        key = self._key_of.pop(block_id, None)
        if key is None:
            return
        blocks = self._blocks_of[key]
        del blocks[block_id]
        if not blocks:
            del self._blocks_of[key]

    def find(self, keys: Sequence[bytes], max_blocks: int) -> list[int]:
        """Blocks of the longest run of `keys`, from the first on, that are here; at most `max_blocks`."""
        found = []
        for key in islice(keys, max_blocks):
            blocks = self._blocks_of.get(key)
            if blocks is None:
                break
            found.append(next(iter(blocks)))
        return found

    def check_integrity(self) -> None:
        """Raise `RuntimeError` unless both directions of the map agree."""
        pairs = {(block_id, key) for key, blocks in self._blocks_of.items() for block_id in blocks}
        if pairs != set(self._key_of.items()) or not all(self._blocks_of.values()):
            raise RuntimeError("the prefix cache's two maps disagree")
