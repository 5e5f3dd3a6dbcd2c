"""8-5a to 8-5c: memory that offloading frees, and the requests that it makes room for.

In wrong answers, n layers of s bytes are offloaded, with k buffers; r are the bytes of a request, m those of the pool
before, x the bytes that it gains.
"""

from servelab import catalog, memory, offload
from servelab.exercises.mistakes import in_other_units
from servelab.exercises.part import Part, Wrong
from servelab.units import GIB, MIB

MODEL = catalog.model("qwen3-8b")
LAYER_BYTES = offload.ffn_bytes(MODEL)
BOOK = (len(offload.every_nth(MODEL.num_layers, 4)), LAYER_BYTES)  # nine FFNs of 288 MiB
PREFILLED = 8192 * memory.kv_bytes_per_token(MODEL)  # 1,152 MiB
COMPLETE = memory.request_kv_bytes(MODEL, input_tokens=8192, output_tokens=256)  # 1,188 MiB
POOL = 12 * GIB
OTHER_LAYER_BYTES = [offload.ffn_bytes(catalog.model(name)) for name in ("qwen3-0.6b", "llama-3.1-8b", "llama-3.1-70b")]


def net_bytes(layers, layer_bytes, buffers):
    return offload.net_bytes(layer_bytes, layers, buffers)


def gained_alone(layers, layer_bytes, buffers, request_bytes):
    return offload.extra_requests(net_bytes(layers, layer_bytes, buffers), request_bytes)


def gained_in_pool(pool_bytes, extra_bytes, request_bytes):
    return offload.extra_requests(extra_bytes, request_bytes, pool_bytes)


def draw_layers(random):
    layers = random.randint(2, 80)
    return layers, random.choice(OTHER_LAYER_BYTES), random.randint(1, min(4, layers))


def draw_alone(random):
    return *draw_layers(random), random.randint(50, 3000) * MIB


def draw_pool(random):
    """A pool whose rest is large enough to matter about every second time."""
    return random.randint(0, 40 * GIB), random.randint(0, 20 * GIB), random.randint(200, 4000) * MIB


NET = Part(
    id="8-5a",
    title="Net memory for other uses",
    returns="one int, in bytes",
    expected=net_bytes,
    book=tuple((*BOOK, buffers) for buffers in (1, 2)),
    others=((1, 10, 1), (2, 10, 1), (3, 10, 1), (3, 10, 2), (4, 7, 3), (5, 100, 5)),
    draw=draw_layers,
    wrong=(
        *in_other_units(net_bytes),
        Wrong("no buffers", lambda n, s, k: n * s,
              "this is what leaves the accelerator. What must stay there, so that copies have a place to land?"),
        Wrong("always one buffer", lambda n, s, k: (n - 1) * s,
              "right for one buffer. What do two of them take?"),
        Wrong("buffers added", lambda n, s, k: (n + k) * s,
              "buffers lie on the accelerator. Do they raise what is freed, or lower it?"),
        Wrong("buffers alone", lambda n, s, k: k * s,
              "these are the buffers. What is freed, less the buffers, is asked for."),
        Wrong("buffers as bytes", lambda n, s, k: n * s - k,
              "a buffer holds the weights of a whole layer, not one byte."),
        Wrong("buffers for each layer", lambda n, s, k: n * s - n * k * s,
              "the layers take turns in the same buffers. How many buffers are there in all?"),
        Wrong("one layer", lambda n, s, k: s,
              "layer_bytes is one layer. How many are offloaded?"),
    ),
    hints=(
        "Two amounts: what leaves the accelerator, and what has to stay there for copies to land in.",
        "The offloaded layers free layers x layer_bytes. How large is one buffer, and how many are there?",
        "(layers - buffers) x layer_bytes.",
    ),
)  # fmt: skip


def alone(compute):
    """`compute(net, r)` of the right net bytes."""
    return lambda n, s, k, r: compute(net_bytes(n, s, k), r)


ALONE = Part(
    id="8-5b",
    title="Requests that fit into the freed memory alone",
    returns="one int, a number of requests",
    expected=gained_alone,
    book=tuple((*BOOK, buffers, request) for request in (PREFILLED, COMPLETE) for buffers in (1, 2)),
    others=((1, 10, 1, 5), (2, 10, 1, 5), (2, 10, 1, 3), (3, 10, 1, 10), (3, 10, 2, 4), (4, 10, 1, 11), (6, 10, 2, 15)),
    draw=draw_alone,
    wrong=(
        Wrong("no buffers", lambda n, s, k, r: n * s // r,
              "you leave out the buffers. Requests get what is left after them."),
        Wrong("always one buffer", lambda n, s, k, r: (n - 1) * s // r,
              "right for one buffer. What do two of them take?"),
        Wrong("rounded up", alone(lambda net, r: -(-net // r)),
              "the last of these requests finds too little room. Round down."),
        Wrong("rounded to the nearest", alone(lambda net, r: round(net / r)),
              "rounding to the nearest number sometimes lets in a request that does not fit. Round down."),
        Wrong("not rounded", alone(lambda net, r: net / r), "a request fits whole or not at all."),
        Wrong("rounded apart", lambda n, s, k, r: n * s // r - k * s // r,
              "you round freed bytes and buffers apart. Subtract bytes first, then count requests."),
        Wrong("bytes left over", alone(lambda net, r: net % r),
              "these are the bytes left over when no further request fits. How many requests fit?"),
        Wrong("net bytes", alone(lambda net, r: net), "these are bytes. How many requests fit into them?"),
        Wrong("layer by layer", lambda n, s, k, r: (n - k) * (s // r),
              "you count requests layer by layer. Freed bytes count together, wherever they lie."),
    ),
    hints=(
        "How many bytes are free for requests? You have a function for that.",
        "How many whole requests go into these bytes?",
        "net_bytes(layers, layer_bytes, buffers) // request_bytes.",
    ),
)  # fmt: skip

IN_POOL = Part(
    id="8-5c",
    title="Requests that a pool gains",
    returns="one int, a number of requests",
    expected=gained_in_pool,
    book=tuple((pool, (9 - buffers) * LAYER_BYTES, request)
               for pool in (0, POOL) for request in (PREFILLED, COMPLETE) for buffers in (1, 2)),
    others=((0, 5, 5), (3, 2, 5), (3, 1, 5), (4, 4, 3), (5, 3, 4), (10, 6, 4), (7, 9, 5), (12, 0, 5)),
    draw=draw_pool,
    wrong=(
        Wrong("freed bytes alone", lambda m, x, r: x // r,
              "this is what fits into the new bytes alone. Was every byte of the pool taken before?"),
        Wrong("all requests", lambda m, x, r: (m + x) // r,
              "this is how many fit now. How many of them fitted before?"),
        Wrong("before", lambda m, x, r: m // r, "this is how many fitted before. How many more fit now?"),
        Wrong("one more than alone", lambda m, x, r: x // r + 1,
              "the rest of the pool makes it one more in some cases only. In which ones?"),
        Wrong("not rounded", lambda m, x, r: x / r,
              "a request fits whole or not at all, before as well as now."),
        Wrong("rests alone", lambda m, x, r: (m % r + x % r) // r,
              "this is what the rests make together. The new bytes may hold whole requests besides."),
        Wrong("rounded up", lambda m, x, r: -(-(m + x) // r) + -m // r,
              "you round up. A request that fits only in part does not fit."),
        Wrong("rounded to the nearest", lambda m, x, r: round((m + x) / r) - round(m / r),
              "rounding to the nearest number sometimes lets in a request that does not fit. Round down."),
        Wrong("the other way round", lambda m, x, r: m // r - (m + x) // r,
              "right but for the sign: requests now minus requests before."),
    ),
    hints=(
        "A pool seldom divides into whole requests. What happens to the bytes left over when it grows?",
        "How many requests fit before, how many after? Each of the two is a whole number.",
        "(pool_bytes + extra_bytes) // request_bytes - pool_bytes // request_bytes.",
    ),
)  # fmt: skip
