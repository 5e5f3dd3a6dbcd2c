"""Paged KV cache, bookkeeping side: a pool of equal blocks and one table a sequence (section 8.3.1).

A block is room for the K and V of `block_size` tokens in all layers. A sequence's table maps its logical
blocks 0, 1, 2, ... to physical blocks, which may lie anywhere. Several tables may reference one block; it
returns to the pool with its last reference. Source: Kwon et al. 2023, PagedAttention, arXiv:2309.06180.
"""

from collections import Counter, deque
from collections.abc import Iterable

from servelab.checks import require_int


class OutOfBlocks(RuntimeError):
    """The pool has fewer free blocks than were asked for. Nothing has changed."""


class BlockPool:
    """`num_blocks` physical blocks of `block_size` tokens; `free_queue` holds those nobody references."""

    def __init__(self, num_blocks: int, block_size: int):
        require_int("num_blocks", num_blocks, minimum=1)
        require_int("block_size", block_size, minimum=1)
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.ref_counts = [0] * num_blocks
        self.free_queue = deque(range(num_blocks))

    @property
    def num_free(self) -> int:
        return len(self.free_queue)

    def allocate(self, count: int = 1) -> list[int]:
        """Take `count` free blocks, each with one reference.

        Raises `OutOfBlocks` if there are fewer.
        """
        require_int("count", count)
        if count > self.num_free:
            raise OutOfBlocks(f"{count} blocks asked for, {self.num_free} of {self.num_blocks} free")
        block_ids = [self.free_queue.popleft() for _ in range(count)]
        for block_id in block_ids:
            self.ref_counts[block_id] = 1
        return block_ids

    def share(self, block_ids: Iterable[int]) -> None:
        """Add one reference to each of `block_ids`, which must be in use."""
        block_ids = list(block_ids)
        self._require_references(Counter(set(block_ids)))  # one is enough, however many are added
        for block_id in block_ids:
            self.ref_counts[block_id] += 1

    def release(self, block_ids: Iterable[int]) -> None:
        """Drop one reference to each of `block_ids`; a block without references is free again.

        Free blocks are reused last in, first out, and of one call the last first: what was just
        used is likeliest to lie in a cache of the processor, and a tail is wanted less than a head.
        """
        block_ids = list(block_ids)
        self._require_references(Counter(block_ids))
        for block_id in block_ids:
            self.ref_counts[block_id] -= 1
        freed = [block_id for block_id in dict.fromkeys(block_ids) if self.ref_counts[block_id] == 0]
        self.free_queue.extendleft(freed)  # the last of them comes to stand first

    def _require_references(self, needed: Counter) -> None:
        for block_id, count in needed.items():
            require_int("block_id", block_id, maximum=self.num_blocks - 1)
            if self.ref_counts[block_id] < count:
                held = self.ref_counts[block_id]
                raise ValueError(f"block_id is {block_id}, with {held} references; it must have {count}")

    def check_integrity(self, tables: Iterable["BlockTable"]) -> None:
        """Raise `RuntimeError` unless `tables`, all of this pool's, account for each reference and block."""
        references = Counter(block_id for table in tables for block_id in table.block_ids)
        free = Counter(self.free_queue)
        for block_id, count in enumerate(self.ref_counts):
            if count != references[block_id]:
                raise RuntimeError(
                    f"block {block_id} counts {count} references, the tables hold {references[block_id]}"
                )
            if free[block_id] != (count == 0):
                raise RuntimeError(
                    f"block {block_id} has {count} references and is {free[block_id]} times in the free queue"
                )


class BlockTable:
    """One sequence's map from logical to physical blocks.

    The token at `position` lies in block `block_ids[position // block_size]`.
    """

    def __init__(self, pool: BlockPool):
        self.pool = pool
        self.block_ids: list[int] = []
        self.num_tokens = 0

    @property
    def unused_slots(self) -> int:
        return len(self.block_ids) * self.pool.block_size - self.num_tokens

    def append(self, num_tokens: int = 1) -> list[int]:
        """Make room for `num_tokens` more tokens; returns the new blocks.

        Raises `OutOfBlocks` and changes nothing if the pool has too few.
        """
        require_int("num_tokens", num_tokens)
        missing = num_tokens - self.unused_slots
        num_blocks = max(0, -(-missing // self.pool.block_size))
        new_blocks = self.pool.allocate(num_blocks)
        self.block_ids += new_blocks
        self.num_tokens += num_tokens
        return new_blocks

    def share(self, num_tokens: int) -> "BlockTable":
        """A new table that references this one's first `num_tokens` tokens, which must fill whole blocks.

        Only full blocks are shared: nobody writes them any more, so no table can disturb another.
        """
        require_int("num_tokens", num_tokens, maximum=self.num_tokens)
        if num_tokens % self.pool.block_size:
            raise ValueError(
                f"num_tokens is {num_tokens}; it must be a multiple of the block size {self.pool.block_size}"
            )
        other = BlockTable(self.pool)
        other.block_ids = self.block_ids[: num_tokens // self.pool.block_size]
        other.num_tokens = num_tokens
        self.pool.share(other.block_ids)
        return other

    def release(self) -> None:
        """Give all references back; the table is empty afterwards and may grow again."""
        self.pool.release(self.block_ids)
        self.block_ids = []
        self.num_tokens = 0

    def slot(self, position: int) -> tuple[int, int]:
        """(physical block, offset in it) of the token at `position`."""
        require_int("position", position, maximum=self.num_tokens - 1)
        return self.block_ids[position // self.pool.block_size], position % self.pool.block_size
