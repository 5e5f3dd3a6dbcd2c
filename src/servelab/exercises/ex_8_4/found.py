"""8-4e and 8-4f: what turns have in common, what a cache finds of it, and what takes it away.

In wrong answers, n are the input tokens of the turns, c those in common with the turn before, h those found.
"""

import itertools
import statistics

from servelab import catalog, retention
from servelab.exercises.part import Choice, Part, Wrong

TURNS = catalog.record("agent-turns").rows
CONDITIONS = ("6gib_no_load", "6gib_other_load", "1gib_other_load")


def column(name):
    return [turn[name] for turn in TURNS]


def found_shares(input_tokens, common_tokens, hit_tokens):
    return list(retention.hit_ratios(input_tokens, common_tokens, hit_tokens))


def draw_turns(random):
    inputs = [random.randint(20, 400) for _ in range(random.randint(2, 8))]
    common = [0, *(random.randint(0, min(pair)) for pair in itertools.pairwise(inputs))]
    return inputs, common, [random.randint(0, tokens) // 16 * 16 for tokens in common]


def shares(first, second):
    """[first(n, c, h), second(n, c, h)]."""
    return lambda n, c, h: [first(n, c, h), second(n, c, h)]


SHARES = Part(
    id="8-4e",
    title="In common, and found",
    returns="two numbers, shares of all input tokens: in common, found",
    expected=found_shares,
    book=tuple((column("input_tokens"), column("common_prefix_with_previous_turn_tokens"), column(f"hit_tokens_{name}"))
               for name in CONDITIONS),
    others=(([2], [0], [0]), ([4, 4], [0, 2], [0, 1]), ([2, 6], [0, 2], [0, 2]), ([8, 4, 4], [0, 4, 2], [0, 4, 0])),
    draw=draw_turns,
    wrong=(
        Wrong("mean of ratios", lambda n, c, h: [statistics.fmean(map(share, part, n)) for part in (c, h)],
              "you average the shares of turns. A turn of 3,000 tokens must count for more than one of 200."),
        Wrong("without the first turn", lambda n, c, h: [sum(part) / (sum(n[1:]) or 1) for part in (c, h)],
              "you leave out the first turn. Its tokens are input as well."),
        Wrong("found of common", shares(lambda n, c, h: sum(c) / sum(n), lambda n, c, h: sum(h) / (sum(c) or 1)),
              "the second number is the share of common tokens. Both are shares of all input tokens."),
        Wrong("tokens", lambda n, c, h: [sum(c), sum(h)], "these are tokens. Divide by all input tokens."),
        Wrong("swapped", lambda n, c, h: [sum(h) / sum(n), sum(c) / sum(n)], "the two are in the other order."),
        Wrong("percent", lambda n, c, h: [100 * sum(part) / sum(n) for part in (c, h)],
              "these are percent. Shares from 0 to 1 are wanted."),
        Wrong("new tokens", lambda n, c, h: [1 - sum(part) / sum(n) for part in (c, h)],
              "these are the shares of new tokens."),
        Wrong("last turn", lambda n, c, h: [c[-1] / n[-1], h[-1] / n[-1]], "this is the last turn alone."),
    ),
    hints=(
        "One division for each of the two numbers, over all turns together.",
        "Add up the tokens in common, the tokens found, and the input tokens of all turns.",
        "[sum(common_tokens) / sum(input_tokens), sum(hit_tokens) / sum(input_tokens)].",
    ),
)  # fmt: skip


def share(part, whole):
    return part / whole


LOAD = Choice(
    id="8-4f",
    title="Why a small pool finds nothing",
    options={
        "a": "Its blocks are too large: with 1 GiB a prefix fills no whole block.",
        "b": "Other requests' prompts have prefixes in common with the agent's, and take its hits.",
        "c": "Between two turns the other requests write 12,000 tokens into a pool of 7,280: the agent's freed blocks "
             "are the oldest, and are handed out again before its next turn comes.",
        "d": "The agent's own turn is too long for the pool.",
    },
    right="c",
    wrong={
        "a": "Blocks hold 16 tokens in both pools.",
        "b": "A prefix that others used as well would be found more often, not less. What do they need from the pool?",
        "d": "Without the other requests the same pool would hold its longest turn, of 3,136 tokens. "
             "What happens between two turns?",
    },
    hints=(
        "What becomes of a finished request's blocks? They keep their contents, but whose are they?",
        "A cached block that no request uses is free. In what order are free blocks handed out again?",
        "Three requests of 4,000 tokens run between two turns. How many tokens do the pools of 6 and 1 GiB hold?",
    ),
)  # fmt: skip
