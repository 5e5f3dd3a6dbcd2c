"""Distributions over tokens: a mapping from token to probability, or a sequence whose indices are the tokens."""

import math
from collections.abc import Mapping
from fractions import Fraction
from numbers import Rational

from servelab.checks import require_number

SUM_TOLERANCE = 1e-5  # of floating-point probabilities; rational ones must sum to 1 exactly


def as_mapping(name: str, distribution) -> dict:
    """Token -> probability, rational probabilities as `Fraction`. Raises `ValueError` unless it is a distribution."""
    items = distribution.items() if isinstance(distribution, Mapping) else enumerate(distribution)
    result = {}
    for token, probability in items:
        require_number(f"{name}[{token!r}]", probability, maximum=1)
        result[token] = Fraction(probability) if isinstance(probability, Rational) else float(probability)
    total = sum(result.values())
    exact = isinstance(total, Rational)
    if total != 1 and (exact or not math.isclose(total, 1, abs_tol=SUM_TOLERANCE)):
        raise ValueError(f"{name} sums to {total}; it must sum to 1" + (" exactly" if exact else ""))
    return result


def as_mappings(p, q) -> tuple[dict, dict]:
    """The target `p` and the draft `q` over the same tokens; a token that a mapping lacks has probability 0.

    Two sequences must be equally long.
    """
    p_items, q_items = as_mapping("p", p), as_mapping("q", q)
    if not isinstance(p, Mapping) and not isinstance(q, Mapping) and len(p_items) != len(q_items):
        raise ValueError(f"q has {len(q_items)} tokens; it must have as many as p, {len(p_items)}")
    tokens = dict.fromkeys([*p_items, *q_items])
    zero = Fraction(0)
    return {t: p_items.get(t, zero) for t in tokens}, {t: q_items.get(t, zero) for t in tokens}


def like(p, result: dict):
    """`result` in the form of `p`: a list for a sequence, else a dict."""
    return result if isinstance(p, Mapping) else [result[token] for token in range(len(result))]
