"""Exercise 8-8: right answers written differently, wrong ones that must fail, and its numbers."""

import pytest
from test_facts import FACTS

from servelab.exercises import find_part

# right answers


def total(stages, i, k):
    return sum(stages) - stages[i] + stages[i] / k


def total_by_loop(stages_s, stage, factor):
    return sum(seconds / factor if place == stage else seconds for place, seconds in enumerate(stages_s))


def net(stages, i, k, x):
    return sum(stages) / (total(stages, i, k) + x)


def net_by_amdahl(s, i, k, x):
    share = s[i] / sum(s)
    return 1 / (1 - share + share / k + x / sum(s))


def even(s, i, k):
    return s[i] * (k - 1) / k


def even_by_totals(s, i, k):
    return sum(s) - total_by_loop(s, i, k)


def limit(s, i):
    return 1 / (1 - s[i] / sum(s))


def limit_by_others(stages_s, stage):
    return sum(stages_s) / sum(seconds for place, seconds in enumerate(stages_s) if place != stage)


RIGHT = [
    ("8-8a", total),
    ("8-8a", total_by_loop),
    ("8-8b", net),
    ("8-8b", net_by_amdahl),
    ("8-8c", even),
    ("8-8c", even_by_totals),
    ("8-8d", limit),
    ("8-8d", limit_by_others),
    ("8-8e", "c"),
    ("8-8e", "(C)"),
]

# wrong answers beyond the known ones, typed-in constants first

PLAUSIBLE = {
    "8-8a": [
        lambda s, i, k: [90, 75, 85][i] if i < 3 else 0,
        lambda s, i, k: 100 - s[i] / k,
        lambda s, i, k: sum(s) - s[i] * k / (k + 1),
        lambda s, i, k: sum(s) - s[-1] + s[-1] / k,
        lambda s, i, k: round(total(s, i, k)),
        lambda s, i, k: sum(s) - s[i] // k,
    ],
    "8-8b": [
        lambda s, i, k, x: 1.4184397163120568,
        lambda s, i, k, x: net(s, i, 4, x),
        lambda s, i, k, x: net(s, i, k, 8),
        lambda s, i, k, x: max(1, net(s, i, k, x)),
        lambda s, i, k, x: sum(s) / total(s, i, k) - x / sum(s),
        lambda s, i, k, x: round(net(s, i, k, x), 2),
    ],
    "8-8c": [
        lambda s, i, k: 37.5,
        lambda s, i, k: s[i] / 2,
        lambda s, i, k: 0.75 * s[i],
        lambda s, i, k: max(s) * (1 - 1 / k),
        lambda s, i, k: round(even(s, i, k), 1),
        lambda s, i, k: s[i] * k - s[i],
    ],
    "8-8d": [
        lambda s, i: 2.0,
        lambda s, i: [1.25, 2, 10 / 7][i] if i < 3 else 1,
        lambda s, i: 100 / (100 - s[i]),
        lambda s, i: round(limit(s, i), 2),
        lambda s, i: sum(s) / total(s, i, 100),
        lambda s, i: max(limit(s, place) for place in range(len(s))),
    ],
}

# usual mistakes, written as a learner writes them; and in what words they are met

NAMED = [
    ("8-8a", lambda s, i, k: sum(seconds / k for seconds in s), "How many change?"),
    ("8-8a", lambda s, i, k: s[i] * (1 - 1 / k), "these are the seconds saved"),
    ("8-8a", lambda s, i, k: sum(s) / total(s, i, k), "this is the speed-up"),
    ("8-8b", lambda s, i, k, x: sum(s) / total(s, i, k), "leave out the preparation"),
    ("8-8b", lambda s, i, k, x: (total(s, i, k) + x) / sum(s), "old over new"),
    ("8-8b", lambda s, i, k, x: s[i] / (s[i] / k + x), "How much faster is the task?"),
    ("8-8c", lambda s, i, k: s[i], "still takes a part of its time"),
    ("8-8c", lambda s, i, k: s[i] / k, "What is saved?"),
    ("8-8d", lambda s, i: sum(s) / s[i], "other way round"),
    ("8-8d", lambda s, i: s[i] / sum(s), "without it?"),
    ("8-8e", "a", "saves nothing at all"),
]


# its numbers, against the chapter's


def test_the_books_numbers():
    halves = [find_part("8-8a").expected(*case) for case in find_part("8-8a").book]
    assert halves == list(FACTS["agenttask.halves"]["value"].values())
    fact = FACTS["agenttask.net"]["value"]
    assert find_part("8-8b").expected(*find_part("8-8b").book[0]) == pytest.approx(fact["speedup"], abs=5e-4)
    assert 100 / fact["speedup"] == pytest.approx(fact["total"], abs=0.03)
    assert find_part("8-8c").expected(*find_part("8-8c").book[0]) == fact["preparation_break_even"]


def test_the_right_choice_holds():
    """Preparation can eat the gain, and decode at four times its speed is no longer the largest stage."""
    assert find_part("8-8b").expected([20, 50, 30], 1, 4, 40) < 1
    assert max([20, 12.5, 30]) != 12.5
    assert limit([20, 50, 30], 1) == 2
