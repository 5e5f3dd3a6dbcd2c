"""8-1a and 8-1b: bytes read for each output token, and where KV reads reach weight reads.

In wrong answers, b is the batch, n the context, w the bytes of all weights and t the bytes of a token's KV.
"""

from servelab import batching, catalog, memory
from servelab.exercises.mistakes import in_other_units
from servelab.exercises.part import Part, Wrong

MODELS = [catalog.model(name) for name in ("qwen3-8b", "qwen3-0.6b", "qwen3-32b", "llama-3.1-8b", "llama-3.1-70b")]
SIZES = [(batching.weight_read_bytes(model), memory.kv_bytes_per_token(model)) for model in MODELS]
BOOK = SIZES[0]  # Qwen3-8B


def read_per_token(batch, context, weight_bytes, token_bytes):
    return weight_bytes / batch + context * token_bytes


def crossing_batch(context, weight_bytes, token_bytes):
    return -(-weight_bytes // (context * token_bytes))


def draw_reads(random):
    return random.randint(1, 200), random.randint(100, 40000), *random.choice(SIZES[1:])


READS = Part(
    id="8-1a",
    title="Bytes read for each output token",
    returns="one number, in bytes",
    expected=read_per_token,
    book=tuple((batch, context, *BOOK) for context in (2048, 8192) for batch in (1, 4, 16, 64)),
    others=((1, 1, 10, 1), (2, 3, 10, 1), (4, 1, 10, 2), (4, 3, 2, 5), (3, 10, 100, 7)),
    draw=draw_reads,
    wrong=(
        *in_other_units(read_per_token),
        Wrong("the whole step", lambda b, n, w, t: w + b * n * t,
              "this is what the whole step reads. How many output tokens does a step give?"),
        Wrong("KV of the whole batch", lambda b, n, w, t: w / b + b * n * t,
              "the weights are shared out. Whose KV is read for one output token: that of every request?"),
        Wrong("KV shared out too", lambda b, n, w, t: (w + n * t) / b,
              "you divide the KV by the batch as well. Do other requests use this request's KV?"),
        Wrong("weights not shared out", lambda b, n, w, t: w + n * t,
              "this is right for a batch of one. How many requests share one read of the weights?"),
        Wrong("weights only", lambda b, n, w, t: w / b,
              "this is the share of the weights. Attention reads something else for this token."),
        Wrong("KV only", lambda b, n, w, t: n * t,
              "this is the KV. The weights are read too, although once for the whole batch."),
        Wrong("KV of one token", lambda b, n, w, t: w / b + t,
              "token_bytes is the KV of one token. How many tokens' KV does attention read?"),
        Wrong("K and V twice", lambda b, n, w, t: w / b + 2 * n * t,
              "too much KV: token_bytes already counts K and V, in all layers."),
        Wrong("whole bytes", lambda b, n, w, t: w // b + n * t,
              "an average need not be a whole number of bytes. Where does yours lose the rest?"),
    ),
    hints=(
        "What does one decode step read for the whole batch? How many output tokens does it give?",
        "The weights are read once a step, whatever the batch is. The KV is read for each request.",
        "(weight_bytes + batch x context x token_bytes) / batch; one of the two terms loses its batch.",
    ),
)  # fmt: skip


def next_power_of_two(batch):
    return 1 << (batch - 1).bit_length()


CROSSING = Part(
    id="8-1b",
    title="The batch at which KV reads reach the weight reads",
    returns="one int, a number of requests",
    expected=crossing_batch,
    book=tuple((context, *BOOK) for context in (2048, 8192)),
    others=((1, 1, 1), (1, 4, 1), (2, 8, 2), (2, 9, 2), (3, 10, 1), (5, 4, 1), (4, 50, 2)),
    draw=lambda random: draw_reads(random)[1:],
    wrong=(
        Wrong("rounded down", lambda n, w, t: w // (n * t),
              "at this batch KV reads are still short of the weights, unless they meet exactly."),
        Wrong("rounded to the nearest", lambda n, w, t: round(w / (n * t)),
              "rounding to the nearest number sometimes gives a batch at which KV reads are still short."),
        Wrong("not rounded", lambda n, w, t: w / (n * t),
              "this is where the two are equal. A batch is a whole number of requests: which is the first one?"),
        Wrong("must pass", lambda n, w, t: w // (n * t) + 1,
              "one too many where the two meet exactly: reaching the weights is enough."),
        Wrong("the one before", lambda n, w, t: crossing_batch(n, w, t) - 1,
              "this is the last batch that reads more weights than KV. The one after it is asked for."),
        Wrong("a power of two", lambda n, w, t: next_power_of_two(crossing_batch(n, w, t)),
              "KV reads have passed the weights by then. The batch need not be a power of two."),
        Wrong("context forgotten", lambda n, w, t: -(-w // t),
              "token_bytes is for one token. Attention reads the KV of the whole context."),
        Wrong("upside down", lambda n, w, t: -(-n * t // w),
              "you divide KV by weights. How many requests' KV are as much as the weights?"),
        Wrong("K and V twice", lambda n, w, t: -(-w // (2 * n * t)),
              "about half: token_bytes already counts K and V, in all layers."),
    ),
    hints=(
        "Compare, for one step of the whole batch, the bytes of KV with the bytes of weights. Which one grows?",
        "KV reads are batch x context x token_bytes. From which batch on are they at least weight_bytes?",
        "Divide weight_bytes by one request's KV and round up: -(-a // b) does it with whole numbers.",
    ),
)  # fmt: skip
