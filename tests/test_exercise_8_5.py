"""Exercise 8-5: right answers written differently, wrong ones that must fail, and its numbers."""

import math
from fractions import Fraction

import numpy as np
import pytest

from servelab import catalog
from servelab.exercises import find_part
from servelab.exercises.ex_8_5.room import COMPLETE, LAYER_BYTES, PREFILLED
from servelab.units import GB, GIB, MIB

# right answers


def net_by_difference(layers, layer_bytes, buffers):
    return np.int64(layer_bytes) * (layers - buffers)


def net_by_adding(n, s, k):
    return sum(s for _ in range(k, n))


def alone_by_filling(layers, layer_bytes, buffers, request_bytes):
    left, requests = layers * layer_bytes - buffers * layer_bytes, 0
    while left >= request_bytes:
        left, requests = left - request_bytes, requests + 1
    return requests


def alone_by_floor(n, s, k, r):
    return math.floor(Fraction((n - k) * s, r))


def gained_by_rest(m, x, r):
    return (m % r + x) // r


def gained_by_counting(pool_bytes, extra_bytes, request_bytes):
    requests = pool_bytes // request_bytes
    more = 0
    while (requests + more + 1) * request_bytes <= pool_bytes + extra_bytes:
        more += 1
    return more


def floor_by_step(layers, layer_bytes, steps, gb_per_s):
    return sum([layers * layer_bytes / 1e9 / gb_per_s] * steps)


def floor_as_fraction(n, s, z, g):
    return Fraction(n * s * z, 10**9) / Fraction(g)


def needed_by_step(layers, layer_bytes, steps, seconds):
    return layers * layer_bytes / (seconds / steps) / 1e9


def needed_by_numpy(n, s, z, t):
    return np.float64(n * s * z) / np.float64(t * 1e9)


RIGHT = [
    ("8-5a", net_by_difference),
    ("8-5a", net_by_adding),
    ("8-5b", alone_by_filling),
    ("8-5b", alone_by_floor),
    ("8-5c", gained_by_rest),
    ("8-5c", gained_by_counting),
    ("8-5d", floor_by_step),
    ("8-5d", floor_as_fraction),
    ("8-5e", needed_by_step),
    ("8-5e", needed_by_numpy),
    ("8-5f", "a"),
    ("8-5f", " A. "),
]


# wrong answers beyond the known ones, typed-in constants first

PLAUSIBLE = {
    "8-5a": [
        lambda n, s, k: 2304 * MIB if k == 1 else 2016 * MIB,
        lambda n, s, k: (9 - k) * s,
        lambda n, s, k: (n - k) * 288 * MIB,
        lambda n, s, k: (36 - n - k) * s,
        lambda n, s, k: float((n - k) * s),
        lambda n, s, k: (n - k - 1) * s,
        lambda n, s, k: n * s / k,
        lambda n, s, k: (n - 2) * s,
    ],
    "8-5b": [
        lambda n, s, k, r: 2 if k == 1 and r == 1152 * MIB else 1,
        lambda n, s, k, r: (9 - k) * s // r,
        lambda n, s, k, r: (n - k) * s // (1188 * MIB),
        lambda n, s, k, r: max(1, (n - k) * s // r),
        lambda n, s, k, r: float((n - k) * s // r),
        lambda n, s, k, r: (n - k) * s // (r * k),
        lambda n, s, k, r: ((n - k) * s - 1) // r,
        lambda n, s, k, r: (n - 2) * s // r,
    ],
    "8-5c": [
        lambda m, x, r: 2,
        lambda m, x, r: x // r + (m > 0),
        lambda m, x, r: (12 * GIB + x) // r - 12 * GIB // r,
        lambda m, x, r: (m + x) // (1152 * MIB) - m // (1152 * MIB),
        lambda m, x, r: max(x // r, m % r // r),
        lambda m, x, r: (m + x) / r - m // r,
        lambda m, x, r: (m + x) // r - -(-m // r),
        lambda m, x, r: min(2, (m + x) // r - m // r),
    ],
    "8-5d": [
        lambda n, s, z, g: {64: 0.042467328, 450: 0.00603979776}.get(g, 1) * z,
        lambda n, s, z, g: round(floor_by_step(n, s, z, g), 3),
        lambda n, s, z, g: floor_by_step(9, s, z, g),
        lambda n, s, z, g: floor_by_step(n, s, 255, g),
        lambda n, s, z, g: floor_by_step(n, s, z, 64),
        lambda n, s, z, g: max(0.02626 * z, floor_by_step(n, s, z, g)),
        lambda n, s, z, g: n * s * z / g,
        lambda n, s, z, g: n * s * g * 1e9 / z,
    ],
    "8-5e": [
        lambda n, s, z, t: 693.06679296 / t,
        lambda n, s, z, t: 693.07 if t == 1 else 99.01,
        lambda n, s, z, t: round(needed_by_step(n, s, z, t), 2),
        lambda n, s, z, t: needed_by_step(n, s, 255, t),
        lambda n, s, z, t: needed_by_step(9, s, z, t),
        lambda n, s, z, t: needed_by_step(n - 1, s, z, t),
        lambda n, s, z, t: t * 1e9 / (n * s * z),
        lambda n, s, z, t: math.ceil(needed_by_step(n, s, z, t)),
    ],
}


# usual mistakes, written as a learner writes them; and in what words they are met

NAMED = [
    ("8-5a", lambda n, s, k: n * s, "a place to land?"),
    ("8-5a", lambda n, s, k: (n - k) * s / 1024**2, "this is in MiB."),
    ("8-5b", lambda n, s, k, r: n * s // r, "you leave out the buffers"),
    ("8-5b", lambda n, s, k, r: math.ceil((n - k) * s / r), "finds too little room"),
    ("8-5c", lambda m, x, r: int(x / r), "fits into the new bytes alone"),
    ("8-5c", lambda m, x, r: (m + x) // r, "how many fit now"),
    ("8-5d", lambda n, s, z, g: n * s * z / (g * 2**30), "10**9 bytes, not GiB"),
    ("8-5d", lambda n, s, z, g: n * (s / 2**20) * z / (g * 1000), "MiB for MB"),
    ("8-5d", lambda n, s, z, g: n * s * 8 * z / (g * 1e9), "in bytes, not bits"),
    ("8-5d", lambda n, s, z, g: n * s / (g * 1e9), "right for one step"),
    ("8-5e", lambda n, s, z, t: n * s * z / t / 2**30, "this is in GiB/s"),
    ("8-5e", lambda n, s, z, t: n * s * z / t, "this is in bytes a second"),
    ("8-5e", lambda n, s, z, t: n * s * (z + 1) / t / 1e9, "one step too many"),
]


# its numbers, against the chapter's


def test_the_books_numbers():
    assert (LAYER_BYTES, PREFILLED, COMPLETE) == (288 * MIB, 1152 * MIB, 1188 * MIB)
    values = {letter: [find_part(f"8-5{letter}").expected(*case) for case in find_part(f"8-5{letter}").book]
              for letter in "abcde"}  # fmt: skip
    assert values["a"] == [2304 * MIB, 2016 * MIB]
    assert values["b"] == [2, 1, 1, 1]
    assert values["c"] == [2, 1, 1, 1, 2, 2, 2, 2]
    assert values["d"] == pytest.approx([0.0425, 10.83, 0.00604, 1.54], rel=1e-3)
    assert values["e"] == pytest.approx([693.07, 99.01], abs=0.005)


def test_the_links_are_those_of_the_catalog():
    links = [catalog.link(name).bandwidth for name in ("pcie5-x16", "nvlink-c2c")]
    assert sorted({gb_per_s * GB for *_, gb_per_s in find_part("8-5d").book}) == links
