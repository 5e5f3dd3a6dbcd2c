"""The block pool and its tables: what they promise, what they refuse, and that no sequence of calls breaks them."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from servelab.engine import BlockPool, BlockTable, OutOfBlocks


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
    pool.free_queue.append(tables[0].block_ids[0])
    return tables


def _lose_a_free_block(pool, tables):
    pool.free_queue.pop()
    return tables


def _list_a_free_block_twice(pool, tables):
    pool.free_queue.append(pool.free_queue[0])
    return tables


@pytest.mark.parametrize(
    "damage",
    [_forget_a_table, _free_a_used_block, _lose_a_free_block, _list_a_free_block_twice],
    ids=lambda f: f.__name__,
)
def test_check_integrity_sees(damage):
    pool = BlockPool(num_blocks=6, block_size=2)
    tables = [BlockTable(pool), BlockTable(pool)]
    for table in tables:
        table.append(3)
    pool.check_integrity(tables)
    with pytest.raises(RuntimeError, match="block"):
        pool.check_integrity(damage(pool, tables))


class Sequences(RuleBasedStateMachine):
    """Sequences that grow, share and end in any order, against a model that only knows each token's history.

    Each token is written once, into the slot its table names; reading a sequence back must give its own history.
    """

    def __init__(self):
        super().__init__()
        self.pool = BlockPool(num_blocks=8, block_size=3)
        self.memory = {}  # (block, offset) -> token
        self.sequences = []  # (table, tokens)
        self.next_token = 0

    @rule(num_tokens=st.integers(0, 10))
    def start(self, num_tokens):
        self.grow_table(BlockTable(self.pool), [], num_tokens)

    @precondition(lambda self: self.sequences)
    @rule(data=st.data(), num_tokens=st.integers(0, 10))
    def grow(self, data, num_tokens):
        table, tokens = self.sequences.pop(data.draw(st.integers(0, len(self.sequences) - 1)))
        self.grow_table(table, tokens, num_tokens)

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def share(self, data):
        table, tokens = data.draw(st.sampled_from(self.sequences))
        num_tokens = 3 * data.draw(st.integers(0, table.num_tokens // 3))
        self.sequences.append((table.share(num_tokens), tokens[:num_tokens]))

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def end(self, data):
        table, _ = self.sequences.pop(data.draw(st.integers(0, len(self.sequences) - 1)))
        table.release()

    def grow_table(self, table, tokens, num_tokens):
        needed = -(-(table.num_tokens + num_tokens) // 3) - len(table.block_ids)
        if needed > self.pool.num_free:
            with pytest.raises(OutOfBlocks):
                table.append(num_tokens)
            num_tokens = 0
        table.append(num_tokens)
        for _ in range(num_tokens):
            self.memory[table.slot(len(tokens))] = self.next_token
            tokens = [*tokens, self.next_token]
            self.next_token += 1
        self.sequences.append((table, tokens))

    @invariant()
    def every_sequence_reads_its_own_history(self):
        for table, tokens in self.sequences:
            assert [self.memory[table.slot(position)] for position in range(len(tokens))] == tokens

    @invariant()
    def blocks_are_accounted_for(self):
        self.pool.check_integrity([table for table, _ in self.sequences])


Sequences.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestSequences = Sequences.TestCase
