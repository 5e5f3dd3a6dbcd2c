"""The block pool and its tables: what they promise, what they refuse, and that no sequence of calls breaks them."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from servelab.engine import BlockPool, BlockTable, OutOfBlocks, PrefixCache
from servelab.engine.prefix import extend_keys


def snapshot(pool, *tables):
    return list(pool.ref_counts), list(pool.free_queue), [(list(t.block_ids), t.num_tokens) for t in tables]


def test_append_takes_a_block_only_when_the_last_one_is_full():
    pool = BlockPool(num_blocks=4, block_size=4)
    table = BlockTable(pool)
    assert table.append(3) == [0]
    assert table.append(1) == []
    assert table.append(1) == [1]
    assert (table.num_tokens, table.unused_slots, pool.num_free) == (5, 3, 2)


def test_blocks_of_a_sequence_may_lie_anywhere():
    pool = BlockPool(num_blocks=4, block_size=4)
    earlier = [BlockTable(pool) for _ in range(4)]
    for table in earlier:
        table.append(4)
    for index in (3, 0, 2):
        earlier[index].release()
    table = BlockTable(pool)
    table.append(9)
    assert table.block_ids == [2, 0, 3]
    assert [table.slot(position) for position in (0, 3, 4, 8)] == [(2, 0), (2, 3), (0, 0), (3, 0)]


def test_release_hands_the_tail_out_first():
    pool = BlockPool(num_blocks=3, block_size=1)
    table = BlockTable(pool)
    table.append(3)
    table.release()
    assert pool.allocate(3) == [2, 1, 0]


def test_a_block_released_twice_in_one_call_is_free_once():
    pool = BlockPool(num_blocks=1, block_size=1)
    block_ids = pool.allocate()
    pool.share(block_ids)
    pool.release(block_ids * 2)
    assert list(pool.free_queue) == [0]


def test_shared_block_returns_with_its_last_reference():
    pool = BlockPool(num_blocks=5, block_size=4)
    a = BlockTable(pool)
    a.append(9)
    b = a.share(8)
    b.append(5)  # positions 8 to 12, in two blocks of its own
    assert a.block_ids[:2] == b.block_ids[:2]
    assert b.block_ids[2] != a.block_ids[2]  # nobody writes into another's tail
    assert [pool.ref_counts[block_id] for block_id in b.block_ids] == [2, 2, 1, 1]
    a.release()
    pool.check_integrity([b])
    assert pool.num_free == 1  # a's own tail; the shared blocks stay for b
    b.release()
    assert pool.num_free == 5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda pool, table: table.append(100), "25 blocks asked for, 2 of 4 free"),
        (lambda pool, table: pool.allocate(7), "7 blocks asked for, 2 of 4 free"),
    ],
)
def test_too_few_free_blocks_changes_nothing(call, message):
    pool = BlockPool(num_blocks=4, block_size=4)
    table = BlockTable(pool)
    table.append(7)
    before = snapshot(pool, table)
    with pytest.raises(OutOfBlocks, match=message):
        call(pool, table)
    assert snapshot(pool, table) == before


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda pool, table: BlockPool(0, 4), "num_blocks is 0; it must be an integer of at least 1"),
        (lambda pool, table: BlockPool(4, 1.5), "block_size is 1.5"),
        (lambda pool, table: BlockPool(True, 4), "num_blocks is True"),
        (lambda pool, table: pool.allocate(-1), "count is -1"),
        (lambda pool, table: table.append(-1), "num_tokens is -1"),
        (lambda pool, table: table.share(6), "num_tokens is 6; it must be a multiple of the block size 4"),
        (lambda pool, table: table.share(8), "num_tokens is 8; it must be an integer from 0 to 7"),
        (lambda pool, table: table.slot(7), "position is 7; it must be an integer from 0 to 6"),
        (lambda pool, table: pool.share([3]), "block_id is 3, with 0 references; it must have 1"),
        (lambda pool, table: pool.share([0, 4]), "block_id is 4; it must be an integer from 0 to 3"),
        (lambda pool, table: pool.release([0, 0]), "block_id is 0, with 1 references; it must have 2"),
        (lambda pool, table: pool.release([1, 3]), "block_id is 3, with 0 references"),
    ],
)
def test_bad_input_names_the_argument_and_changes_nothing(call, message):
    pool = BlockPool(num_blocks=4, block_size=4)
    table = BlockTable(pool)
    table.append(7)
    before = snapshot(pool, table)
    with pytest.raises(ValueError, match=message):
        call(pool, table)
    assert snapshot(pool, table) == before


def _forget_a_table(pool, tables):
    return [tables[0]]


def _free_a_used_block(pool, tables):
    pool.free_queue.extend([tables[0].block_ids[0]])
    return tables


def _lose_a_free_block(pool, tables):
    pool.free_queue.popleft()
    return tables


def _cache_a_block_that_is_not_full(pool, tables):
    pool.prefix_cache.add(tables[0].block_ids[-1], b"key")
    return tables


def _hold_a_block_too_many(pool, tables):
    tables[0].block_ids += pool.allocate()
    return tables


def _lose_one_direction_of_the_cache(pool, tables):
    pool.prefix_cache._key_of[0] = b"key"
    return tables


@pytest.mark.parametrize(
    "damage",
    [
        _forget_a_table,
        _free_a_used_block,
        _lose_a_free_block,
        _cache_a_block_that_is_not_full,
        _hold_a_block_too_many,
        _lose_one_direction_of_the_cache,
    ],
    ids=lambda f: f.__name__,
)
def test_check_integrity_sees(damage):
    pool = BlockPool(num_blocks=6, block_size=2)
    tables = [BlockTable(pool), BlockTable(pool)]
    for table in tables:
        table.append(3)
    pool.check_integrity(tables)
    with pytest.raises(RuntimeError, match=r"block|maps"):
        pool.check_integrity(damage(pool, tables))


def test_a_fork_shares_all_blocks_and_the_first_writer_copies():
    pool = BlockPool(num_blocks=4, block_size=4)
    a = BlockTable(pool)
    a.append(6)
    b = a.fork()
    assert (b.block_ids, b.num_tokens, pool.num_free) == ([0, 1], 6, 2)
    assert b.tail_is_shared
    assert b.blocks_needed(1) == 1
    with pytest.raises(AssertionError, match="copy_on_write first"):
        b.append(1)
    assert b.copy_on_write() == [(1, 2)]
    b.append(1)
    assert a.copy_on_write() == []  # the last one that has the block writes in place
    a.append(1)
    assert (a.block_ids, b.block_ids) == ([0, 1], [0, 2])
    pool.check_integrity([a, b])


def test_a_fork_at_a_block_end_copies_nothing():
    pool = BlockPool(num_blocks=4, block_size=4)
    a = BlockTable(pool)
    a.append(8)
    b = a.fork()
    assert (a.copy_on_write(), b.copy_on_write()) == ([], [])
    a.append(1)
    b.append(1)
    assert (a.block_ids, b.block_ids) == ([0, 1, 2], [0, 1, 3])


def test_copy_on_write_without_a_free_block_changes_nothing():
    pool = BlockPool(num_blocks=1, block_size=4)
    a = BlockTable(pool)
    a.append(3)
    b = a.fork()
    before = snapshot(pool, a, b)
    with pytest.raises(OutOfBlocks):
        b.copy_on_write()
    assert snapshot(pool, a, b) == before


def test_blocks_released_during_a_step_return_when_it_has_finished():
    pool = BlockPool(num_blocks=3, block_size=4)
    a, b = BlockTable(pool), BlockTable(pool)
    a.append(8)
    b.append(4)
    pool.begin_step()
    a.release()
    assert (a.block_ids, pool.num_free) == ([], 0)
    pool.check_integrity([a, b])
    with pytest.raises(ValueError, match="block_id is 0, with 0 references; it must have 1"):
        pool.release([0])
    pool.end_step()
    assert list(pool.free_queue) == [1, 0]
    pool.check_integrity([a, b])


def test_cached_blocks_are_reused_last_and_of_a_prefix_the_tail_first():
    pool = BlockPool(num_blocks=4, block_size=2)
    a = BlockTable(pool)
    a.append(5)
    keys = []
    extend_keys(keys, [7, 7, 8, 8, 9], block_size=2)
    for block_id, key in zip(a.block_ids, keys, strict=False):
        pool.prefix_cache.add(block_id, key)
    a.release()
    assert list(pool.free_queue) == [2, 3, 1, 0]
    b = BlockTable(pool)
    b.reuse(pool.prefix_cache.find(keys, max_blocks=9))
    assert (b.block_ids, b.num_tokens, list(pool.free_queue)) == ([0, 1], 4, [2, 3])
    b.release()
    pool.allocate(3)
    assert pool.prefix_cache.find(keys, max_blocks=9) == [0]  # block 1 went first: the head still serves
    with pytest.raises(ValueError, match="block_id is 1; it must be in the prefix cache"):
        pool.reuse([0, 1])
    assert pool.ref_counts[0] == 0


def test_the_block_added_first_is_found_until_it_is_forgotten():
    cache = PrefixCache()
    cache.add(5, b"key")
    cache.add(3, b"key")
    assert cache.find([b"key"], 1) == [5]
    cache.forget(5)
    assert cache.find([b"key"], 1) == [3]
    cache.forget(3)
    cache.forget(3)
    assert (cache.find([b"key"], 1), len(cache)) == ([], 0)
    cache.add(3, b"other")
    with pytest.raises(ValueError, match="block_id is 3, which the cache holds under another key"):
        cache.add(3, b"key")


def test_a_key_covers_the_whole_prefix_the_adapter_and_the_salt():
    def keys(tokens, **extras):
        result = []
        extend_keys(result, tokens, block_size=2, **extras)
        return result

    base = keys([1, 2, 3, 4, 5])
    assert len(base) == 2
    assert keys([1, 2, 3, 4]) == base
    assert keys([1, 2])[0] == base[0]
    assert keys([0, 2, 3, 4])[1] != base[1]
    assert len({*base, *keys([1, 2, 3, 4], adapter="a"), *keys([1, 2, 3, 4], salt="a")}) == 6


def test_truncate_gives_back_the_blocks_behind():
    pool = BlockPool(num_blocks=4, block_size=2)
    a = BlockTable(pool)
    a.append(6)
    pool.prefix_cache.add(0, b"key")
    a.truncate(3)
    assert (a.block_ids, a.num_tokens, list(pool.free_queue)) == ([0, 1], 3, [2, 3])
    pool.check_integrity([a])
    b = a.fork()
    for num_tokens, message in ((4, "num_tokens is 4; it must be an integer from 0 to 3"), (1, "within block 0")):
        before = snapshot(pool, a, b)
        with pytest.raises(ValueError, match=message):
            b.truncate(num_tokens)
        assert snapshot(pool, a, b) == before
    b.truncate(2)  # drops its reference to the shared tail
    assert pool.ref_counts[:2] == [2, 1]


BLOCK_SIZE = 3
TEXT = st.lists(st.integers(0, 1), max_size=10)  # two tokens only, so that texts begin alike


class Sequences(RuleBasedStateMachine):
    """Sequences that start, grow, share, fork, shrink and end in any order, also while a step is in flight.

    The model: `memory` holds what was written last into each slot, as an accelerator would. Reading a sequence through
    its table must give its own text, whatever the others did, and whether a block was computed, shared, copied or
    found in the prefix cache.
    """

    def __init__(self):
        super().__init__()
        self.pool = BlockPool(num_blocks=8, block_size=BLOCK_SIZE)
        self.memory = {}  # (block, offset) -> token
        self.sequences = []  # (table, tokens)
        self.in_flight = []  # blocks of the tables that were released during the step

    is_idle = precondition(lambda self: not self.pool.step_in_flight)
    has_sequences = precondition(lambda self: self.sequences)

    def pick(self, data):
        return self.sequences[data.draw(st.integers(0, len(self.sequences) - 1))]

    @is_idle
    @rule(text=TEXT)
    def start(self, text):
        keys = []
        extend_keys(keys, text, BLOCK_SIZE)
        table = BlockTable(self.pool)
        table.reuse(self.pool.prefix_cache.find(keys, len(keys)))
        self.sequences.append((table, text[: table.num_tokens]))
        self.write(*self.sequences[-1], text[table.num_tokens :])

    @is_idle
    @has_sequences
    @rule(data=st.data(), text=TEXT)
    def grow(self, data, text):
        self.write(*self.pick(data), text)

    @is_idle
    @has_sequences
    @rule(data=st.data())
    def share(self, data):
        table, tokens = self.pick(data)
        num_tokens = BLOCK_SIZE * data.draw(st.integers(0, table.num_tokens // BLOCK_SIZE))
        self.sequences.append((table.share(num_tokens), tokens[:num_tokens]))

    @is_idle
    @has_sequences
    @rule(data=st.data())
    def fork(self, data):
        table, tokens = self.pick(data)
        self.sequences.append((table.fork(), list(tokens)))

    @is_idle
    @has_sequences
    @rule(data=st.data())
    def truncate(self, data):
        table, tokens = self.pick(data)
        num_tokens = data.draw(st.integers(0, len(tokens)))
        before = snapshot(self.pool, table)
        try:
            table.truncate(num_tokens)
        except ValueError:
            assert snapshot(self.pool, table) == before
        else:
            del tokens[num_tokens:]

    @has_sequences
    @rule(data=st.data())
    def end(self, data):
        table, _ = self.sequences.pop(data.draw(st.integers(0, len(self.sequences) - 1)))
        if self.pool.step_in_flight:
            self.in_flight += table.block_ids
        table.release()

    @is_idle
    @rule()
    def begin_step(self):
        self.pool.begin_step()

    @precondition(lambda self: self.pool.step_in_flight)
    @rule()
    def end_step(self):
        self.pool.end_step()
        self.in_flight = []

    def write(self, table, tokens, text):
        """Append `text` to the sequence, as a scheduler and an executor do; or find that there is no room."""
        if not text:
            return
        if table.blocks_needed(len(text)) > self.pool.num_free:
            before = snapshot(self.pool, table)
            with pytest.raises((OutOfBlocks, AssertionError)):  # the latter if a copy comes first
                table.append(len(text))
            assert snapshot(self.pool, table) == before
            return
        for source, destination in table.copy_on_write():
            for offset in range(BLOCK_SIZE):
                self.memory[destination, offset] = self.memory.get((source, offset))
        table.append(len(text))
        for token in text:
            block_id, offset = table.slot(len(tokens))
            assert self.pool.ref_counts[block_id] == 1, "written by one, held by others"
            assert block_id not in self.pool.prefix_cache, "written, but promised to others"
            self.memory[block_id, offset] = token
            tokens.append(token)
        keys = []
        extend_keys(keys, tokens, BLOCK_SIZE)
        for block_id, key in zip(table.block_ids, keys, strict=False):
            self.pool.prefix_cache.add(block_id, key)

    @invariant()
    def every_sequence_reads_its_own_history(self):
        for table, tokens in self.sequences:
            assert [self.memory[table.slot(position)] for position in range(len(tokens))] == tokens

    @invariant()
    def blocks_are_accounted_for(self):
        self.pool.check_integrity([table for table, _ in self.sequences])

    @invariant()
    def nothing_that_a_step_uses_is_free(self):
        assert not set(self.in_flight) & set(self.pool.free_queue)


Sequences.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestSequences = Sequences.TestCase
