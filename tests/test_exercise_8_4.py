"""Exercise 8-4: right answers written differently, wrong ones that must fail, and its numbers."""

import pytest
from test_facts import FACTS

from servelab import catalog
from servelab.exercises import find_part
from servelab.exercises.ex_8_4.value import PREFIXES, TFLOPS

# right answers


def saved(p, r, f, m):
    return p * r - p * f - m


def saved_by_cases(hit_probability, recompute_s, fetch_s, maintain_s):
    """Expected time without the prefix, less that with it."""
    without = hit_probability * recompute_s + (1 - hit_probability) * recompute_s
    kept = hit_probability * fetch_s + (1 - hit_probability) * recompute_s + maintain_s
    return without - kept


def saved_from_sizes(flops, size, p, tflops, mfu, link):
    transfer = size / link / 1e9
    return saved(p, flops / tflops / mfu / 1e12, transfer, transfer)


def saved_in_gb(flops, size, p, tflops, mfu, link):
    return p * flops * 1e-12 / (tflops * mfu) - (1 + p) * (size * 1e-9) / link


def tie(o, r, f, m):
    return (m + o) / (r - f)


def tie_by_bisection(o, r, f, m):
    low, high = 0.0, 1.0
    while saved(high, r, f, m) < o:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if saved(middle, r, f, m) < o else (low, middle)
    return high


def shares_by_sums(n, c, h):
    return sum(c) / sum(n), sum(h) / sum(n)


def shares_by_loop(input_tokens, common_tokens, hit_tokens):
    total = common = hits = 0
    for inputs, same, found in zip(input_tokens, common_tokens, hit_tokens, strict=True):
        total, common, hits = total + inputs, common + same, hits + found
    return [common / total, hits / total]


RIGHT = [
    ("8-4a", saved),
    ("8-4a", saved_by_cases),
    ("8-4b", saved_from_sizes),
    ("8-4b", saved_in_gb),
    ("8-4c", tie),
    ("8-4c", tie_by_bisection),
    ("8-4d", "a"),
    ("8-4d", "(A)"),
    ("8-4e", shares_by_sums),
    ("8-4e", shares_by_loop),
    ("8-4f", "c"),
    ("8-4f", " C."),
]

# wrong answers beyond the known ones, typed-in constants first

PLAUSIBLE = {
    "8-4a": [
        lambda p, r, f, m: 0.1332,
        lambda p, r, f, m: saved(0.5, r, f, m),
        lambda p, r, f, m: max(0, saved(p, r, f, m)),
        lambda p, r, f, m: saved(p, r, f, f),
        lambda p, r, f, m: round(saved(p, r, f, m), 2),
        lambda p, r, f, m: p * (r - f - m) - m,
        lambda p, r, f, m: abs(saved(p, r, f, m)),
    ],
    "8-4b": [
        lambda c, s, p, t, u, g: 0.1332118361291347,
        lambda c, s, p, t, u, g: saved_from_sizes(c, s, 0.5, t, u, g),
        lambda c, s, p, t, u, g: saved_from_sizes(c, s, p, 503.8, u, g),
        lambda c, s, p, t, u, g: saved_from_sizes(c, s, p, t, 0.62, g),
        lambda c, s, p, t, u, g: saved_from_sizes(c, s, p, t, u, 64),
        lambda c, s, p, t, u, g: saved_from_sizes(c, s, p, t * 1.024**4, u, g),
        lambda c, s, p, t, u, g: p * c / (t * 1e12 * u) - s / (g * 1e9),
    ],
    "8-4c": [
        lambda o, r, f, m: 0.46,
        lambda o, r, f, m: tie(0, r, f, m),
        lambda o, r, f, m: (o - m) / (r - f),
        lambda o, r, f, m: (o + m) / (r + f),
        lambda o, r, f, m: o / r,
        lambda o, r, f, m: round(tie(o, r, f, m), 2),
        lambda o, r, f, m: (o + f) / (r - f),
    ],
    "8-4e": [
        lambda n, c, h: [0.8373900593168337, 0.8337083248107997],
        lambda n, c, h: [sum(c) / sum(n), sum(c) / sum(n)],
        lambda n, c, h: [sum(c) / sum(n), sum(h[1:]) / sum(n[1:])],
        lambda n, c, h: [sum(c) / (sum(n) + sum(c)), sum(h) / (sum(n) + sum(h))],
        lambda n, c, h: sum(h) / sum(n),
        lambda n, c, h: [round(sum(part) / sum(n), 2) for part in (c, h)],
        lambda n, c, h: [sum(c) / sum(n), (sum(c) - sum(h)) / sum(n)],
    ],
}

# usual mistakes, written as a learner writes them; and in what words they are met

NAMED = [
    ("8-4a", lambda p, r, f, m: p * r - (f + m), "whether it is hit or not"),
    ("8-4a", lambda p, r, f, m: p * (r - (f + m)), "What if it never is?"),
    ("8-4a", lambda p, r, f, m: r - f - m, "How likely is that?"),
    ("8-4b", lambda c, s, p, t, u, g: saved_from_sizes(c, s, p, t, 1, g), "What share of it is reached?"),
    ("8-4b", lambda c, s, p, t, u, g: saved_from_sizes(c, s, p, t, u, g * 2**30 / 1e9), "not GiB"),
    ("8-4b", lambda c, s, p, t, u, g: p * (c / (t * u * 1e12) - s / (g * 1e9)), "brings the prefix into the cache"),
    ("8-4c", lambda o, r, f, m: o / (r - f), "leave out what keeping A costs"),
    ("8-4c", lambda o, r, f, m: m / (r - f), "keeping A pays at all"),
    ("8-4c", lambda o, r, f, m: min((o + m) / (r - f), 1), "do not cut it"),
    ("8-4d", "b", "as many bytes as one A"),
    (
        "8-4e",
        lambda n, c, h: [sum(a / b for a, b in zip(x, n, strict=True)) / len(n) for x in (c, h)],
        "average the shares",
    ),
    ("8-4e", lambda n, c, h: (sum(c) / sum(n), sum(h) / max(1, sum(c))), "share of common tokens"),
    ("8-4f", "d", "What happens between two turns?"),
]


# its numbers, against the chapter's


def test_the_books_numbers():
    values = {case[:2] + case[4:]: 1e3 * saved_from_sizes(*case) for case in find_part("8-4b").book}
    for mfu in (0.62, 0.622):
        for name, fact in (("A", FACTS["evict.value_a_gen5"]), ("B", FACTS["evict.value_b_gen5"])):
            assert values[(*PREFIXES[name], mfu, 64)] == pytest.approx(fact["value"], abs=fact["tol"])
    assert round(TFLOPS, 1) == 503.8
    assert PREFIXES["A"][1] == 3 * PREFIXES["B"][1] == 864 * 2**20
    assert [round(find_part("8-4c").expected(*case), 2) for case in find_part("8-4c").book] == [0.46] * 4


def test_the_right_choices_hold():
    """A is worth more than three B on both links; its tie moves by less than a percentage point."""
    values = {case[:2] + case[4:]: saved_from_sizes(*case) for case in find_part("8-4b").book}
    for link in (64, 32):
        assert values[(*PREFIXES["A"], 0.62, link)] > 3 * values[(*PREFIXES["B"], 0.62, link)] > 0
    load = catalog.record("agent-conditions")
    assert 3 * 4000 > 7280  # tokens of the other load between two turns, and of the pool of 1 GiB
    assert "7,280 (1 GiB)" in load.what
    assert "3 requests of 4000 tokens" in load.what
    assert max(row["input_tokens"] for row in catalog.record("agent-turns").rows) == 3136


def test_shares_are_those_of_the_record():
    common, found = zip(*(find_part("8-4e").expected(*case) for case in find_part("8-4e").book), strict=True)
    assert common == pytest.approx([0.837] * 3, abs=5e-4)
    assert found == pytest.approx([0.834, 0.834, 0], abs=5e-4)
