"""8-3a and 8-3b: unused slots and block-table entries. In wrong answers, n is a length, p the block size."""

from servelab.exercises.part import Part, Wrong
from servelab.memory import num_blocks
from servelab.memory import unused_slots as unused

BOOK_LENGTHS = [9, 13, 5, 15]
BLOCK_SIZES = [1, 2, 3, 4, 5, 7, 8, 16, 32, 64]


def unused_slots(lengths, block_size):
    return [unused(length, block_size) for length in lengths]


def totals(lengths, block_size):
    return sum(unused_slots(lengths, block_size)), sum(num_blocks(length, block_size) for length in lengths)


def draw_case(random):
    block_size = random.choice(BLOCK_SIZES)
    return [random.randint(1, 3 * block_size + 5) for _ in range(random.randint(1, 6))], block_size


CASES = {
    "book": tuple((BOOK_LENGTHS, block_size) for block_size in (2, 4, 8)),
    "others": (([1], 2), ([2], 2), ([3], 2), ([4], 4), ([5], 4), ([3, 5], 4), ([7, 8, 9], 8), ([40, 2], 16)),
    "draw": draw_case,
}


def draw_slots(case, answer):
    """The learner's unused slots behind each sequence's tokens: right ones end where a block ends."""
    lengths, block_size = case
    if min(answer) < 0 or sum(lengths) + sum(answer) > 200:
        return None
    rows = ["Drawn, # a token, . an unused slot, ] the end of a block:"]
    for length, unused_of_it in zip(lengths, answer, strict=True):
        slots = "#" * length + "." * unused_of_it
        blocks = [slots[start : start + block_size] for start in range(0, len(slots), block_size)]
        rows.append("".join(f"[{block}]" if len(block) == block_size else f"[{block}" for block in blocks))
    return "\n".join(rows)


def each(compute):
    """`compute(n, p)` for every sequence."""
    return lambda lengths, p: [compute(n, p) for n in lengths]


UNUSED = Part(
    id="8-3a",
    title="Unused slots of each sequence",
    returns="a list with one int for each sequence",
    expected=unused_slots,
    **CASES,
    picture=draw_slots,
    wrong=(
        Wrong("used slots of the last block", each(lambda n, p: n % p),
              "these are the slots of the last block that hold a token. The others are asked for."),
        Wrong("a full last block counts as empty", each(lambda n, p: p - n % p),
              "right where the last block is partly filled. What is left over when it is exactly full?"),
        Wrong("only full blocks", each(lambda n, p: n // p * p - n),
              "negative slots: n // p counts only full blocks. Where are the tokens after them?"),
        Wrong("blocks", each(num_blocks),
              "these are numbers of blocks. How many slots do they have, and how many are taken?"),
        Wrong("the bound", each(lambda n, p: p - 1),
              "block_size - 1 is the most that a sequence can waste. What does each one waste?"),
        Wrong("reserved for the maximum of 16", each(lambda n, p: 16 - n),
              "this is what room reserved in advance leaves unused. Blocks are taken as a sequence grows."),
        Wrong("up to the longest", lambda lengths, p: [max(lengths) - n for n in lengths],
              "this fills every sequence up to the longest one. Each has blocks of its own."),
        Wrong("their sum", lambda lengths, p: sum(unused_slots(lengths, p)),
              "one number for each sequence is wanted, in the order of lengths. The sum is the next part."),
    ),
    hints=(
        "Draw one sequence as a row of slots and cut the row into blocks. Which block can have room left?",
        "How many blocks does the sequence need? The last one may be partly filled, yet it is a whole block.",
        "Slots of all its blocks, minus its tokens. Whole blocks, rounded up: -(-length // block_size).",
    ),
)  # fmt: skip


def beside_unused(entries):
    """The right number of unused slots, beside `entries(n, p)` summed over the sequences."""
    return lambda lengths, p: (totals(lengths, p)[0], sum(entries(n, p) for n in lengths))


TOTALS = Part(
    id="8-3b",
    title="Unused slots and table entries in all",
    returns="two ints, (unused slots, block-table entries)",
    expected=totals,
    **CASES,
    wrong=(
        Wrong("swapped", lambda lengths, p: totals(lengths, p)[::-1],
              "both numbers are there, in the wrong order: unused slots first, then table entries."),
        Wrong("one long sequence", lambda lengths, p: (-sum(lengths) % p, num_blocks(sum(lengths), p)),
              "this lays all sequences end to end and rounds once. How many last blocks are there?"),
        Wrong("entries of full blocks only", beside_unused(lambda n, p: n // p),
              "the slots are right; the entries leave out partly filled blocks. A table must find them too."),
        Wrong("always one more block",
              lambda lengths, p: (sum(p - n % p for n in lengths), sum(n // p + 1 for n in lengths)),
              "a sequence that fills its last block exactly needs no further one."),
        Wrong("always one more entry", beside_unused(lambda n, p: n // p + 1),
              "the slots are right; the entries are too many where the last block is exactly full."),
        Wrong("an entry a slot", beside_unused(lambda n, p: num_blocks(n, p) * p),
              "the slots are right; an entry names a whole block, not a slot."),
        Wrong("an entry a token", beside_unused(lambda n, p: n),
              "the slots are right; an entry names a whole block, not a token."),
        Wrong("an entry a sequence", beside_unused(lambda n, p: 1),
              "the slots are right; you count tables. How many entries does each table hold?"),
        Wrong("slots only", lambda lengths, p: totals(lengths, p)[0],
              "the unused slots are right; the table entries are missing. Return both."),
        Wrong("not summed", lambda lengths, p: (unused_slots(lengths, p), each(num_blocks)(lengths, p)),
              "each sequence's numbers are right. The totals over all sequences are wanted."),
    ),
    hints=(
        "A block table has one entry for each block that its sequence holds.",
        "Each sequence rounds up on its own: no block holds tokens of two of them here.",
        "First: sum(unused_slots(lengths, block_size)). Second: the sum of ceil(length / block_size).",
    ),
)  # fmt: skip
