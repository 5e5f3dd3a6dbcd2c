"""8-3e and 8-3f: one more common block, counted on real block tables, and what blocks of one token cost."""

from servelab.engine import BlockPool, BlockTable
from servelab.exercises.part import Choice, Part, Wrong

BLOCKS_A_REQUEST = 4


def block_tables(pool, requests, common):
    """Tables of equal requests with three full blocks and one begun; the first `common` are shared by all."""
    first = BlockTable(pool)
    first.append((BLOCKS_A_REQUEST - 1) * pool.block_size + 1)
    tables = [first]
    for _ in range(requests - 1):
        table = first.share(common * pool.block_size)
        table.append(first.num_tokens - table.num_tokens)
        tables.append(table)
    return tables


def blocks_in_use(requests, common):
    pool = BlockPool(BLOCKS_A_REQUEST * requests, block_size=4)
    block_tables(pool, requests, common)
    return pool.num_blocks - pool.num_free


def blocks_saved(requests):
    return blocks_in_use(requests, common=1) - blocks_in_use(requests, common=2)


def draw_tables(case, answer):
    """The tables before the change; only few, since nobody reads many."""
    (requests,) = case
    if requests > 6:
        return None
    rows = ["Before: a row is a request's table, #n a physical block. The second column becomes common."]
    for table in block_tables(BlockPool(BLOCKS_A_REQUEST * requests, block_size=4), requests, common=1):
        rows.append("  ".join(f"#{block_id}" for block_id in table.block_ids))
    return "\n".join(rows)


SAVED = Part(
    id="8-3e",
    title="Blocks saved by one more common block",
    returns="one int",
    expected=blocks_saved,
    book=((8,), (16,), (32,)),
    others=tuple((requests,) for requests in (1, 2, 3, 4, 7, 100)),
    picture=draw_tables,
    wrong=(
        Wrong("no common copy", lambda b: b,
              "you take a block from each request. Where do they read its contents now?"),
        Wrong("nothing saved", lambda b: 0,
              "the tables keep their lengths, but how many physical blocks do their entries name?"),
        Wrong("always one", lambda b: 1,
              "how many physical copies are there before the change, and how many are needed after it?"),
        Wrong("common copy added", lambda b: b + 1,
              "the common copy has to be stored. Does that raise what is saved, or lower it?"),
        Wrong("negative", lambda b: 1 - b,
              "right but for the sign: blocks before the change minus blocks after it."),
        Wrong("two copies", lambda b: b - 2,
              "too few. How many common copies do the requests need?"),
        Wrong("pairs", lambda b: b // 2,
              "this would be right if each copy served two requests. How many does the common block serve?"),
    ),
    hints=(
        "Count the physical blocks of the whole batch before the change, then after it.",
        "Say s blocks are common and each of b requests has n private ones: s + b x n blocks before.",
        "After it s + 1 blocks are common and each request has n - 1 private ones. Subtract.",
    ),
)  # fmt: skip

PRICE_OF_ONE = Choice(
    id="8-3f",
    title="The price of block size 1",
    options={
        "a": "No two requests can share a prefix any more.",
        "b": "Each token takes more KV bytes.",
        "c": "Every token needs a table entry of its own, and attention jumps at each.",
        "d": "Room must be reserved in advance for the longest possible output.",
    },
    right="c",
    wrong={
        "a": "Full blocks can be shared. When is a block of one token full?",
        "b": "Look at your formula of part c: does a token's KV depend on the block size?",
        "d": "Blocks of any size are taken as a sequence grows. Does anything have to be reserved?",
    },
    hints=(
        "Compare the totals of part b for block sizes 8, 4 and 2. Which of the two grows?",
        "Call your function of part b with block size 1. Look at both totals.",
        "Which option names what the second total of part b counts?",
    ),
)
