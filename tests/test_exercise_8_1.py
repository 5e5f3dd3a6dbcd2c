"""Exercise 8-1: right answers written differently, wrong ones that must fail, and its numbers."""

import itertools
import math
from fractions import Fraction

import numpy as np

from servelab import batching, catalog, memory
from servelab.exercises import find_part
from servelab.exercises.judge import judge
from servelab.units import GIB

# right answers


def read_by_step(batch, context, weight_bytes, token_bytes):
    return (weight_bytes + sum(context * token_bytes for _ in range(batch))) / batch


def read_as_fraction(b, n, w, t):
    return Fraction(w, b) + n * t


def crossing_by_counting(context, weight_bytes, token_bytes):
    for batch in itertools.count(1):
        if batch * context * token_bytes >= weight_bytes:
            return batch


def crossing_by_remainder(n, w, t):
    full, rest = divmod(w, n * t)
    return np.int64(full + (rest > 0))


def capacity_by_filling(pool_bytes, input_tokens, output_tokens, block_size, token_bytes):
    left = pool_bytes // (block_size * token_bytes)
    each, requests = math.ceil((input_tokens + output_tokens - 1) / block_size), 0
    while left >= each:
        left, requests = left - each, requests + 1
    return requests


def capacity_at_once(m, i, o, p, t):
    written = i + o - 1
    return m // ((written + -written % p) * t)


def short_by_if(m, i, o, p, w, t):
    fit, crossing = capacity_at_once(m, i, o, p, t), crossing_by_remainder(i, w, t)
    return 0 if fit >= crossing else crossing - fit


def short_by_range(m, i, o, p, w, t):
    return len(range(capacity_at_once(m, i, o, p, t), -(-w // (i * t))))


RIGHT = [
    ("8-1a", read_by_step),
    ("8-1a", read_as_fraction),
    ("8-1b", crossing_by_counting),
    ("8-1b", crossing_by_remainder),
    ("8-1c", capacity_by_filling),
    ("8-1c", capacity_at_once),
    ("8-1d", short_by_if),
    ("8-1d", short_by_range),
    ("8-1e", "c"),
    ("8-1e", "(C)"),
]


# wrong answers beyond the known ones, typed-in constants first

W, T = 15_136_811_008, 147_456

PLAUSIBLE = {
    "8-1a": [
        lambda b, n, w, t: 1248040576.0,
        lambda b, n, w, t: W / b + n * T,
        lambda b, n, w, t: w / b + 8192 * t,
        lambda b, n, w, t: w / b + (n + 1) * t,
        lambda b, n, w, t: w / b + n * t / 2,
        lambda b, n, w, t: w + n * t / b,
        lambda b, n, w, t: [w / b, n * t],
        lambda b, n, w, t: max(w / b, n * t),
    ],
    "8-1b": [
        lambda n, w, t: 51 if n == 2048 else 13,
        lambda n, w, t: math.ceil(W / (n * T)),
        lambda n, w, t: math.ceil(w / (n * T)),
        lambda n, w, t: math.ceil(w / ((n + 1) * t)),
        lambda n, w, t: float(math.ceil(w / (n * t))),
        lambda n, w, t: math.ceil(round(w / 2**30, 1) / (n * t / 2**30)),
        lambda n, w, t: math.ceil(math.sqrt(w / (n * t))),
    ],
    "8-1c": [
        lambda m, i, o, p, t: 37 if i == 2048 else 10,
        lambda m, i, o, p, t: capacity_at_once(m, i, o, p, T),
        lambda m, i, o, p, t: capacity_at_once(m, i, o, 16, t),
        lambda m, i, o, p, t: capacity_at_once(m, i, 256, p, t),
        lambda m, i, o, p, t: capacity_at_once(12 * GIB, i, o, p, t),
        lambda m, i, o, p, t: capacity_at_once(m, i, o + 2, p, t),
        lambda m, i, o, p, t: capacity_at_once(m, i, max(o, 2), p, t),
        lambda m, i, o, p, t: m // ((math.ceil(i / p) + math.ceil(o / p)) * p * t),
        lambda m, i, o, p, t: m // ((i + o - 1) // p * p * t) if i + o > p else 0,
        lambda m, i, o, p, t: float(capacity_at_once(m, i, o, p, t)),
    ],
    "8-1d": [
        lambda m, i, o, p, w, t: 14 if i == 2048 else 3,
        lambda m, i, o, p, w, t: 0,
        lambda m, i, o, p, w, t: short_by_if(m, i, o, p, W, T),
        lambda m, i, o, p, w, t: short_by_if(12 * GIB, i, o, p, w, t),
        lambda m, i, o, p, w, t: short_by_if(m, i, 256, 16, w, t),
        lambda m, i, o, p, w, t: short_by_if(m, i, o, p, w, t) > 0,
        lambda m, i, o, p, w, t: min(capacity_at_once(m, i, o, p, t), math.ceil(w / (i * t))),
        lambda m, i, o, p, w, t: max(1, math.ceil(w / (i * t)) - capacity_at_once(m, i, o, p, t)),
    ],
}


# usual mistakes, written as a learner writes them; and in what words they are met

NAMED = [
    ("8-1a", lambda b, n, w, t: read_by_step(b, n, w, t) / 2**30, "this is in GiB."),
    ("8-1a", lambda b, n, w, t: b * read_by_step(b, n, w, t), "How many output tokens does a step give?"),
    ("8-1a", lambda b, n, w, t: w / b + n * t / b, "Do other requests use this request's KV?"),
    ("8-1b", lambda n, w, t: int(w / n / t), "still short of the weights"),
    ("8-1b", lambda n, w, t: math.floor(w / (n * t) + 1), "reaching the weights is enough"),
    ("8-1b", lambda n, w, t: math.ceil(n * t / w), "you divide KV by weights"),
    ("8-1c", lambda m, i, o, p, t: m // (math.ceil((i + o - 1) / p) * t), "For how many tokens"),
    ("8-1c", lambda m, i, o, p, t: m // (math.ceil(i / p) * p * t), "while they have only their input"),
    ("8-1c", lambda m, i, o, p, t: m // (math.ceil((i + o) / p) * p * t), "never fed back?"),
    ("8-1c", lambda m, i, o, p, t: math.ceil(m / t / p / math.ceil((i + o - 1) / p)), "finds too little room."),
    ("8-1d", lambda m, i, o, p, w, t: -(-w // (i * t)) - capacity_at_once(m, i, o, p, t), "fits, none is missing."),
    ("8-1d", lambda m, i, o, p, w, t: max(0, w // (i * t) - capacity_at_once(m, i, o, p, t)), "rounded down"),
    ("8-1d", lambda m, i, o, p, w, t: max(0, -(-w // i // t) - m // (-(-i // p) * p * t)), "holds inputs only"),
]


def test_the_picture_shows_what_finished_requests_hold():
    text = judge(find_part("8-1c"), lambda m, i, o, p, t: capacity_at_once(m, i, o, p, t) + (p == 4)).text
    assert "pool_bytes = 100, input_tokens = 20, output_tokens = 2, block_size = 4" in text
    assert text.endswith("pool [aaaa][aaaa]\n    does not fit [aaaa][aaaa][aaaa][a...]")


# its numbers, against the library


def test_checks_agree_with_the_library():
    model = catalog.model("qwen3-8b")
    for part_id in "abcd":
        part = find_part(f"8-1{part_id}")
        assert part.book[0][-1] == memory.kv_bytes_per_token(model)
    for case in find_part("8-1a").book:
        assert find_part("8-1a").expected(*case) == batching.read_bytes_per_token(model, *case[:2])
    for context, *_ in find_part("8-1b").book:
        assert find_part("8-1b").expected(context, W, T) == batching.crossover_batch(model, context)
    for pool_bytes, inputs, outputs, block_size, _ in find_part("8-1c").book:
        expected = memory.max_requests(pool_bytes, model, inputs, outputs, block_size)
        assert find_part("8-1c").expected(pool_bytes, inputs, outputs, block_size, T) == expected
    assert [find_part("8-1d").expected(*case) for case in find_part("8-1d").book] == [51 - 37, 13 - 10]


def test_the_right_choice_holds_at_both_lengths():
    """Memory is full first, and the weights are the larger part of the reads then."""
    for pool_bytes, inputs, outputs, block_size, weights, token in find_part("8-1d").book:
        fit = capacity_at_once(pool_bytes, inputs, outputs, block_size, token)
        assert fit < crossing_by_remainder(inputs, weights, token)
        assert weights / fit > inputs * token
