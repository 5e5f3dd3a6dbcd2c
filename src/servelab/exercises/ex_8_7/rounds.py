"""8-7a to 8-7c: the tokens of a round, its time a token, and a drafter that works in groups.

In wrong answers, a is the acceptance, m the draft's length, v the verification and d a draft token in ms, g the group.
"""

import math

from servelab import speculation
from servelab.exercises.part import Part, Wrong

ACCEPTANCE, VERIFY_MS, DRAFT_MS = 0.75, 26.3, 3.6  # the book's: RTX PRO 6000, section 8.5.3
LENGTHS = (1, 2, 4, 8)


def tokens_per_round(acceptance, draft_length):
    return float(speculation.expected_tokens(acceptance, draft_length))


def round_ms(draft_length, verify_ms, draft_ms):
    return verify_ms + speculation.draft_s("serial", draft_ms, draft_length)


def ms_per_token(acceptance, draft_length, verify_ms, draft_ms):
    return round_ms(draft_length, verify_ms, draft_ms) / tokens_per_round(acceptance, draft_length)


def grouped_ms_per_token(acceptance, draft_length, verify_ms, draft_ms, group):
    drafting = speculation.draft_s("serial", draft_ms, draft_length, group)
    return (verify_ms + drafting) / tokens_per_round(acceptance, draft_length)


def draw_round(random):
    return random.randint(1, 19) / 20, random.randint(0, 12)


def draw_timed(random):
    return *draw_round(random), round(random.uniform(5, 60), 1), round(random.uniform(0.1, 9), 1)


def draw_grouped(random):
    return *draw_timed(random), random.randint(2, 8)


TOKENS = Part(
    id="8-7a",
    title="Mean tokens of a round",
    returns="one number, in tokens",
    expected=tokens_per_round,
    book=tuple((ACCEPTANCE, length) for length in LENGTHS),
    others=((0.0, 1), (0.5, 0), (0.5, 1), (0.5, 2), (0.0, 3), (0.5, 3), (0.25, 2)),
    draw=draw_round,
    wrong=(
        Wrong("draft tokens only", lambda a, m: tokens_per_round(a, m) - 1,
              "these are the accepted draft tokens. What does the target add in every round?"),
        Wrong("one token short", lambda a, m: tokens_per_round(a, m - 1) if m else 0,
              "a round whose draft is accepted to its end still gets a token from the target."),
        Wrong("each accepted by itself", lambda a, m: 1 + m * a,
              "you count every draft token as if its chance did not depend on those before it. What becomes of a "
              "token behind a rejected one?"),
        Wrong("all or nothing", lambda a, m: 1 + m * a**m,
              "this counts a draft only if all of it is accepted. What if half of it is?"),
        Wrong("the last one", lambda a, m: a**m,
              "this is the chance that the whole draft is accepted. How many tokens does a round give on average?"),
        Wrong("a draft without end", lambda a, m: 1 / (1 - a),
              "this is right for a draft without end. Yours stops after draft_length tokens."),
        Wrong("rejections", lambda a, m: tokens_per_round(1 - a, m),
              "you have taken the chance of rejection for that of acceptance."),
        Wrong("whole draft", lambda a, m: m + 1,
              "this is what a round gives at most. How often is the whole draft accepted?"),
    ),
    hints=(
        "A round always gives one token. When does it give a second one?",
        "The second token needs the first draft token accepted: chance a. The third needs two: a times a.",
        "1 + a + a^2 + ... + a^m: the last term is the token behind a draft that was accepted whole.",
    ),
)  # fmt: skip


def timed(tokens):
    """Time of a round over `tokens(a, m)`."""
    return lambda a, m, v, d: round_ms(m, v, d) / tokens(a, m)


MS_PER_TOKEN = Part(
    id="8-7b",
    title="Milliseconds for each token",
    returns="one number, in ms",
    expected=ms_per_token,
    book=tuple((ACCEPTANCE, length, VERIFY_MS, DRAFT_MS) for length in LENGTHS),
    others=((0.0, 1, 10, 1), (0.5, 0, 10, 1), (0.5, 1, 10, 2), (0.5, 2, 10, 2), (0.0, 3, 10, 1), (0.5, 3, 20, 4)),
    draw=draw_timed,
    wrong=(
        Wrong("a round", lambda a, m, v, d: round_ms(m, v, d),
              "this is the time of a round. How many tokens does it give?"),
        Wrong("no drafting", lambda a, m, v, d: v / tokens_per_round(a, m),
              "you leave out the drafting. Each draft token takes draft_ms."),
        Wrong("one draft token", lambda a, m, v, d: (v + d) / tokens_per_round(a, m),
              "you draft one token. The drafter runs once for each token of the draft."),
        Wrong("one draft token more", lambda a, m, v, d: (v + d * (m + 1)) / tokens_per_round(a, m),
              "you draft one token too many: the target's own token is not drafted."),
        Wrong("verified one by one", lambda a, m, v, d: (v + d) * m / tokens_per_round(a, m),
              "you verify the draft token by token. One verification serves the whole draft."),
        Wrong("whole draft", timed(lambda a, m: m + 1),
              "you divide by all tokens of a whole draft. Part a says how many stay on average."),
        Wrong("draft length", timed(lambda a, m: m or 1),
              "you divide by the tokens drafted. Part a says how many a round gives."),
        Wrong("tokens a millisecond", lambda a, m, v, d: 1 / ms_per_token(a, m, v, d),
              "this is tokens for each ms. Milliseconds for each token are wanted."),
        Wrong("seconds", lambda a, m, v, d: ms_per_token(a, m, v, d) / 1e3, "this is in seconds. ms are wanted."),
        Wrong("rejected drafts are free",
              lambda a, m, v, d: (v + d * (tokens_per_round(a, m) - 1)) / tokens_per_round(a, m),
              "you charge accepted draft tokens only. Does a rejected one cost nothing?"),
    ),
    hints=(
        "First the whole round: one verification, and the drafting of every draft token.",
        "Divide it by the tokens that a round gives on average.",
        "(verify_ms + draft_ms x draft_length) / tokens_per_round(acceptance, draft_length).",
    ),
)  # fmt: skip


def in_groups(groups):
    """The time a token if the drafter runs `groups(m, g)` groups."""
    return lambda a, m, v, d, g: (v + d * g * groups(m, g)) / tokens_per_round(a, m)


GROUPED = Part(
    id="8-7c",
    title="A drafter that works in groups",
    returns="one number, in ms",
    expected=grouped_ms_per_token,
    book=tuple((ACCEPTANCE, length, VERIFY_MS, DRAFT_MS, 4) for length in (*LENGTHS, 5)),
    others=((0.0, 1, 10, 1, 2), (0.5, 0, 10, 1, 2), (0.5, 2, 10, 1, 2), (0.5, 3, 10, 1, 2), (0.5, 2, 10, 1, 4)),
    draw=draw_grouped,
    wrong=(
        Wrong("no groups", lambda a, m, v, d, g: ms_per_token(a, m, v, d),
              "you charge the tokens drafted. A group that is begun is paid for whole."),
        Wrong("whole groups only", in_groups(lambda m, g: m // g),
              "you round down: the last group, not full, is left out. It runs as well."),
        Wrong("one group more", in_groups(lambda m, g: m // g + 1),
              "one group too many where the draft fills its last group, or is empty."),
        Wrong("rounded to the nearest", in_groups(lambda m, g: round(m / g)),
              "you round to the nearest number of groups. A group that is begun is paid for whole."),
        Wrong("a group for a token", lambda a, m, v, d, g: (v + d * math.ceil(m / g)) / tokens_per_round(a, m),
              "you charge a group as one token. draft_ms is for a position, and a group has `group` of them."),
        Wrong("a group for each token", lambda a, m, v, d, g: (v + d * g * m) / tokens_per_round(a, m),
              "you pay a whole group for each token. A group serves several."),
        Wrong("all positions count",
              lambda a, m, v, d, g: (v + d * g * math.ceil(m / g)) / tokens_per_round(a, g * math.ceil(m / g)),
              "you count tokens of positions that only fill the group up. They cost time and are no draft."),
        Wrong("one group", in_groups(lambda m, g: min(m, 1)),
              "right up to one group. What of a longer draft?"),
    ),
    hints=(
        "How many groups must run for draft_length tokens? A group that is begun counts whole.",
        "Each group takes group x draft_ms. The tokens that a round gives stay as in part a.",
        "Positions paid for: group x ceil(draft_length / group), in place of draft_length in part b.",
    ),
)  # fmt: skip
