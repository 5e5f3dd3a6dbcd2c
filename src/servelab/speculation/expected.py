"""How many tokens a round decides (sections 8.5.2 and 8.5.4).

`acceptance`: the probability that a draft token is accepted when all before it were; one number for all positions,
or one for each. Fractions give fractions.
"""

import itertools
from collections.abc import Iterable
from fractions import Fraction
from numbers import Number
from operator import mul

from servelab.checks import require_int, require_number


def conditionals(acceptance, draft_length: int) -> list:
    """The conditional acceptance of each of `draft_length` positions. Raises `ValueError` for what is none."""
    require_int("draft_length", draft_length)
    given = [acceptance] * draft_length if isinstance(acceptance, Number) else list(acceptance)
    if len(given) < draft_length:
        raise ValueError(
            f"acceptance has {len(given)} positions; it must have one for each of {draft_length} draft tokens"
        )
    if isinstance(acceptance, Number):
        require_number("acceptance", acceptance, maximum=1)
    for position, value in enumerate(given):
        require_number(f"acceptance[{position}]", value, maximum=1)
    return given[:draft_length]


def _reach(acceptance, draft_length):
    """The probability that at least 1, 2, ... draft_length + 1 tokens are decided."""
    return list(itertools.accumulate(conditionals(acceptance, draft_length), mul, initial=1))


def expected_tokens(acceptance, draft_length: int):
    """Mean tokens of a round, the target's own included: 1 + a1 + a1 a2 + ... + a1 ... am."""
    return sum(_reach(acceptance, draft_length))


def token_counts(acceptance, draft_length: int) -> list:
    """The probability that a round decides 1, 2, ... draft_length + 1 tokens."""
    reach = _reach(acceptance, draft_length)
    return [here - beyond for here, beyond in zip(reach, [*reach[1:], 0], strict=True)]


def expected_rounds(acceptance, draft_length: int, num_tokens: int):
    """Mean rounds until at least `num_tokens` tokens are decided.

    A little more than num_tokens / expected_tokens: the last round often decides more than is still wanted.
    """
    require_int("num_tokens", num_tokens)
    counts = token_counts(acceptance, draft_length)
    rounds = [0]
    for wanted in range(1, num_tokens + 1):
        rounds.append(1 + sum(share * rounds[max(0, wanted - got)] for got, share in enumerate(counts, start=1)))
    return rounds[num_tokens]


def measured_acceptance(accepted: Iterable[int], draft_length: int) -> list[Fraction]:
    """Conditional acceptance of each position from the accepted tokens of rounds of `draft_length` tokens each.

    Of the rounds that accepted all before a position, the share that accepted it too; 0 where no round came so far.
    `expected_tokens` of it is the mean of accepted + 1. A round cut short by the end of the text counts as a rejection.
    """
    require_int("draft_length", draft_length)
    accepted = list(accepted)
    if not accepted:
        raise ValueError("accepted is empty; it must have the accepted tokens of at least one round")
    for count in accepted:
        require_int("accepted", count, maximum=draft_length)
    at_least = [sum(count >= position for count in accepted) for position in range(draft_length + 1)]
    return [Fraction(more, here) if here else Fraction(0) for here, more in itertools.pairwise(at_least)]
