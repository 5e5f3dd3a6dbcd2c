"""8-4a to 8-4d: what keeping a prefix saves, from times and from sizes, and when two ways to fill a cache tie.

In wrong answers, p is the hit probability, r, f and m the seconds to recompute, fetch and maintain, o the other value.
"""

from servelab import catalog, cost, memory, retention
from servelab.exercises.part import Choice, Part, Wrong
from servelab.units import GB, GIB, MIB

MODEL = catalog.model("qwen3-8b")
TFLOPS = catalog.accelerator("rtx-pro-6000").flops / 1e12  # 503.8
MFUS = (0.62, 0.622)  # as the chapter rounds it, and as its record has it
LINKS = tuple(round(catalog.link(name).bandwidth / GB) for name in ("pcie5-x16", "pcie4-x16"))
PREFIXES = {
    name: (cost.step_flops(MODEL, [(tokens, 0)], logit_rows=0), tokens * memory.kv_bytes_per_token(MODEL))
    for name, tokens in {"A": 6144, "B": 2048}.items()
}


def value_s(hit_probability, recompute_s, fetch_s, maintain_s):
    return retention.value_of_keeping(hit_probability, recompute_s, fetch_s, maintain_s)


def times_s(flops, num_bytes, tflops, mfu, gb_per_s):
    """(recompute, transfer)."""
    return flops / (tflops * 1e12 * mfu), num_bytes / (gb_per_s * GB)


def prefix_value_s(flops, num_bytes, hit_probability, tflops, mfu, gb_per_s):
    recompute_s, transfer_s = times_s(flops, num_bytes, tflops, mfu, gb_per_s)
    return value_s(hit_probability, recompute_s, transfer_s, transfer_s)


def tie_probability(other_value_s, recompute_s, fetch_s, maintain_s):
    return retention.break_even_hit_probability(recompute_s, fetch_s, maintain_s, other_value_s)


def book_ties():
    """A against three B, on both links and with both efficiencies."""
    for link in LINKS:
        for mfu in MFUS:
            recompute_s, transfer_s = times_s(*PREFIXES["A"], TFLOPS, mfu, link)
            other_s = 3 * prefix_value_s(*PREFIXES["B"], 0.5, TFLOPS, mfu, link)
            yield other_s, recompute_s, transfer_s, transfer_s


def draw_times(random):
    """Recomputing takes longer than fetching, as else nothing is worth keeping."""
    fetch_s = random.randint(1, 40) / 1000
    return fetch_s + random.randint(1, 400) / 1000, fetch_s, random.randint(1, 40) / 1000


def draw_value(random):
    return random.randint(1, 19) / 20, *draw_times(random)


def draw_sizes(random):
    flops, num_bytes = random.randint(1, 200) * 10**12, random.randint(10, 2000) * MIB
    return (
        flops,
        num_bytes,
        random.randint(1, 19) / 20,
        random.choice([100, 989, 300]),
        0.5,
        random.choice([12, 64, 450]),
    )


def draw_tie(random):
    return random.randint(1, 200) / 1000, *draw_times(random)


VALUE = Part(
    id="8-4a",
    title="Time saved by keeping a prefix",
    returns="one number, in seconds",
    expected=value_s,
    book=tuple((p, *(round(seconds, 4) for seconds in (r, t, t)))
               for p in (0.5, 0.05) for r, t in (times_s(*PREFIXES["A"], TFLOPS, MFUS[0], link) for link in LINKS)),
    others=((0.0, 4, 1, 1), (0.5, 4, 1, 0), (0.5, 4, 0, 1), (0.5, 4, 2, 1), (0.25, 9, 1, 3), (1.0, 5, 2, 1)),
    draw=draw_value,
    wrong=(
        Wrong("fetched in any case", lambda p, r, f, m: p * r - f - m,
              "you fetch the prefix whether it is hit or not. When is it fetched?"),
        Wrong("maintained on a hit only", lambda p, r, f, m: p * (r - f - m),
              "you pay for keeping only when it is hit. What if it never is?"),
        Wrong("no fetch", lambda p, r, f, m: p * r - m,
              "a hit saves the computation. What does it cost instead?"),
        Wrong("no maintenance", lambda p, r, f, m: p * (r - f), "you leave out what keeping costs, hit or not."),
        Wrong("certain hit", lambda p, r, f, m: r - f - m,
              "this is right if the prefix is hit for certain. How likely is that?"),
        Wrong("a miss recomputes", lambda p, r, f, m: p * (r - f) - (1 - p) * r - m,
              "you subtract the computation after a miss. Without the kept prefix it would have to be done as well."),
        Wrong("maintenance added", lambda p, r, f, m: p * (r - f) + m,
              "keeping takes time. Does that add to what is saved?"),
        Wrong("chance of a miss", lambda p, r, f, m: (1 - p) * (r - f) - m,
              "you take the chance of a miss for that of a hit."),
        Wrong("milliseconds", lambda *case: 1e3 * value_s(*case), "this is in milliseconds. Seconds are wanted."),
    ),
    hints=(
        "Compare with not keeping it: what is saved on a hit, and what is spent in any case?",
        "A hit replaces computing by fetching. Keeping is paid once, hit or not.",
        "hit_probability x (recompute_s - fetch_s) - maintain_s.",
    ),
)  # fmt: skip


def with_times(compute):
    """`compute(p, r, t)` of the right times."""
    return lambda flops, size, p, tflops, mfu, link: compute(p, *times_s(flops, size, tflops, mfu, link))


FROM_SIZES = Part(
    id="8-4b",
    title="The same from operations and bytes",
    returns="one number, in seconds",
    expected=prefix_value_s,
    book=tuple((*PREFIXES[name], 0.5, TFLOPS, mfu, link) for link in LINKS for name in "AB" for mfu in MFUS),
    others=((10**12, GB, 0.5, 1, 1.0, 10), (10**12, GB, 0.5, 1, 0.5, 10), (4 * 10**12, GB, 0.25, 2, 0.5, 5),
            (2 * 10**12, 2 * GB, 1.0, 1, 1.0, 10)),
    draw=draw_sizes,
    wrong=(
        Wrong("peak reached", lambda flops, size, p, tflops, mfu, link:
              prefix_value_s(flops, size, p, tflops, 1, link),
              "you compute at the peak. What share of it is reached?"),
        Wrong("peak over share", lambda flops, size, p, tflops, mfu, link:
              prefix_value_s(flops, size, p, tflops, 1 / mfu, link),
              "a lower share of the peak makes computing longer, not shorter."),
        Wrong("GiB/s for GB/s", lambda flops, size, p, tflops, mfu, link:
              prefix_value_s(flops, size, p, tflops, mfu, link * GIB / GB),
              "your link is too fast: it moves GB, 10**9 bytes, not GiB."),
        Wrong("Gbit/s for GB/s", lambda flops, size, p, tflops, mfu, link:
              prefix_value_s(flops, size, p, tflops, mfu, link / 8),
              "your link is eight times too slow: its figure is in bytes, not bits."),
        Wrong("not swapped out", with_times(lambda p, r, t: p * (r - t)),
              "you leave out the transfer that brings the prefix into the cache."),
        Wrong("swapped out on a hit only", with_times(lambda p, r, t: p * (r - 2 * t)),
              "you swap out only if it is hit. Keeping is paid hit or not."),
        Wrong("fetched in any case", with_times(lambda p, r, t: p * r - 2 * t),
              "you fetch the prefix whether it is hit or not."),
        Wrong("no transfers", with_times(lambda p, r, t: p * r), "you leave out both transfers over the link."),
        Wrong("milliseconds", lambda *case: 1e3 * prefix_value_s(*case),
              "this is in milliseconds. Seconds are wanted."),
    ),
    hints=(
        "Three times: to recompute, to fetch, to maintain. Two of them are the same transfer.",
        "Computing reaches tflops x 10**12 x mfu operations a second; the link moves gb_per_s x 10**9 bytes a second.",
        "value_s(hit_probability, flops / (tflops x 10**12 x mfu), t, t) with t = num_bytes / (gb_per_s x 10**9).",
    ),
)  # fmt: skip

TIE = Part(
    id="8-4c",
    title="The hit probability at which both are worth the same",
    returns="one number, a probability (above 1: even a certain hit is not enough)",
    expected=tie_probability,
    book=tuple(book_ties()),
    others=((0, 4, 1, 1), (1, 4, 1, 0), (1, 4, 2, 1), (2, 9, 1, 2), (3, 5, 1, 1)),
    draw=draw_tie,
    wrong=(
        Wrong("no maintenance", lambda o, r, f, m: o / (r - f),
              "you leave out what keeping A costs, hit or not."),
        Wrong("keeping at all", lambda o, r, f, m: m / (r - f),
              "this is where keeping A pays at all. It must also be worth as much as what it displaces."),
        Wrong("no fetch", lambda o, r, f, m: (o + m) / r,
              "a hit of A saves the computation. What does it cost instead?"),
        Wrong("fetched in any case", lambda o, r, f, m: (o + m + f) / r,
              "you fetch A whether it is hit or not. When is it fetched?"),
        Wrong("maintained on a hit only", lambda o, r, f, m: o / (r - f - m or 1),
              "you pay for keeping A only when it is hit."),
        Wrong("ratio of values at a half", lambda o, r, f, m: 0.5 * o / (value_s(0.5, r, f, m) or 1),
              "the value of A does not go to zero with its probability: keeping costs as well. Solve the equation."),
        Wrong("percent", lambda *case: 100 * tie_probability(*case), "this is in percent. A probability is wanted."),
        Wrong("cut at 1", lambda *case: min(1, tie_probability(*case)),
              "do not cut it at 1: a result above 1 says that even a certain hit is not enough."),
        Wrong("miss", lambda *case: 1 - tie_probability(*case), "this is the chance of a miss at the tie."),
    ),
    hints=(
        "Write down the value of A with an unknown p, as in part a. What must it be equal to?",
        "p x (recompute_s - fetch_s) - maintain_s = other_value_s.",
        "(other_value_s + maintain_s) / (recompute_s - fetch_s).",
    ),
)  # fmt: skip

LINK = Choice(
    id="8-4d",
    title="What the slower link changes",
    options={
        "a": "A stays the better choice at 50 %, and the tie hardly moves: both values fall by nearly the same amount.",
        "b": "Three B are better now: each of them crosses the link in a third of the time.",
        "c": "Nothing is worth keeping any more: a transfer over Gen4 takes longer than computing.",
        "d": "Nothing changes: the values depend on computing alone.",
    },
    right="a",
    wrong={
        "b": "Three B are as many bytes as one A. Compare the values of all three with that of A.",
        "c": "Compare the times of part b: how long does A take over the link, how long to compute?",
        "d": "Which two of the three times of part b does the link decide?",
    },
    hints=(
        "Use your function of part b on both links, for A and for three times B.",
        "How many bytes are three B together, and how many is A? So by how much do their transfers grow?",
        "Then use part c on both links: where is the tie?",
    ),
)
