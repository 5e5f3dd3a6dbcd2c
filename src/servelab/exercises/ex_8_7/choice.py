"""8-7d to 8-7f: what a longer draft adds, why the fifth token does not pay, and the best length of all.

In wrong answers, a is the acceptance, m the draft's length, n the longer one, v, d and g as in `rounds`.
"""

from servelab import speculation
from servelab.exercises.ex_8_7.rounds import (
    ACCEPTANCE,
    DRAFT_MS,
    VERIFY_MS,
    draw_grouped,
    grouped_ms_per_token,
    tokens_per_round,
)
from servelab.exercises.part import Choice, Part, Wrong


def grouped_round_ms(m, v, d, g):
    return v + speculation.draft_s("serial", d, m, g)


def extra_ms_per_token(acceptance, draft_length, longer, verify_ms, draft_ms, group):
    def round_ms(length):
        return grouped_round_ms(length, verify_ms, draft_ms, group)

    return speculation.marginal(acceptance, round_ms, draft_length, longer).extra_s_per_token


def best_length(acceptance, longest, verify_ms, draft_ms, group):
    def round_ms(length):
        return grouped_round_ms(length, verify_ms, draft_ms, group)

    return speculation.best_length(acceptance, round_ms, range(longest + 1))


def draw_longer(random):
    """From an acceptance of 1/2 on and up to 8 tokens, so that added tokens are no rounding errors."""
    _, _, verify_ms, draft_ms, group = draw_grouped(random)
    length = random.randint(0, 8)
    return random.randint(10, 19) / 20, length, length + random.randint(1, 6), verify_ms, draft_ms, group


def draw_longest(random):
    acceptance, _, verify_ms, draft_ms, group = draw_grouped(random)
    return acceptance, random.randint(1, 16), verify_ms, draft_ms, group


def extra(a, m, n, v, d, g):
    """(extra ms, extra tokens) of `n` instead of `m` draft tokens."""
    ms = grouped_round_ms(n, v, d, g) - grouped_round_ms(m, v, d, g)
    return ms, tokens_per_round(a, n) - tokens_per_round(a, m)


MARGINAL = Part(
    id="8-7d",
    title="What each added token costs",
    returns="one number, in ms",
    expected=extra_ms_per_token,
    book=((ACCEPTANCE, 4, 5, VERIFY_MS, DRAFT_MS, 4), (ACCEPTANCE, 4, 8, VERIFY_MS, DRAFT_MS, 4)),
    others=((0.5, 0, 1, 10, 1, 1), (0.5, 1, 2, 10, 1, 1), (0.5, 1, 2, 10, 1, 2), (0.5, 2, 4, 10, 1, 2)),
    draw=draw_longer,
    wrong=(
        Wrong("of the longer draft", lambda a, m, n, v, d, g: grouped_ms_per_token(a, n, v, d, g),
              "this is what a token costs on average with the longer draft. What do the added ones cost?"),
        Wrong("difference of averages",
              lambda a, m, n, v, d, g: grouped_ms_per_token(a, n, v, d, g) - grouped_ms_per_token(a, m, v, d, g),
              "you subtract two averages. Subtract times, subtract tokens, then divide."),
        Wrong("extra time", lambda *case: extra(*case)[0],
              "this is the added time. How many tokens are added, on average?"),
        Wrong("for each drafted token", lambda a, m, n, v, d, g: extra(a, m, n, v, d, g)[0] / (n - m),
              "you divide by the draft tokens added. How many of them stay, on average?"),
        Wrong("no groups", lambda a, m, n, v, d, g: d * (n - m) / extra(a, m, n, v, d, g)[1],
              "you charge the tokens added. Groups that are begun are paid for whole, before as well as now."),
        Wrong("added tokens as a draft of their own",
              lambda a, m, n, v, d, g: extra(a, m, n, v, d, g)[0] / (tokens_per_round(a, n - m) - 1),
              "you treat the added tokens as if they stood at the draft's beginning. They count only if all before "
              "them are accepted."),
        Wrong("with a verification", lambda *case: (case[3] + extra(*case)[0]) / extra(*case)[1],
              "you add a verification. Both drafts are verified once, whatever their length."),
        Wrong("upside down", lambda *case: extra(*case)[1] / (extra(*case)[0] or 1),
              "this is tokens for each ms. Milliseconds for each token are wanted."),
    ),
    hints=(
        "Two differences: how much longer the round takes, how many more tokens it gives.",
        "For the time use whole groups, for the tokens part a. Verification is in both rounds and cancels.",
        "(round of `longer` - round of `draft_length`) / (tokens of `longer` - tokens of `draft_length`).",
    ),
)  # fmt: skip

FIFTH = Choice(
    id="8-7e",
    title="Why four, not five",
    options={
        "a": "Five gives more tokens a round, so it is better.",
        "b": "The fifth token adds more time than the tokens it gives are worth at the present price.",
        "c": "The fifth token is never accepted.",
        "d": "With groups of four, a draft can have no more than four tokens.",
    },
    right="b",
    wrong={
        "a": "It does give more. Compare what the added tokens cost with what a token costs now.",
        "c": "It is accepted with probability 0.75 to the fifth power, about 0.24. So it is worth something.",
        "d": "A second group can run. What does it cost, and what does it bring?",
    },
    hints=(
        "What does a token cost with four draft tokens? Part c says it.",
        "What does each token that the fifth adds cost? Part d says it.",
        "An average falls when what is added costs less than the average, and rises when it costs more.",
    ),
)


def first_worse(a, longest, v, d, g):
    """The length before the first that is worse than the one before it."""
    times = [grouped_ms_per_token(a, m, v, d, g) for m in range(longest + 1)]
    return next((m for m in range(longest) if times[m + 1] > times[m]), longest)


def least(lengths, time):
    return min(lengths, key=time)


BEST = Part(
    id="8-7f",
    title="The best length",
    returns="one int, a number of draft tokens",
    expected=best_length,
    book=((ACCEPTANCE, 8, VERIFY_MS, DRAFT_MS, 4), *((a, 8, VERIFY_MS, DRAFT_MS, 1) for a in (ACCEPTANCE, 0.5, 0.1))),
    others=((0.0, 1, 10, 1, 1), (0.5, 1, 10, 1, 1), (0.5, 2, 10, 1, 1), (0.5, 4, 10, 6, 1), (0.75, 8, 10, 0.5, 4)),
    draw=draw_longest,
    wrong=(
        Wrong("longest", lambda a, n, v, d, g: n,
              "this is the longest draft: it gives most tokens, but what does it cost?"),
        Wrong("shortest round", lambda a, n, v, d, g: 0,
              "without a draft a round is shortest. What counts is the time for each token."),
        Wrong("always a draft",
              lambda a, n, v, d, g: least(range(1, n + 1), lambda m: grouped_ms_per_token(a, m, v, d, g)),
              "you always draft. Is no draft at all sometimes better?"),
        Wrong("first worse", first_worse,
              "you stop at the first length that is worse. With groups the time rises and falls more than once."),
        Wrong("no groups", lambda a, n, v, d, g: least(range(n + 1), lambda m: grouped_ms_per_token(a, m, v, d, 1)),
              "you leave out the groups. Does the fifth token of a group of four cost as much as the fourth?"),
        Wrong("up to longest", lambda a, n, v, d, g: least(range(n), lambda m: grouped_ms_per_token(a, m, v, d, g)),
              "the longest draft is allowed too. Does your range stop before it?"),
        Wrong("whole groups",
              lambda a, n, v, d, g: least(range(0, n + 1, g), lambda m: grouped_ms_per_token(a, m, v, d, g)),
              "you try whole groups only. If the longest draft ends within a group, it may still be best."),
    ),
    hints=(
        "Compute the time a token for every length that is allowed, 0 among them.",
        "Take the length with the least. All must be compared: with groups the time goes up and down.",
        "min(range(longest + 1), key=...) with your function of part c as the key.",
    ),
)  # fmt: skip
