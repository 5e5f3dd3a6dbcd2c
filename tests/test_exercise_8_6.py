"""Exercise 8-6: right answers written differently, wrong ones that must fail, and its numbers."""

import math

import pytest
from test_facts import FACTS

from servelab.exercises import find_part
from servelab.exercises.ex_8_6 import FORMATS, recorded_outcomes
from servelab.units import MIB

# right answers


def bytes_by_group(n, b, g, s):
    return -(-n // g) * (g * b // 8 + s)


def bytes_by_adding(num_values, code_bits, group, scale_bytes):
    groups = (num_values + group - 1) // group
    codes = groups * group * code_bits // 8
    return codes + groups * scale_bytes


def changed(first, second):
    return [task for task, (a, b) in enumerate(zip(first, second, strict=True), 1) if a != b]


def changed_by_runs(first, second):
    found = set()
    for task, runs in enumerate(first):
        for run, right in enumerate(runs):
            if right != second[task][run]:
                found.add(task + 1)
    return sorted(found)


def both_ways(first, second):
    pairs = [pair for a, b in zip(first, second, strict=True) for pair in zip(a, b, strict=True)]
    return sum(x > y for x, y in pairs), sum(x < y for x, y in pairs)


def both_ways_by_products(first, second):
    worse = better = 0
    for a, b in zip(first, second, strict=True):
        for x, y in zip(a, b, strict=True):
            worse, better = worse + x * (1 - y), better + (1 - x) * y
    return [worse, better]


def seconds_by_filter(tasks):
    good = [task for task in tasks if task[-1][1]]
    return sum(sum(attempt[0] for attempt in task) for task in good), sum(task[-1][0] for task in good)


def seconds_by_loop(tasks):
    total = last = 0
    for attempts in tasks:
        spent = 0
        for seconds, right in attempts:
            spent += seconds
            if right:
                total, last = total + spent, last + seconds
    return [total, last]


RIGHT = [
    ("8-6a", bytes_by_group),
    ("8-6a", bytes_by_adding),
    ("8-6b", changed),
    ("8-6b", changed_by_runs),
    ("8-6c", both_ways),
    ("8-6c", both_ways_by_products),
    ("8-6d", seconds_by_filter),
    ("8-6d", seconds_by_loop),
    ("8-6e", "b"),
    ("8-6e", "(B)"),
]

# wrong answers beyond the known ones, typed-in constants first

PLAUSIBLE = {
    "8-6a": [
        lambda n, b, g, s: 612 * MIB,
        lambda n, b, g, s: n * (8.5 if b == 8 else 4.5) / 8,
        lambda n, b, g, s: bytes_by_group(n, b, 32, s),
        lambda n, b, g, s: bytes_by_group(n, b, g, 2),
        lambda n, b, g, s: n * b // 8 + n // g * s,
        lambda n, b, g, s: (n // g + 1) * (g * b // 8 + s),
        lambda n, b, g, s: math.ceil(n / g) * (g * b / 8 + s),
    ],
    "8-6b": [
        lambda first, second: [5, 6],
        lambda first, second: [task for task in changed(first, second) if task != 6],
        lambda first, second: [task for task, (a, b) in enumerate(zip(first, second, strict=True), 1) if a[0] != b[0]],
        lambda first, second: [t for t, (a, b) in enumerate(zip(first, second, strict=True), 1) if all(a) != all(b)],
        lambda first, second: changed(first, second)[::-1],
        lambda first, second: tuple(map(str, changed(first, second))),
    ],
    "8-6c": [
        lambda first, second: [4, 4],
        lambda first, second: [4, 2],
        lambda first, second: [both_ways(first, second)[0]] * 2,
        lambda first, second: [sum(sum(a) > sum(b) for a, b in zip(first, second, strict=True)),
                               sum(sum(a) < sum(b) for a, b in zip(first, second, strict=True))],
        lambda first, second: [sum(max(0, sum(a) - sum(b)) for a, b in zip(first, second, strict=True)),
                               sum(max(0, sum(b) - sum(a)) for a, b in zip(first, second, strict=True))],
        lambda first, second: [both_ways(first, second)[0]],
    ],
    "8-6d": [
        lambda tasks: [9.9886, 8.0067],
        lambda tasks: [sum(s for task in tasks for s, _ in task)] * 2,
        lambda tasks: [sum(s for task in tasks for s, _ in task), seconds_by_filter(tasks)[1]],
        lambda tasks: [sum(s for task in tasks if len(task) > 1 for s, _ in task), seconds_by_filter(tasks)[1]],
        lambda tasks: [seconds_by_filter(tasks)[0], max(task[-1][0] for task in tasks)],
        lambda tasks: [sum(task[0][0] + task[-1][0] for task in tasks if task[-1][1]), seconds_by_filter(tasks)[1]],
    ],
}  # fmt: skip

# usual mistakes, written as a learner writes them; and in what words they are met

NAMED = [
    ("8-6a", lambda n, b, g, s: math.ceil(n / g) * (g * b // 8), "leave out the scales"),
    ("8-6a", lambda n, b, g, s: math.ceil(n / g) * (g * b // 8) + s, "a scale of its own"),
    ("8-6a", lambda n, b, g, s: n // g * (g * b // 8 + s), "a last group that is not full?"),
    ("8-6a", lambda n, b, g, s: bytes_by_group(n, b, g, s) / MIB, "this is in MiB."),
    (
        "8-6b",
        lambda a, b: [t for t, (x, y) in enumerate(zip(a, b, strict=True), 1) if sum(x) != sum(y)],
        "As many may be",
    ),
    ("8-6b", lambda a, b: [t for t, (x, y) in enumerate(zip(a, b, strict=True)) if x != y], "from 1 on"),
    ("8-6c", lambda a, b: both_ways(b, a), "the other order"),
    ("8-6c", lambda a, b: sum(both_ways(a, b)), "Return them apart"),
    ("8-6d", lambda tasks: [sum(s for t in tasks for s, _ in t), sum(t[-1][0] for t in tasks)], "never succeeded"),
    ("8-6d", lambda tasks: [sum(s for t in tasks for s, right in t if right)] * 2, "failed before"),
    ("8-6e", "c", "the weights of the retry records"),
]


# its numbers, against the chapter's


def test_the_books_numbers():
    sizes = [find_part("8-6a").expected(*case) / MIB for case in find_part("8-6a").book]
    assert sizes[:2] == list(FACTS["q8.kv_8192"]["value"].values())
    assert sizes[2:] == [1188 * 34 / 64, 1188 * 18 / 64]
    assert [find_part("8-6b").expected(*case) for case in find_part("8-6b").book[:2]] == [[5, 6], [5, 6]]
    everything, last = find_part("8-6d").expected(*find_part("8-6d").book[0])
    assert everything - last == pytest.approx(0.9986 + 0.9833)  # the two first answers that were wrong


def test_the_right_choice_holds():
    plain, query_kept, _ = map(recorded_outcomes, FORMATS)
    assert sum(map(sum, plain)) == sum(map(sum, query_kept)) == FACTS["quality.correct"]["value"]["bf16_kv"]
    assert both_ways(plain, query_kept) == (4, 4)
