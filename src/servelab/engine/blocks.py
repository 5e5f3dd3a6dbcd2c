"""Paged KV cache, bookkeeping side: a pool of equal blocks and one table a sequence (sections 8.3.1 and 8.3.2).

A block is room for the K and V of `block_size` tokens in all layers. A sequence's table maps its logical
blocks 0, 1, 2, ... to physical blocks, which may lie anywhere. Several tables may reference one block; it
returns to the pool with its last reference. Sources: Kwon et al. 2023, PagedAttention, arXiv:2309.06180 (tables,
forks, copy-on-write); vLLM V1 0.32.0 (order of reuse, cached free blocks).
"""

from collections import Counter
from collections.abc import Iterable

from servelab.checks import require_int
from servelab.engine.free_queue import FreeQueue
from servelab.engine.prefix import PrefixCache


class OutOfBlocks(RuntimeError):
    """The pool has fewer free blocks than were asked for. Nothing has changed."""


class BlockPool:
    """`num_blocks` physical blocks of `block_size` tokens; `free_queue` holds those nobody references.

    A free block may still be in `prefix_cache`: its content is there until the block is handed out again.
    """

    def __init__(self, num_blocks: int, block_size: int):
        require_int("num_blocks", num_blocks, minimum=1)
        require_int("block_size", block_size, minimum=1)
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.ref_counts = [0] * num_blocks
        self.free_queue = FreeQueue(range(num_blocks))
        self.prefix_cache = PrefixCache()
        self.step_in_flight = False
        self._held: list[list[int]] = []  # released while a step was in flight

    @property
    def num_free(self) -> int:
        return len(self.free_queue)

    def allocate(self, count: int = 1) -> list[int]:
        """Take `count` free blocks, each with one reference; what they held can no longer be found.

        Raises `OutOfBlocks` if there are fewer.
        """
        require_int("count", count)
        if count > self.num_free:
            raise OutOfBlocks(f"{count} blocks asked for, {self.num_free} of {self.num_blocks} free")
        block_ids = [self.free_queue.popleft() for _ in range(count)]
        for block_id in block_ids:
            self.ref_counts[block_id] = 1
            self.prefix_cache.forget(block_id)
        return block_ids

    def share(self, block_ids: Iterable[int]) -> None:
        """Add one reference to each of `block_ids`, which must be in use."""
        block_ids = list(block_ids)
        self._require_references(Counter(set(block_ids)))  # one is enough, however many are added
        for block_id in block_ids:
            self.ref_counts[block_id] += 1

    def reuse(self, block_ids: Iterable[int]) -> None:
        """Add one reference to each of `block_ids`, found in the prefix cache, in use or free."""
        block_ids = list(block_ids)
        for block_id in block_ids:
            if block_id not in self.prefix_cache:
                raise ValueError(f"block_id is {block_id}; it must be in the prefix cache")
        for block_id in block_ids:
            if self.ref_counts[block_id] == 0:
                self.free_queue.remove(block_id)
            self.ref_counts[block_id] += 1

    def release(self, block_ids: Iterable[int]) -> None:
        """Drop one reference to each of `block_ids`; a block without references is free again.

        Free blocks are reused last in, first out, and of one call the last first: what was just
        used is likeliest to lie in a cache of the processor, and a tail is wanted less than a head.
        Blocks of the prefix cache go to the other end of the queue, so that they last longest there.
        While a step is in flight nothing is dropped yet: its kernels may still read or write the blocks.
        """
        block_ids = list(block_ids)
        self._require_references(Counter(block_ids))
        if self.step_in_flight:
            self._held.append(block_ids)
            return
        for block_id in block_ids:
            self.ref_counts[block_id] -= 1
        freed = [block_id for block_id in dict.fromkeys(block_ids) if self.ref_counts[block_id] == 0]
        cached = self.prefix_cache.members(freed)
        self.free_queue.extendleft([block_id for block_id in freed if block_id not in cached] if cached else freed)
        self.free_queue.extend([block_id for block_id in reversed(freed) if block_id in cached])

    def begin_step(self) -> None:
        """A step starts on the accelerator: from now on `release` holds blocks back until `end_step`."""
        assert not self.step_in_flight, "one step at a time"
        self.step_in_flight = True

    def end_step(self) -> None:
        """The step has finished: drop the references that were released meanwhile."""
        assert self.step_in_flight, "no step is in flight"
        self.step_in_flight = False
        held, self._held = self._held, []
        for block_ids in held:
            self.release(block_ids)

    def _require_references(self, needed: Counter) -> None:
        held = Counter(block_id for block_ids in self._held for block_id in block_ids)
        for block_id, count in needed.items():
            if type(block_id) is not int or not 0 <= block_id < self.num_blocks:  # nearly always a plain int
                require_int("block_id", block_id, maximum=self.num_blocks - 1)
            references = self.ref_counts[block_id] - (held[block_id] if held else 0)
            if references < count:
                raise ValueError(f"block_id is {block_id}, with {references} references; it must have {count}")

    def check_integrity(self, tables: Iterable["BlockTable"]) -> None:
        """Raise `RuntimeError` unless `tables`, all of this pool's, account for each reference and block.

        A block that several tables reference must be full, or shared by a fork: then all of them end in it.
        """
        tables = list(tables)
        references = Counter(block_id for table in tables for block_id in table.block_ids)
        references.update(block_id for block_ids in self._held for block_id in block_ids)
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
        for table in tables:
            if len(table.block_ids) != -(-table.num_tokens // self.block_size):
                raise RuntimeError(f"{table.num_tokens} tokens lie in {len(table.block_ids)} blocks")
            if table.unused_slots and table.block_ids[-1] in self.prefix_cache:
                raise RuntimeError(f"block {table.block_ids[-1]} can be found, but is not full")
        self.prefix_cache.check_integrity()


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

    @property
    def tail_is_shared(self) -> bool:
        """Whether the next token would go into a block that others reference too: `copy_on_write` comes first."""
        return self.unused_slots > 0 and self.pool.ref_counts[self.block_ids[-1]] > 1

    def append(self, num_tokens: int = 1) -> list[int]:
        """Make room for `num_tokens` more tokens; returns the new blocks.

        Raises `OutOfBlocks` and changes nothing if the pool has too few.
        """
        require_int("num_tokens", num_tokens)
        assert num_tokens == 0 or not self.tail_is_shared, "copy_on_write first"
        missing = num_tokens - self.unused_slots
        num_blocks = max(0, -(-missing // self.pool.block_size))
        new_blocks = self.pool.allocate(num_blocks)
        self.block_ids += new_blocks
        self.num_tokens += num_tokens
        return new_blocks

    def fill(self, num_tokens: int) -> bool:
        """`append` if it takes no block: if `num_tokens` more fit into the last one, and no other table has that.

        Most rows of most steps come here, so it checks nothing else.
        """
        if self.num_tokens + num_tokens > len(self.block_ids) * self.pool.block_size:
            return False
        if self.pool.ref_counts[self.block_ids[-1]] > 1:
            return False
        self.num_tokens += num_tokens
        return True

    def blocks_needed(self, num_tokens: int) -> int:
        """Free blocks that `copy_on_write` and then `append(num_tokens)` take."""
        missing = num_tokens - self.unused_slots
        return max(0, -(-missing // self.pool.block_size)) + self.tail_is_shared

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

    def fork(self) -> "BlockTable":
        """A new table that references all blocks of this one, a partly filled last block too.

        Whoever appends first must call `copy_on_write` before, and so must all others but the last.
        """
        other = BlockTable(self.pool)
        self.pool.share(self.block_ids)
        other.block_ids = list(self.block_ids)
        other.num_tokens = self.num_tokens
        return other

    def copy_on_write(self) -> list[tuple[int, int]]:
        """Make the last block private, if it is shared and not full (PagedAttention, section 4.4).

        Returns the copies (source block, destination block) to execute, in order, before anything is written:
        none or one. Raises `OutOfBlocks` and changes nothing if a block is needed and none is free.
        """
        if not self.tail_is_shared:
            return []
        source, (destination,) = self.block_ids[-1], self.pool.allocate(1)
        self.block_ids[-1] = destination
        self.pool.release([source])
        return [(source, destination)]

    def reuse(self, block_ids: list[int]) -> None:
        """Begin this empty table with full blocks found in the prefix cache."""
        assert not self.block_ids, "only an empty table can begin with cached blocks"
        self.pool.reuse(block_ids)
        self.block_ids = list(block_ids)
        self.num_tokens = len(block_ids) * self.pool.block_size

    def truncate(self, num_tokens: int) -> None:
        """Keep the first `num_tokens` tokens, give back the blocks behind them: rejected drafts (section 8.5).

        The block it then ends in will be written again: others must not have it, nor must it be in the prefix cache.
        """
        require_int("num_tokens", num_tokens, maximum=self.num_tokens)
        keep = -(-num_tokens // self.pool.block_size)
        if num_tokens < self.num_tokens and num_tokens % self.pool.block_size:
            tail = self.block_ids[keep - 1]
            if self.pool.ref_counts[tail] > 1 or tail in self.pool.prefix_cache:
                raise ValueError(f"num_tokens is {num_tokens}, within block {tail}, which is shared or cached")
        self.pool.release(self.block_ids[keep:])
        self.block_ids = self.block_ids[:keep]
        self.num_tokens = num_tokens

    def release(self) -> None:
        """Give all references back; the table is empty afterwards and may grow again."""
        self.pool.release(self.block_ids)
        self.block_ids = []
        self.num_tokens = 0

    def slot(self, position: int) -> tuple[int, int]:
        """(physical block, offset in it) of the token at `position`."""
        require_int("position", position, maximum=self.num_tokens - 1)
        return self.block_ids[position // self.pool.block_size], position % self.pool.block_size
