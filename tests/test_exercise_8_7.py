"""Exercise 8-7: right answers written differently, wrong ones that must fail, and its numbers."""

import itertools
import math

import pytest
from test_facts import FACTS

from servelab.exercises import find_part

# right answers


def tokens_by_formula(a, m):
    return (1 - a ** (m + 1)) / (1 - a)


def tokens_by_chance(acceptance, draft_length):
    """The mean over how many draft tokens are accepted."""
    stops = [acceptance**k * (1 - acceptance) * (k + 1) for k in range(draft_length)]
    return sum(stops) + acceptance**draft_length * (draft_length + 1)


def price(a, m, v, d):
    return (v + d * m) / tokens_by_formula(a, m)


def price_by_adding(a, m, v, d):
    total = v
    for _ in range(m):
        total += d
    return total / tokens_by_chance(a, m)


def grouped_by_ceil(a, m, v, d, g):
    return price(a, g * math.ceil(m / g), v, d) * tokens_by_formula(a, g * math.ceil(m / g)) / tokens_by_formula(a, m)


def grouped_by_loop(a, m, v, d, g):
    positions = 0
    while positions < m:
        positions += g
    return (v + d * positions) / tokens_by_chance(a, m)


def added(a, m, n, v, d, g):
    groups = math.ceil(n / g) - math.ceil(m / g)
    return d * g * groups / sum(a**k for k in range(m + 1, n + 1))


def added_by_rounds(a, m, n, v, d, g):
    long, short = (grouped_by_loop(a, k, v, d, g) * tokens_by_chance(a, k) for k in (n, m))
    return (long - short) / (tokens_by_chance(a, n) - tokens_by_chance(a, m))


def best_by_min(a, n, v, d, g):
    return min(range(n + 1), key=lambda m: grouped_by_ceil(a, m, v, d, g))


def best_by_marginal(a, n, v, d, g):
    """From no draft on, to each longer one that pays."""
    best = 0
    for m in itertools.islice(itertools.count(1), n):
        more = tokens_by_chance(a, m) - tokens_by_chance(a, best)
        if more and added(a, best, m, v, d, g) < grouped_by_loop(a, best, v, d, g):
            best = m
    return best


RIGHT = [
    ("8-7a", tokens_by_formula),
    ("8-7a", tokens_by_chance),
    ("8-7b", price),
    ("8-7b", price_by_adding),
    ("8-7c", grouped_by_ceil),
    ("8-7c", grouped_by_loop),
    ("8-7d", added),
    ("8-7d", added_by_rounds),
    ("8-7e", "b"),
    ("8-7e", "(B)"),
    ("8-7f", best_by_min),
    ("8-7f", best_by_marginal),
]

# wrong answers beyond the known ones, typed-in constants first

PLAUSIBLE = {
    "8-7a": [
        lambda a, m: {1: 1.75, 2: 2.3125, 4: 3.05078125, 8: 3.6996612548828125}.get(m, 1),
        lambda a, m: tokens_by_formula(0.75, m),
        lambda a, m: tokens_by_formula(a, 4),
        lambda a, m: round(tokens_by_formula(a, m), 2),
        lambda a, m: tokens_by_formula(a, m + 1),
        lambda a, m: (1 - a**m) / (1 - a) * a,
        lambda a, m: 1 + a * (m + 1) / 2,
    ],
    "8-7b": [
        lambda a, m, v, d: 13.34,
        lambda a, m, v, d: price(0.75, m, v, d),
        lambda a, m, v, d: price(a, m, 26.3, d),
        lambda a, m, v, d: price(a, m, v, 3.6),
        lambda a, m, v, d: round(price(a, m, v, d), 1),
        lambda a, m, v, d: v / tokens_by_formula(a, m) + d,
        lambda a, m, v, d: v / tokens_by_formula(a, m) + d * m,
    ],
    "8-7c": [
        lambda a, m, v, d, g: 13.34 if m == 4 else 16.76,
        lambda a, m, v, d, g: grouped_by_ceil(a, m, v, d, 4),
        lambda a, m, v, d, g: grouped_by_ceil(a, m, 26.3, d, g),
        lambda a, m, v, d, g: (v + d * g) / tokens_by_formula(a, m),
        lambda a, m, v, d, g: (v + d * g * -(-(m + 1) // g)) / tokens_by_formula(a, m),
        lambda a, m, v, d, g: math.ceil(m / g) * (v + d * g) / tokens_by_formula(a, m),
    ],
    "8-7d": [
        lambda a, m, n, v, d, g: 60.68148148148148,
        lambda a, m, n, v, d, g: added(0.75, m, n, v, d, g),
        lambda a, m, n, v, d, g: added(a, m, n, v, d, 4),
        lambda a, m, n, v, d, g: d * g * math.ceil((n - m) / g) / sum(a**k for k in range(m + 1, n + 1)),
        lambda a, m, n, v, d, g: d * g * (math.ceil(n / g) - math.ceil(m / g)) / sum(a**k for k in range(m, n)),
        lambda a, m, n, v, d, g: grouped_by_loop(a, m, v, d, g),
    ],
    "8-7f": [
        lambda a, n, v, d, g: 4,
        lambda a, n, v, d, g: g,
        lambda a, n, v, d, g: min(4, n),
        lambda a, n, v, d, g: best_by_min(0.75, n, v, d, g),
        lambda a, n, v, d, g: best_by_min(a, n, 26.3, 3.6, g),
        lambda a, n, v, d, g: max(range(n + 1), key=lambda m: grouped_by_ceil(a, m, v, d, g)),
        lambda a, n, v, d, g: min(grouped_by_ceil(a, m, v, d, g) for m in range(n + 1)),
    ],
}

# usual mistakes, written as a learner writes them; and in what words they are met

NAMED = [
    ("8-7a", lambda a, m: sum(a**k for k in range(1, m + 1)), "What does the target add"),
    ("8-7a", lambda a, m: sum(a**k for k in range(m)), "still gets a token from the target"),
    ("8-7a", lambda a, m: 1 + a * m, "behind a rejected one?"),
    ("8-7a", lambda a, m: 1 / (1 - a), "a draft without end"),
    ("8-7b", lambda a, m, v, d: v + m * d, "the time of a round"),
    ("8-7b", lambda a, m, v, d: (v + m * d) / (m + 1), "a whole draft"),
    ("8-7b", lambda a, m, v, d: (v + (m + 1) * d) / tokens_by_chance(a, m), "the target's own token is not drafted"),
    ("8-7b", lambda a, m, v, d: v / tokens_by_chance(a, m), "leave out the drafting"),
    ("8-7c", lambda a, m, v, d, g: price(a, m, v, d), "A group that is begun is paid for whole."),
    ("8-7c", lambda a, m, v, d, g: (v + d * g * (m // g)) / tokens_by_chance(a, m), "you round down"),
    ("8-7c", lambda a, m, v, d, g: (v + d * -(-m // g)) / tokens_by_chance(a, m), "charge a group as one token"),
    ("8-7d", lambda a, m, n, v, d, g: grouped_by_loop(a, n, v, d, g) - grouped_by_loop(a, m, v, d, g), "two averages"),
    ("8-7d", lambda a, m, n, v, d, g: d * (n - m) / sum(a**k for k in range(m + 1, n + 1)), "charge the tokens added"),
    ("8-7e", "a", "Compare what the added tokens cost"),
    ("8-7f", lambda a, n, v, d, g: min(range(1, n + 1), key=lambda m: grouped_by_ceil(a, m, v, d, g)), "no draft at"),
    ("8-7f", lambda a, n, v, d, g: min(range(n + 1), key=lambda m: price(a, m, v, d)), "leave out the groups"),
]


# its numbers, against the chapter's


@pytest.mark.parametrize(("part_id", "fact"), [("8-7a", "mean_tokens"), ("8-7b", "ms_per_token"), ("8-7c", "grouped")])
def test_the_books_numbers(part_id, fact):
    part = find_part(part_id)
    found = {case[1]: part.expected(*case) for case in part.book}
    fact = FACTS[f"draftlen.{fact}"]
    assert {length: found[length] for length in fact["value"]} == pytest.approx(fact["value"], abs=fact["tol"])


def test_the_choice_holds():
    now, _ = (find_part("8-7c").expected(0.75, length, 26.3, 3.6, 4) for length in (4, 5))
    assert find_part("8-7d").expected(0.75, 4, 5, 26.3, 3.6, 4) > 4 * now
    assert [find_part("8-7f").expected(*case) for case in find_part("8-7f").book] == [4, 4, 2, 0]
