"""8-1c to 8-1e: how many requests fit, and whether memory or the crossing comes first.

In wrong answers, m are the bytes of the pool, i and o are input and output tokens, p is the block size, w the bytes of
all weights and t the bytes of a token's KV.
"""

from servelab import memory
from servelab.exercises.ex_8_1.reads import BOOK, SIZES, crossing_batch
from servelab.exercises.part import Choice, Part, Wrong
from servelab.memory import num_blocks
from servelab.units import GIB

BOOK_POOL = 12 * GIB
LENGTHS = (2048, 8192)


def blocks(input_tokens, output_tokens, block_size):
    return num_blocks(memory.written_tokens(input_tokens, output_tokens), block_size)


def capacity(pool_bytes, input_tokens, output_tokens, block_size, token_bytes):
    return fits(pool_bytes, blocks(input_tokens, output_tokens, block_size), block_size, token_bytes)


def fits(pool_bytes, blocks_each, block_size, token_bytes):
    return pool_bytes // (block_size * token_bytes) // blocks_each


def draw_capacity(random):
    pool, (_, token_bytes) = random.randint(1 * GIB, 48 * GIB), random.choice(SIZES[1:])
    return pool, random.randint(20, 3000), random.randint(1, 600), random.choice([1, 4, 8, 16, 32, 64]), token_bytes


def draw_pool(case, answer):
    """The pool's blocks when as many requests as the learner says are finished."""
    pool_bytes, inputs, outputs, block_size, token_bytes = case
    total, each = pool_bytes // (block_size * token_bytes), blocks(inputs, outputs, block_size)
    if not 0 <= answer <= 26 or max(total, answer * each) * block_size > 64:
        return None
    written = inputs + outputs - 1
    slots = "".join((chr(97 + n) * written).ljust(each * block_size, ".") for n in range(answer))
    slots = slots.ljust(total * block_size, "_")
    row = ["[" + slots[at : at + block_size] + "]" for at in range(0, len(slots), block_size)]
    drawn = ["A letter is a request's token, . a slot it leaves unused, _ a slot that nobody holds:"]
    drawn.append("pool " + "".join(row[:total]))
    return "\n".join(drawn + (["does not fit " + "".join(row[total:])] if row[total:] else []))


CAPACITY = Part(
    id="8-1c",
    title="Requests that fit into the pool",
    returns="one int, a number of requests",
    expected=capacity,
    book=tuple((BOOK_POOL, length, 256, 16, BOOK[1]) for length in LENGTHS),
    others=((160, 3, 2, 4, 10), (160, 4, 1, 4, 10), (160, 4, 2, 4, 10), (165, 9, 4, 4, 10), (100, 20, 2, 4, 10),
            (320, 7, 2, 8, 10), (330, 6, 5, 2, 10), (170, 3, 3, 1, 10)),
    draw=draw_capacity,
    picture=draw_pool,
    wrong=(
        Wrong("inputs only", lambda m, i, o, p, t: fits(m, num_blocks(i, p), p, t),
              "so many fit while they have only their input. What does each one hold when it is finished?"),
        Wrong("last output token counted", lambda m, i, o, p, t: fits(m, num_blocks(i + o, p), p, t),
              "a block too many where the KV just fills its last block. Which output token is never fed back?"),
        Wrong("no blocks", lambda m, i, o, p, t: m // ((i + o - 1) * t),
              "you divide by the KV that is written. Requests hold whole blocks."),
        Wrong("no blocks, last output token counted", lambda m, i, o, p, t: m // ((i + o) * t),
              "think about two things: requests hold whole blocks, and not every output token is fed back."),
        Wrong("rounded up", lambda m, i, o, p, t: -(-m // (blocks(i, o, p) * p * t)),
              "the last of these requests finds too little room. Round the number of requests down."),
        Wrong("not rounded", lambda m, i, o, p, t: m / (blocks(i, o, p) * p * t),
              "a request fits whole or not at all."),
        Wrong("K and V twice", lambda m, i, o, p, t: fits(m, blocks(i, o, p), p, 2 * t),
              "about half: token_bytes already counts K and V, in all layers."),
        Wrong("slots forgotten", lambda m, i, o, p, t: m // (blocks(i, o, p) * t),
              "far too many: token_bytes is for one token. For how many tokens does a block have room?"),
        Wrong("blocks of the pool", lambda m, i, o, p, t: m // (p * t),
              "so many blocks does the pool have. How many does one request take?"),
    ),
    hints=(
        "How many bytes does one request hold at its end? How many times does that go into the pool?",
        "It has written the KV of input + output - 1 tokens by then, and it holds whole blocks.",
        "pool_bytes // (blocks x block_size x token_bytes); blocks = ceil((input + output - 1) / block_size).",
    ),
)  # fmt: skip


def requests_short(pool_bytes, input_tokens, output_tokens, block_size, weight_bytes, token_bytes):
    missing = crossing_batch(input_tokens, weight_bytes, token_bytes)
    return max(0, missing - capacity(pool_bytes, input_tokens, output_tokens, block_size, token_bytes))


def draw_short(random):
    """Weights that put the crossing near the capacity, on either side or on it."""
    m, i, o, p, t = draw_capacity(random)
    crossing = max(1, capacity(m, i, o, p, t) + random.randint(-2, 12))
    return m, i, o, p, crossing * i * t - random.choice([0, random.randint(1, i * t - 1)]), t


def short_by(crossing, fitting):
    """max(0, crossing - capacity) of wrong ones: `crossing(i, o, w, t)` and `fitting(m, i, o, p, t)`."""
    return lambda m, i, o, p, w, t: max(0, crossing(i, o, w, t) - fitting(m, i, o, p, t))


def at_input(i, o, w, t):
    return crossing_batch(i, w, t)


SHORT = Part(
    id="8-1d",
    title="Requests missing at the crossing",
    returns="one int, a number of requests",
    expected=requests_short,
    book=tuple((BOOK_POOL, length, 256, 16, *BOOK) for length in LENGTHS),
    others=((160, 3, 2, 4, 30, 10), (160, 3, 2, 4, 120, 10), (160, 3, 2, 4, 130, 10),
            (160, 3, 2, 4, 200, 10), (160, 4, 2, 4, 120, 10), (165, 9, 4, 4, 600, 10)),
    draw=draw_short,
    wrong=(
        Wrong("below zero", lambda m, i, o, p, w, t: crossing_batch(i, w, t) - capacity(m, i, o, p, t),
              "right where requests are missing. If the batch of the crossing fits, none is missing."),
        Wrong("the other way round", lambda m, i, o, p, w, t: max(0, capacity(m, i, o, p, t) - crossing_batch(i, w, t)),
              "this is the room left beyond the crossing. How many requests are missing up to it?"),
        Wrong("distance", lambda m, i, o, p, w, t: abs(capacity(m, i, o, p, t) - crossing_batch(i, w, t)),
              "this is the distance between the two. If the batch of the crossing fits, none is missing."),
        Wrong("the crossing", lambda m, i, o, p, w, t: crossing_batch(i, w, t),
              "this is the batch of the crossing. How much of it fits into the pool?"),
        Wrong("the capacity", lambda m, i, o, p, w, t: capacity(m, i, o, p, t),
              "this is the number of requests that fit. How far is it from the crossing?"),
        Wrong("inputs only", short_by(at_input, lambda m, i, o, p, t: fits(m, num_blocks(i, p), p, t)),
              "your capacity holds inputs only. Requests need room until they are finished, as in part c."),
        Wrong("last output token counted",
              short_by(at_input, lambda m, i, o, p, t: fits(m, num_blocks(i + o, p), p, t)),
              "your capacity is too small where the KV just fills a block. Which output token is never fed back?"),
        Wrong("crossing rounded down", short_by(lambda i, o, w, t: w // (i * t), capacity),
              "your crossing is rounded down: KV reads are still short of the weights there. See part b."),
        Wrong("crossing must pass", short_by(lambda i, o, w, t: w // (i * t) + 1, capacity),
              "one too many where weights and KV meet exactly: reaching the weights is enough. See part b."),
        Wrong("crossing at the end", short_by(lambda i, o, w, t: crossing_batch(i + o - 1, w, t), capacity),
              "your crossing is that of finished requests. It is asked for at a context of input_tokens."),
    ),
    hints=(
        "You have both numbers already: which two functions give them?",
        "Take the crossing at a context of input_tokens, the capacity for finished requests. Which is larger?",
        "max(0, crossing - capacity).",
    ),
)  # fmt: skip

FIRST = Choice(
    id="8-1e",
    title="Which limit comes first",
    options={
        "a": "At 2K inputs memory is full first; at 8K inputs KV reads reach the weights first.",
        "b": "At both lengths KV reads reach the weights first: a larger pool would change little.",
        "c": "At both lengths memory is full first. Weights are still the larger part of the reads then, "
             "so that room for more requests would save more.",
        "d": "At both lengths memory is full first. KV is the larger part of the reads by then, "
             "so that a larger batch would save nothing.",
    },
    right="c",
    wrong={
        "a": "Call your function of part d for 8K inputs. A longer context moves both limits: which way each?",
        "b": "Call your function of part d for both lengths. What does a result above 0 say?",
        "d": "Memory is full before the crossing. Which of the two reads is larger before the crossing?",
    },
    hints=(
        "Print capacity and crossing for both lengths and compare.",
        "If capacity is below the crossing, the batch cannot grow to it: which read is larger at that batch?",
        "Compute weight_bytes / batch and context x token_bytes with the batch set to the capacity.",
    ),
)  # fmt: skip
