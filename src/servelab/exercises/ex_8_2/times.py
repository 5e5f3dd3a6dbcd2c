"""8-2a and 8-2b: causal pairs and the time of a step.

In wrong answers, c are new tokens and h the context behind which they come; f, u and n are the three costs.
"""

from servelab import catalog, cost
from servelab.exercises.part import Part, Wrong

FIT = catalog.step_cost("rtx-pro-6000", "qwen3-8b")
BOOK_COSTS = (26.22, 30.4, 3)  # ms, us, ns: FIT as the chapter writes it
FIRST_STEPS = ([(2048, 0), (2048, 0)], [(1, 2048), (1, 2048)], [(1, 2049), (8192, 0)])


def causal_pairs(new_tokens, context):
    return cost.causal_pairs(new_tokens, context)


def step_ms(rows, fixed_ms, token_us, pair_ns):
    return 1e3 * cost.StepCost(fixed_ms * 1e-3, token_us * 1e-6, pair_ns * 1e-9).seconds(rows)


def draw_pairs(case, answer):
    """The pairs themselves, as in figures 8-8 and 8-9."""
    new_tokens, context = case
    if new_tokens > 8 or context > 30:
        return None
    rows = ["Drawn, a row a new token: o a pair with the context, # one with a new token, . a token still to come:"]
    rows += ["o" * context + "#" * (n + 1) + "." * (new_tokens - n - 1) for n in range(new_tokens)]
    return "\n".join(rows)


PAIRS = Part(
    id="8-2a",
    title="Causal pairs of a chunk",
    returns="one int",
    expected=causal_pairs,
    book=((512, 0), (512, 7680), (2048, 0), (1, 2048), (8192, 0)),
    others=((1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 2), (4, 0), (4, 8), (5, 3)),
    draw=lambda random: (random.randint(1, 3000), random.choice([0, random.randint(1, 9000)])),
    picture=draw_pairs,
    wrong=(
        Wrong("future tokens too", lambda c, h: c * (h + c),
              "you let each new token see all of the chunk. Which tokens of it come after the new token?"),
        Wrong("context only", lambda c, h: c * h,
              "these are the pairs with the context. New tokens also look at the chunk itself."),
        Wrong("chunk only", lambda c, h: c * (c + 1) // 2,
              "these are the pairs inside the chunk. Each of its tokens looks at the context too."),
        Wrong("not itself", lambda c, h: c * h + c * (c - 1) // 2,
              "you leave out the pair of a token with itself."),
        Wrong("context once", lambda c, h: h + c * (c + 1) // 2,
              "the context is seen by each new token, not by one."),
        Wrong("earlier chunks again", lambda c, h: (h + c) * (h + c + 1) // 2,
              "you count the pairs of the context's own tokens again. They were computed in earlier steps."),
        Wrong("half of all", lambda c, h: c * (h + c) // 2,
              "half the rectangle: only the part inside the chunk is a triangle."),
    ),
    hints=(
        "How many tokens does the first new token look at, itself included? And the last one?",
        "Each new token sees the whole context, and the chunk up to itself: a rectangle and a triangle.",
        "(h + 1) + (h + 2) + ... + (h + c) = c x h + c x (c + 1) / 2, with // to stay whole.",
    ),
)  # fmt: skip


def of_step(pairs=cost.causal_pairs, fixed=1, micro=1e-3, nano=1e-6):
    """Step times in ms from `pairs(c, h)` of a row; `fixed` is how often the fixed part counts."""
    return lambda rows, f, u, n: (
        fixed * f + u * micro * sum(c for c, _ in rows) + n * nano * sum(pairs(c, h) for c, h in rows)
    )


def one_sequence(rows):
    """All rows as if they were one request: their new tokens behind all contexts."""
    return [(sum(c for c, _ in rows), sum(h for _, h in rows))]


def draw_step(random):
    rows = [
        random.choice([(1, random.randint(1, 9000)), (random.randint(2, 4000), random.choice([0, 512, 2048]))])
        for _ in range(random.randint(1, 6))
    ]
    return rows, round(random.uniform(1, 40), 2), round(random.uniform(5, 90), 1), round(random.uniform(0.5, 9), 1)


STEP = Part(
    id="8-2b",
    title="Time of a step",
    returns="one number, in ms",
    expected=step_ms,
    book=tuple((rows, *BOOK_COSTS) for rows in ([(2048, 0)], [(1, 2048)], *FIRST_STEPS)),
    others=(([(1, 0)], 1, 100, 100), ([(2, 0)], 1, 100, 100), ([(1, 3)], 1, 100, 100), ([(2, 3)], 1, 200, 100),
            ([(1, 3), (2, 0)], 5, 100, 100), ([(1, 1), (1, 2), (4, 8)], 10, 100, 200)),
    draw=draw_step,
    wrong=(
        Wrong("fixed part for each request", lambda rows, f, u, n: (len(rows) - 1) * f + step_ms(rows, f, u, n),
              "the fixed part counts once a step. All requests of the step share it."),
        Wrong("fixed part forgotten", of_step(fixed=0),
              "the fixed part is missing. A step takes it even for a single token."),
        Wrong("no pairs", of_step(pairs=lambda c, h: 0),
              "this is the fixed part and the new tokens. Attention adds a time for each pair."),
        Wrong("context only", of_step(pairs=lambda c, h: c * h),
              "your pairs are those with the context. New tokens also look at each other: see part a."),
        Wrong("chunk only", of_step(pairs=lambda c, h: c * (c + 1) // 2),
              "your pairs are those among new tokens. They also look at the context: see part a."),
        Wrong("future tokens too", of_step(pairs=lambda c, h: c * (h + c)),
              "your pairs include tokens that are still to come: see part a."),
        Wrong("one sequence", lambda rows, f, u, n: step_ms(one_sequence(rows), f, u, n),
              "requests do not look at each other's tokens. Count the pairs of each one alone."),
        Wrong("slowest request", lambda rows, f, u, n: max(step_ms([row], f, u, n) for row in rows),
              "the requests of a step are computed together: their tokens and pairs add up."),
        Wrong("microseconds as ms", of_step(micro=1),
              "token_us is in microseconds. How many of them are a millisecond?"),
        Wrong("nanoseconds as us", of_step(nano=1e-3),
              "pair_ns is in nanoseconds. How many of them are a millisecond?"),
        Wrong("nanoseconds as ms", of_step(nano=1), "pair_ns is in nanoseconds. How many of them are a millisecond?"),
        Wrong("nothing converted", of_step(micro=1, nano=1),
              "you add ms, microseconds and nanoseconds. Bring all of them to ms first."),
        Wrong("seconds", lambda *case: step_ms(*case) / 1e3, "this is in seconds. Milliseconds are wanted."),
        Wrong("microseconds", lambda *case: step_ms(*case) * 1e3, "this is in microseconds. Milliseconds are wanted."),
    ),
    hints=(
        "Three items: one for the step, one for all new tokens, one for all pairs. Which unit has each?",
        "Add up the new tokens of all rows. Add up the pairs of all rows, each row's from part a.",
        "fixed_ms + token_us x tokens / 1,000 + pair_ns x pairs / 1,000,000.",
    ),
)  # fmt: skip
