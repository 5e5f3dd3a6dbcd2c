"""8-3c and 8-3d: bytes of a batch of equal requests, independent or with a shared prefix.

In wrong answers, b is the number of requests, i and o are input and output tokens, s is the shared prefix,
p the block size and t the bytes of a token.
"""

from servelab import catalog, memory
from servelab.exercises.mistakes import in_other_units
from servelab.exercises.part import Part, Wrong
from servelab.memory import num_blocks

# Counting the last token and always adding a block are the same: ceil((n + 1) / p) = n // p + 1.
LAST_TOKEN = "Is a block always added? Which output token is never fed back, so that it leaves no KV?"
ROUNDED_DOWN = "you leave out a partly filled last block. Its tokens need it."
ROUNDED_APART = "you round input and output up apart. Output goes on in the block where the input ends."
SLOTS_FORGOTTEN = "token_bytes is for one token. For how many tokens does a block have room?"
BLOCKS = "these are blocks. How many slots does one have, and how many bytes does a slot take?"
SLOTS = "these are slots. How many bytes does one of them take?"
TOKEN_BYTES = memory.kv_bytes_per_token(catalog.model("qwen3-8b"))
OTHER_TOKEN_BYTES = [
    memory.kv_bytes_per_token(catalog.model("qwen3-0.6b")),
    memory.kv_bytes_per_token(catalog.model("llama-3.1-70b")),
    memory.kv_bytes_per_token(catalog.model("qwen3-8b"), "q8_0"),
]


def blocks(input_tokens, output_tokens, block_size):
    return num_blocks(memory.written_tokens(input_tokens, output_tokens), block_size)


def independent_bytes(requests, input_tokens, output_tokens, block_size, token_bytes):
    return requests * blocks(input_tokens, output_tokens, block_size) * block_size * token_bytes


def shared_bytes(requests, input_tokens, output_tokens, shared_prefix, block_size, token_bytes):
    common = memory.shared_blocks(input_tokens, shared_prefix, block_size)
    private = blocks(input_tokens, output_tokens, block_size) - common
    return (common + requests * private) * block_size * token_bytes


def draw_independent(random):
    return (
        random.randint(1, 40),
        random.randint(2, 6000),
        random.randint(1, 600),
        random.choice([1, 2, 3, 4, 5, 7, 8, 16, 32, 64]),
        random.choice(OTHER_TOKEN_BYTES),
    )


def draw_shared(random):
    requests, input_tokens, output_tokens, block_size, token_bytes = draw_independent(random)
    return requests, input_tokens, output_tokens, random.randint(1, input_tokens - 1), block_size, token_bytes


INDEPENDENT = Part(
    id="8-3c",
    title="Bytes of independent requests",
    returns="one int, in bytes",
    expected=independent_bytes,
    book=tuple((requests, 8192, 256, 16, TOKEN_BYTES) for requests in (8, 16, 32)),
    others=((1, 3, 2, 4, 10), (1, 3, 1, 4, 10), (2, 4, 1, 4, 10), (2, 4, 2, 4, 10), (3, 5, 3, 4, 10),
            (3, 16, 16, 8, 100)),
    draw=draw_independent,
    wrong=(
        *in_other_units(independent_bytes),
        Wrong("last output token counted", lambda b, i, o, p, t: b * num_blocks(i + o, p) * p * t,
              "a block too many where the KV just fills its last block. " + LAST_TOKEN),
        Wrong("no blocks", lambda b, i, o, p, t: b * (i + o - 1) * t,
              "this is the KV that is written. Requests hold whole blocks."),
        Wrong("no blocks, last output token counted", lambda b, i, o, p, t: b * (i + o) * t,
              "think about two things: requests hold whole blocks, and not every output token is fed back."),
        Wrong("rounded down", lambda b, i, o, p, t: b * ((i + o - 1) // p) * p * t,
              ROUNDED_DOWN),
        Wrong("input and output rounded apart",
              lambda b, i, o, p, t: b * (num_blocks(i, p) + num_blocks(o - 1, p)) * p * t, ROUNDED_APART),
        Wrong("input and output rounded apart, last output token counted",
              lambda b, i, o, p, t: b * (num_blocks(i, p) + num_blocks(o, p)) * p * t,
              ROUNDED_APART + " And not every output token is fed back."),
        Wrong("rounded once", lambda b, i, o, p, t: num_blocks(b * (i + o - 1), p) * p * t,
              "you round up once for the whole batch. Each request has a last block of its own."),
        Wrong("input only", lambda b, i, o, p, t: b * num_blocks(i, p) * p * t,
              "this is what the inputs hold. A request also keeps the KV of what it has generated."),
        Wrong("one request", lambda b, i, o, p, t: independent_bytes(1, i, o, p, t),
              "this is what one request holds. How many are there?"),
        Wrong("K and V twice", lambda b, i, o, p, t: 2 * independent_bytes(b, i, o, p, t),
              "twice too much: token_bytes already counts K and V, in all layers."),
        Wrong("slots forgotten", lambda b, i, o, p, t: b * blocks(i, o, p) * t, SLOTS_FORGOTTEN),
        Wrong("blocks", lambda b, i, o, p, t: b * blocks(i, o, p), BLOCKS),
        Wrong("slots", lambda b, i, o, p, t: independent_bytes(b, i, o, p, 1), SLOTS),
    ),
    hints=(
        "Go from tokens to blocks, from blocks to slots, from slots to bytes; then count the requests.",
        "The prefill yields the first output token, and the last one is never fed back: "
        "the KV of how many tokens has been written at the end?",
        "requests x blocks x block_size x token_bytes; blocks = ceil((input + output - 1) / block_size).",
    ),
)  # fmt: skip


def paged_shared(common, private):
    """Bytes from `common(s, p)` blocks once and `private(i, o, s, p)` blocks a request."""
    return lambda b, i, o, s, p, t: (common(s, p) + b * private(i, o, s, p)) * p * t


def full(s, p):
    return s // p


SHARED = Part(
    id="8-3d",
    title="Bytes of requests that share a prefix",
    returns="one int, in bytes",
    expected=shared_bytes,
    book=tuple((requests, 8192, 256, 6144, 16, TOKEN_BYTES) for requests in (8, 16, 32)),
    others=((1, 6, 2, 4, 4, 10), (2, 5, 1, 4, 4, 10), (2, 8, 1, 4, 4, 10), (2, 6, 4, 5, 4, 10),
            (2, 6, 2, 3, 4, 10), (3, 9, 4, 8, 4, 10)),
    draw=draw_shared,
    wrong=(
        *in_other_units(shared_bytes),
        Wrong("nothing shared", lambda b, i, o, s, p, t: independent_bytes(b, i, o, p, t),
              "this is what independent requests hold. How many copies of the prefix are there now?"),
        Wrong("prefix for free",
              paged_shared(lambda s, p: 0, lambda i, o, s, p: blocks(i, o, p) - full(s, p)),
              "these are the private parts. The prefix takes memory too, although only once."),
        Wrong("prefix still in each request", paged_shared(full, lambda i, o, s, p: blocks(i, o, p)),
              "you add the common prefix, but each request still holds a copy of its own."),
        Wrong("one request", lambda b, i, o, s, p, t: independent_bytes(1, i, o, p, t),
              "this counts one private part. What each request writes for itself is not shared."),
        Wrong("partly filled block shared",
              paged_shared(num_blocks, lambda i, o, s, p: blocks(i, o, p) - num_blocks(s, p)),
              "you share a block that the prefix only partly fills. Each request goes on writing in it."),
        Wrong("no blocks", lambda b, i, o, s, p, t: (s + b * (i + o - 1 - s)) * t,
              "this is the KV that is written. Requests hold whole blocks, and only full blocks are shared."),
        Wrong("rest of the prefix lost", paged_shared(full, lambda i, o, s, p: num_blocks(i + o - 1 - s, p)),
              "the prefix's tokens after its last full block are nowhere. Who keeps them?"),
        Wrong("last output token counted",
              paged_shared(full, lambda i, o, s, p: num_blocks(i + o, p) - full(s, p)),
              "a block too many where the KV just fills its last block. " + LAST_TOKEN),
        Wrong("prefix shared in tokens",
              lambda b, i, o, s, p, t: independent_bytes(b, i, o, p, t) - (b - 1) * s * t,
              "you share the prefix token by token. Only blocks that it fills completely are shared."),
        Wrong("rounded down",
              paged_shared(full, lambda i, o, s, p: (i + o - 1) // p - full(s, p)), ROUNDED_DOWN),
        Wrong("input and output rounded apart",
              paged_shared(full, lambda i, o, s, p: num_blocks(i, p) - full(s, p) + num_blocks(o - 1, p)),
              ROUNDED_APART),
        Wrong("slots forgotten", lambda b, i, o, s, p, t: shared_bytes(b, i, o, s, p, t) // p, SLOTS_FORGOTTEN),
        Wrong("blocks", lambda b, i, o, s, p, t: shared_bytes(b, i, o, s, p, 1) // p, BLOCKS),
        Wrong("slots", lambda b, i, o, s, p, t: shared_bytes(b, i, o, s, p, 1), SLOTS),
    ),
    hints=(
        "Two kinds of blocks: those that exist once for all, and those that each request has for itself.",
        "Only blocks that the prefix fills completely are common: shared_prefix // block_size of them.",
        "common + requests x (all blocks of one request - common), then to bytes as in part c.",
    ),
)  # fmt: skip
