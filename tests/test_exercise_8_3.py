"""Exercise 8-3: right answers written differently, wrong ones that must fail, and its numbers."""

import math

import numpy as np

from servelab import catalog, memory
from servelab.exercises import find_part
from servelab.exercises.judge import judge
from servelab.units import MIB

# right answers


def slots_by_remainder(lengths, block_size):
    return np.array([-length % block_size for length in lengths])


def slots_by_filling(lengths, block_size):
    free = []
    while lengths:  # empties the list it was given
        length, slots = lengths.pop(0), 0
        while slots < length:
            slots += block_size
        free.append(slots - length)
    return tuple(free)


def totals_by_ceil(lengths, block_size):
    entries = [math.ceil(length / block_size) for length in lengths]
    return [sum(entries) * block_size - sum(lengths), sum(entries)]


def totals_by_divmod(lengths, block_size):
    unused, entries = 0, 0
    for length in lengths:
        full, begun = divmod(length, block_size)
        entries += full + (begun > 0)
        unused += block_size - begun if begun else 0
    return np.int64(unused), np.int64(entries)


def independent_by_ceil(requests, inputs, outputs, block_size, token_bytes):
    return requests * math.ceil((inputs + outputs - 1) / block_size) * block_size * token_bytes


def independent_by_padding(b, i, o, p, t):
    written = i + o - 1
    return np.int64(b * t * (written + -written % p))


def shared_by_saving(b, i, o, prefix, p, t):
    return independent_by_ceil(b, i, o, p, t) - (b - 1) * (prefix - prefix % p) * t


def shared_by_parts(requests, inputs, outputs, prefix, block_size, token_bytes):
    common_tokens = prefix // block_size * block_size
    private = math.ceil((inputs + outputs - 1 - common_tokens) / block_size) * block_size
    return token_bytes * common_tokens + requests * private * token_bytes


def saved_by_totals(b):
    common, private = 384, 144
    return (common + b * private) - (common + 1 + b * (private - 1))


RIGHT = [
    ("8-3a", slots_by_remainder),
    ("8-3a", slots_by_filling),
    ("8-3b", totals_by_ceil),
    ("8-3b", totals_by_divmod),
    ("8-3c", independent_by_ceil),
    ("8-3c", independent_by_padding),
    ("8-3d", shared_by_saving),
    ("8-3d", shared_by_parts),
    ("8-3e", saved_by_totals),
    ("8-3e", lambda requests: len(range(1, requests))),
    ("8-3f", "c"),
    ("8-3f", "C."),
]


# wrong answers beyond the known ones, typed-in constants first

PLAUSIBLE = {
    "8-3a": [
        lambda lengths, p: {2: [1, 1, 1, 1], 4: [3, 3, 3, 1], 8: [7, 3, 3, 1]}[p],
        lambda lengths, p: [3, 3, 3, 1],
        lambda lengths, p: [1] * len(lengths),
        lambda lengths, p: sorted(-n % p for n in lengths),
        lambda lengths, p: [-n % 4 for n in lengths],
        lambda lengths, p: [-n % p for n in (9, 13, 5, 15)],
        lambda lengths, p: [-n % p for n in lengths[:4]],
        lambda lengths, p: [max(0, p - n) for n in lengths],
        lambda lengths, p: [(-n % p) / p for n in lengths],
        lambda lengths, p: [round(n / p) * p - n for n in lengths],
    ],
    "8-3b": [
        lambda lengths, p: {2: (4, 23), 4: (10, 13), 8: (14, 7)}[p],
        lambda lengths, p: (10, 13),
        lambda lengths, p: {2: (4, 23), 4: (10, 13), 8: (14, 7)}.get(p, (0, sum(lengths))),
        lambda lengths, p: (len(lengths) * (p - 1), math.ceil(sum(lengths) / p)),
        lambda lengths, p: (sum(-n % p for n in lengths), math.ceil(sum(lengths) / p)),
        lambda lengths, p: (sum(-n % p for n in lengths), sum(-(-n // p) for n in lengths), 0),
        lambda lengths, p: sum(-n % p for n in lengths) + sum(-(-n // p) for n in lengths),
        lambda lengths, p: (sum(-n % p for n in lengths), max(-(-n // p) for n in lengths)),
    ],
    "8-3c": [
        lambda b, i, o, p, t: b * 1188 * MIB,
        lambda b, i, o, p, t: 19008 * MIB,
        lambda b, i, o, p, t: {8: 9504, 16: 19008, 32: 38016}[b] * MIB,
        lambda b, i, o, p, t: independent_by_ceil(b, i, o, p, 147456),
        lambda b, i, o, p, t: independent_by_ceil(b, i, o, 16, t),
        lambda b, i, o, p, t: independent_by_ceil(b, i, 256, p, t),
        lambda b, i, o, p, t: b * (math.ceil(i / p) + math.ceil((o - 1) / p)) * p * t,
        lambda b, i, o, p, t: b * math.ceil((i + o - 1) / p) * t,
        lambda b, i, o, p, t: float(independent_by_ceil(b, i, o, p, t)),
        lambda b, i, o, p, t: b * math.ceil((i - 1) / p) * p * t,
        lambda b, i, o, p, t: independent_by_ceil(b, i, max(o, 2), p, t),
    ],
    "8-3d": [
        lambda b, i, o, s, p, t: (864 + 324 * b) * MIB,
        lambda b, i, o, s, p, t: 6048 * MIB,
        lambda b, i, o, s, p, t: {8: 3456, 16: 6048, 32: 11232}[b] * MIB,
        lambda b, i, o, s, p, t: shared_by_parts(b, i, o, 6144, p, t),
        lambda b, i, o, s, p, t: shared_by_parts(b, i, o, s, 16, t),
        lambda b, i, o, s, p, t: shared_by_parts(b, i, o + 2, s, p, t),
        lambda b, i, o, s, p, t: independent_by_ceil(b, i, o, p, t) - s * t,
        lambda b, i, o, s, p, t: independent_by_ceil(b, i, o, p, t) - b * s // p * p * t,
        lambda b, i, o, s, p, t: shared_by_parts(b, i, max(o, 2), s, p, t),
        lambda b, i, o, s, p, t: (s // p + (b - 1) * math.ceil((i + o - 1 - s) / p)) * p * t,
    ],
    "8-3e": [
        lambda b: 15,
        lambda b: {8: 7, 16: 15, 32: 31}[b],
        lambda b: b - 1 if b >= 2 else 1,
        lambda b: b - 1 if b in (8, 16, 32) else b,
        lambda b: 2 * (b - 1),
        lambda b: float(b - 1),
        lambda b: (b - 1) * 16,
        lambda b: b * (b - 1) // 2,
    ],
}


# usual mistakes, written as a learner writes them; and in what words they are met

NAMED = [
    ("8-3c", lambda b, i, o, p, t: b * math.ceil((i + o - 1) / p) * t, "For how many tokens does a block have room?"),
    ("8-3c", lambda b, i, o, p, t: b * math.ceil((i + o - 1) / p), "these are blocks."),
    ("8-3c", lambda b, i, o, p, t: b * (-(-i // p) - (1 - o) // p) * p * t, "round input and output up apart."),
    ("8-3c", lambda b, i, o, p, t: b * (-(-i // p) - -o // p) * p * t, "not every output token is fed back."),
    ("8-3c", lambda b, i, o, p, t: independent_by_ceil(b, i, o, p, t) / 1024, "this is in KiB."),
    ("8-3c", lambda b, i, o, p, t: independent_by_ceil(b, i, o, p, t) / 1e6, "this is in MB."),
    ("8-3d", lambda b, i, o, s, p, t: (s // p + b * ((i + o - 1) // p - s // p)) * p * t, "partly filled last block."),
    ("8-3d", lambda b, i, o, s, p, t: independent_by_ceil(b, i, o, p, t) - (b - 1) * s * t, "token by token."),
    ("8-3d", lambda b, i, o, s, p, t: shared_by_parts(b, i, o, s, p, t) // p, "For how many tokens"),
    ("8-3d", lambda b, i, o, s, p, t: shared_by_parts(b, i, o, s, p, 1) // p, "these are blocks."),
    ("8-3d", lambda b, i, o, s, p, t: (s // p + b * (-(-i // p) - s // p - (1 - o) // p)) * p * t, "up apart."),
    ("8-3d", lambda b, i, o, s, p, t: shared_by_parts(b, i, o, s, p, t) // 1024, "this is in KiB."),
    ("8-3d", lambda b, i, o, s, p, t: shared_by_parts(b, i, o, s, p, t) // 10**6, "this is in MB."),
]


def test_one_output_token_writes_no_kv():
    """It comes from the prefill; the smallest input that shows it has a full last block."""
    text = judge(find_part("8-3c"), lambda b, i, o, p, t: independent_by_ceil(b, i, max(o, 2), p, t)).text
    assert "requests = 2, input_tokens = 4, output_tokens = 1, block_size = 4, token_bytes = 10" in text
    text = judge(find_part("8-3d"), lambda b, i, o, s, p, t: shared_by_parts(b, i, max(o, 2), s, p, t)).text
    assert "input_tokens = 8, output_tokens = 1, shared_prefix = 4, block_size = 4, token_bytes = 10" in text


def test_pictures_show_what_the_answer_means():
    text = judge(find_part("8-3a"), lambda lengths, p: [2 - n % 2 if n == 1 else 2 for n in lengths]).text
    assert text.endswith("[##][..]")  # two tokens, two slots too many in blocks of two
    text = judge(find_part("8-3e"), lambda b: b - 1 if b == 1 else b + 5).text
    assert text.endswith("#0  #1  #2  #3\n    #0  #4  #5  #6")


# its numbers, against the library


def test_checks_agree_with_the_library():
    for case in find_part("8-3c").cases() + find_part("8-3d").cases():
        *_, token_bytes = case
        names = ("qwen3-8b", "qwen3-0.6b", "llama-3.1-70b")
        models = [model for model in map(catalog.model, names) if memory.kv_bytes_per_token(model) == token_bytes]
        for model in models:
            requests, inputs, outputs, *prefix, block_size, _ = case
            part = find_part("8-3d" if prefix else "8-3c")
            expected = memory.batch_kv_bytes(
                model, requests, inputs, outputs, block_size, shared_prefix=prefix[0] if prefix else 0
            )
            assert part.expected(*case) == expected
