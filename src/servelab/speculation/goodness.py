"""Whether counted tokens can have come from a distribution: Pearson's chi-square test (section 8.5.1)."""

import math
from collections.abc import Mapping
from statistics import NormalDist

from servelab.checks import require_int, require_number
from servelab.speculation.distribution import as_mapping


def chi_square(counts: Mapping, distribution) -> float:
    """How far `counts` (outcome -> times seen) lie from `distribution`; infinite if one of probability 0 was seen.

    Where the counts were drawn from it, about the number of outcomes less 1. An outcome should be expected 5 times
    or more.
    """
    expected = as_mapping("distribution", distribution)
    for outcome, count in counts.items():
        require_int(f"counts[{outcome!r}]", count)
    draws = sum(counts.values())
    if not draws:
        raise ValueError("counts has no draw; it must have one at least")
    if any(count and not expected.get(outcome) for outcome, count in counts.items()):
        return math.inf
    wanted = {outcome: draws * share for outcome, share in expected.items() if share}
    return float(sum((counts.get(outcome, 0) - mean) ** 2 / mean for outcome, mean in wanted.items()))


def chi_square_limit(degrees: int, chance: float = 1e-3) -> float:
    """What chi-square exceeds with probability `chance` though the distribution is right; degrees: outcomes less 1.

    Source: the approximation of Wilson and Hilferty, 1931.
    """
    require_int("degrees", degrees, minimum=1)
    require_number("chance", chance, maximum=0.5, above=True)
    spread = 2 / (9 * degrees)
    return degrees * (1 - spread + NormalDist().inv_cdf(1 - chance) * math.sqrt(spread)) ** 3
