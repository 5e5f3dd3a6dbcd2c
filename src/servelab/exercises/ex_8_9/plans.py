"""8-9a to 8-9d: time and memory of a plan, and the choice among plans.

In wrong answers, p is the prefill, o the output tokens, t the tokens of a round, r its seconds; n requests hold s
shared and x private bytes each, d are the draft model's bytes, h those of an index in host memory.
"""

import math
from dataclasses import replace

from servelab import chapter_plans, planning
from servelab.exercises.mistakes import in_other_units
from servelab.exercises.part import Choice, Part, Wrong
from servelab.units import GIB, MIB

# The book's case: 16 requests share 864 MiB, and hold 324 MiB each beside it. D adds a draft model, E a host index.
SHARED, PRIVATE, REQUESTS = 864 * MIB, 324 * MIB, 16
DRAFT = chapter_plans.draft_bytes()
PREFILL_S = {"B": 2.04, "D": 2.23, "E": 2.04}
ROUND_S = {"B": 0.02735, "D": 0.02735, "E": 0.02745}
TOKENS = {"B": 1, "D": 3, "E": 2}
NONE = "none"


def total_s(prefill_s, output_tokens, tokens_per_round, round_s):
    return float(prefill_s + math.ceil((output_tokens - 1) / tokens_per_round) * round_s)


def plan_bytes(requests, shared_bytes, private_bytes, draft_bytes, host_index_bytes):
    return shared_bytes + requests * private_bytes + draft_bytes


def feasible(plans, pool_mib, deadline_s):
    return [plan for plan in plans if plan[1] <= pool_mib and plan[2] <= deadline_s]


def least(plans, price):
    return min(plans, key=price, default=[NONE])[0]


def chosen(plans, pool_mib, deadline_s):
    return least(feasible(plans, pool_mib, deadline_s), lambda plan: plan[2] / plan[3])


def book_plans(output_tokens):
    """[name, MiB, seconds, good results] of B, D and E, as the chapter's planner has them."""
    workload = replace(chapter_plans.WORKLOAD, output_tokens=output_tokens)
    found = []
    for name in "BDE":
        configuration = replace(chapter_plans.configurations()[name], prefill_s=PREFILL_S[name])
        plan = planning.evaluate(configuration, workload, chapter_plans.MODEL, 96 * GIB, power_w=600)
        found.append([name, round(plan.memory_bytes / MIB), round(plan.total_s, 4), REQUESTS])
    return found


def draw_total(random):
    return (
        round(random.uniform(0, 8), 2),
        random.randint(1, 400),
        random.choice([1, 1.5, 2, 2.5, 3, 4]),
        random.randint(5, 60) / 1000,
    )


def draw_bytes(random):
    return random.randint(1, 64), *(random.randint(1, 900) * MIB for _ in range(4))


def draw_plans(random):
    names = random.sample("ABCDEFG", random.randint(1, 4))
    plans = [
        [name, random.randint(4, 16) * 1024, random.randint(4, 40) / 4, random.randint(1, REQUESTS)] for name in names
    ]
    return plans, random.randint(5, 16) * 1024, random.randint(8, 40) / 4


TOTAL = Part(
    id="8-9a",
    title="Seconds of a plan",
    returns="one number, in seconds",
    expected=total_s,
    book=tuple((PREFILL_S[name], output, TOKENS[name], ROUND_S[name]) for output in (256, 16) for name in "BDE"),
    others=((1, 1, 2, 1), (1, 2, 1, 1), (1, 3, 2, 1), (1, 4, 2, 1), (2, 5, 2, 3), (0, 9, 4, 1)),
    draw=draw_total,
    wrong=(
        Wrong("first token too", lambda p, o, t, r: p + math.ceil(o / t) * r,
              "you count rounds for every output token. Where does the first one come from?"),
        Wrong("part of a round", lambda p, o, t, r: p + (o - 1) / t * r, "a round runs whole or not at all."),
        Wrong("rounded down", lambda p, o, t, r: p + (o - 1) // t * r,
              "you leave out the last round, which gives the tokens still missing."),
        Wrong("a round for each token", lambda p, o, t, r: p + (o - 1) * r,
              "you run a round for each token. How many does a round give?"),
        Wrong("no prefill", lambda p, o, t, r: total_s(0, o, t, r), "you leave out the prefill."),
        Wrong("rounds", lambda p, o, t, r: math.ceil((o - 1) / t), "these are the rounds. How long do they take?"),
        Wrong("prefill for each round", lambda p, o, t, r: math.ceil((o - 1) / t) * (p + r),
              "the prefill runs once, not before every round."),
        Wrong("longer rounds", lambda p, o, t, r: p + math.ceil((o - 1) / t) * t * r,
              "round_s is the time of a whole round, however many tokens it gives."),
    ),
    hints=(
        "The prefill gives the first output token. How many are left for rounds?",
        "Each round gives tokens_per_round tokens. The last one may give more than are wanted: round up.",
        "prefill_s + ceil((output_tokens - 1) / tokens_per_round) x round_s.",
    ),
)  # fmt: skip

BYTES = Part(
    id="8-9b",
    title="Accelerator memory of a plan",
    returns="one int, in bytes",
    expected=plan_bytes,
    book=tuple((REQUESTS, SHARED, PRIVATE, draft, index) for draft, index in ((0, 0), (DRAFT, 0), (0, 64 * MIB))),
    others=((1, 5, 3, 0, 0), (2, 5, 3, 0, 1), (2, 5, 3, 4, 0), (3, 10, 2, 1, 7)),
    draw=draw_bytes,
    wrong=(
        *in_other_units(plan_bytes),
        Wrong("index counted", lambda n, s, x, d, h: plan_bytes(n, s, x, d, h) + h,
              "the index lies in host memory. Which memory is asked for?"),
        Wrong("nothing shared", lambda n, s, x, d, h: n * (s + x) + d,
              "you count the shared prefix once for each request."),
        Wrong("no shared prefix", lambda n, s, x, d, h: n * x + d, "the shared prefix is kept too, once."),
        Wrong("one request", lambda n, s, x, d, h: s + x + d, "every request has its private part."),
        Wrong("no draft model", lambda n, s, x, d, h: s + n * x, "a draft model and its buffers need memory as well."),
        Wrong("draft model for each request", lambda n, s, x, d, h: s + n * (x + d),
              "requests share one draft model."),
    ),
    hints=(
        "What lies on the accelerator once, and what once for each request?",
        "Shared prefix and draft model once, private parts for each request. Where is the index?",
        "shared_bytes + requests x private_bytes + draft_bytes.",
    ),
)  # fmt: skip

CHOSEN = Part(
    id="8-9c",
    title="The plan to choose",
    returns='one name, or "none"',
    expected=chosen,
    book=((book_plans(256), 12 * 1024, 7), (book_plans(256), 6 * 1024, 7), (book_plans(16), 12 * 1024, 7),
          (book_plans(256), 6 * 1024, 5)),
    others=(([["A", 2, 1, 1]], 2, 1), ([["A", 3, 1, 1]], 2, 1), ([["A", 1, 2, 1], ["B", 2, 1, 1]], 2, 2),
            ([["A", 1, 1, 1], ["B", 1, 2, 4]], 2, 2), ([["A", 1, 3, 9], ["B", 2, 2, 1]], 2, 2)),
    draw=draw_plans,
    wrong=(
        Wrong("shortest", lambda plans, m, d: least(feasible(plans, m, d), lambda plan: plan[2]),
              "you choose the shortest. Plans may differ in how many good results they give."),
        Wrong("least memory", lambda plans, m, d: least(feasible(plans, m, d), lambda plan: plan[1]),
              "you choose the one with the least memory. What it costs is accelerator time."),
        Wrong("most good results", lambda plans, m, d: least(feasible(plans, m, d), lambda plan: -plan[3]),
              "you choose the most good results. At what time for each?"),
        Wrong("memory ignored", lambda plans, m, d: chosen(plans, math.inf, d), "does the plan that you choose fit?"),
        Wrong("deadline ignored", lambda plans, m, d: chosen(plans, m, math.inf),
              "does the plan that you choose end in time?"),
        Wrong("first that fits", lambda plans, m, d: least(feasible(plans, m, d), lambda plan: 0),
              "you take the first feasible plan. Another may be cheaper."),
        Wrong("dearest", lambda plans, m, d: least(feasible(plans, m, d), lambda plan: -plan[2] / plan[3]),
              "you choose the one with the most time for each good result."),
        Wrong("just fitting refused", lambda plans, m, d: least(
            [plan for plan in plans if plan[1] < m and plan[2] < d], lambda plan: plan[2] / plan[3]),
            "a plan that fills memory exactly fits, and one that ends at the deadline is in time."),
    ),
    hints=(
        "First drop what does not fit or ends too late.",
        "Of the rest, compare accelerator seconds for each good result.",
        'min(feasible, key=lambda plan: plan[2] / plan[3]), and "none" where nothing is feasible.',
    ),
)  # fmt: skip

SHORT = Choice(
    id="8-9d",
    title="Why 16 output tokens change the choice",
    options={
        "a": "D no longer fits: with shorter outputs its draft model needs more memory.",
        "b": "D's prefill takes 0.19 s longer, as the draft model reads the input too. With 15 tokens left it saves "
             "only a few rounds, too few to make up for that; E pays nothing beforehand.",
        "c": "E gives more tokens a round when outputs are short.",
        "d": "The choice does not change: D is cheapest at any output length.",
    },
    right="b",
    wrong={
        "a": "Does a draft model's size depend on the outputs?",
        "c": "E gives two tokens a round here as well. Compare what each plan spends before its first round.",
        "d": "Use part a for 16 output tokens, for B, D and E.",
    },
    hints=(
        "How many rounds do B, D and E need for 15 tokens?",
        "How long do these rounds take, and how long the prefill?",
        "What does D pay once that E does not, and what does it save on every three tokens?",
    ),
)  # fmt: skip
