"""What a round costs, and how long a draft should be (sections 8.5.2 to 8.5.4). Times are seconds.

`acceptance` is what `expected_tokens` takes. `round_s` is a function from draft length to the seconds of a round; at
length 0 a round is a plain decode step.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from servelab import cost
from servelab.catalog import Accelerator, Model
from servelab.checks import require_int, require_name, require_number
from servelab.speculation.expected import expected_tokens


def time_per_token(rounds_s: Sequence[float], tokens: Sequence[float]) -> float:
    """Seconds for each token over rounds that take `rounds_s` and decide `tokens`: sum over sum.

    For one kind of round, its time and its mean tokens.
    """
    _require_rounds(rounds_s, tokens)
    return sum(rounds_s) / sum(tokens)


def mean_of_ratios(rounds_s: Sequence[float], tokens: Sequence[float]) -> float:
    """The usual mistake: the mean of each round's own time for a token, in which a round of one token weighs as much
    as a round of five."""
    _require_rounds(rounds_s, tokens)
    return sum(seconds / count for seconds, count in zip(rounds_s, tokens, strict=True)) / len(rounds_s)


def _require_rounds(rounds_s, tokens):
    if not len(rounds_s) or len(rounds_s) != len(tokens):
        raise ValueError(
            f"rounds_s has {len(rounds_s)} entries, tokens {len(tokens)}; both must have the same number, 1 or more"
        )
    for seconds in rounds_s:
        require_number("rounds_s", seconds)
    for count in tokens:
        require_number("tokens", count, minimum=1)  # a round gives one at least, the target's own


DRAFT_SOURCES = ("lookup", "serial", "parallel")


def draft_s(source: str, unit_s: float, draft_length: int, group: int = 1) -> float:
    """Seconds to draft `draft_length` tokens; a draft of none costs nothing.

    source: "lookup" (unit_s: a search of the context), "parallel" (a forward that gives the whole draft, as DFlash) or
    "serial" (a forward for each token, of a small model or an EAGLE head). `group`: a serial drafter
    that computes whole groups of so many positions pays for all of the last one; the others do not depend on it.
    """
    require_name("source", source, DRAFT_SOURCES)
    require_number("unit_s", unit_s)
    require_int("draft_length", draft_length)
    require_int("group", group, minimum=1)
    if source == "serial":
        return unit_s * (-(-draft_length // group) * group)
    return unit_s if draft_length else 0.0


def verify_roofline(
    model: Model, accelerator: Accelerator, draft_length: int, context: int, requests=1, captured=(), mfu=1.0, mbu=1.0
) -> cost.Roofline:
    """The bounds of the step that verifies `requests` drafts: draft_length + 1 rows each, padded to a captured shape.

    All rows go through the output head, since each is compared with the draft. A padding row costs what a token
    without context costs. `mfu`, `mbu`: as in `cost.roofline`.
    """
    require_int("draft_length", draft_length)
    require_int("context", context)
    require_int("requests", requests, minimum=1)
    rows = requests * (draft_length + 1)
    padded = cost.padded_rows(rows, captured)
    batch = [(draft_length + 1, context)] * requests + [(1, 0)] * (padded - rows)
    read_s = cost.roofline(model, accelerator, batch, mfu=mfu, mbu=mbu).read_s
    return cost.Roofline(cost.step_flops(model, batch, logit_rows=padded) / (accelerator.flops * mfu), read_s)


def draft_budget_s(tokens_per_round: float, decode_s: float, verify_s: float) -> float:
    """Seconds that drafting may take before speculation is no faster than plain decode of `decode_s` a token."""
    require_number("tokens_per_round", tokens_per_round, minimum=1)
    require_number("decode_s", decode_s, above=True)
    require_number("verify_s", verify_s)
    return tokens_per_round * decode_s - verify_s


def index_break_even_tokens(index_s: float, decode_s: float, speculative_s: float) -> float:
    """Output tokens after which an index built in `index_s` is paid for, of all requests that use it together.

    decode_s and speculative_s: seconds a token without and with speculation. Infinite if speculation is no faster.
    """
    require_number("index_s", index_s)
    require_number("decode_s", decode_s, above=True)
    require_number("speculative_s", speculative_s, above=True)
    saved = decode_s - speculative_s
    return math.ceil(index_s / saved) if saved > 0 else math.inf


@dataclass(frozen=True)
class Marginal:
    """A longer draft against the present one: what each added token costs, and what a token costs now."""

    extra_s: float
    extra_tokens: float
    present_s_per_token: float

    @property
    def extra_s_per_token(self) -> float:
        return self.extra_s / self.extra_tokens if self.extra_tokens else math.inf

    @property
    def pays(self) -> bool:
        """delta T / delta N < T / N."""
        return self.extra_s < self.present_s_per_token * self.extra_tokens


def marginal(acceptance, round_s: Callable[[int], float], length: int, longer: int) -> Marginal:
    """What growing a draft from `length` to `longer` tokens adds (section 8.5.4).

    Where shapes are padded, `longer` should fill one: its first token pays for all of it, the others for nothing.
    """
    require_int("length", length)
    require_int("longer", longer, minimum=length + 1)
    short_s, long_s = (_round_seconds(round_s, m) for m in (length, longer))
    tokens = expected_tokens(acceptance, length)
    return Marginal(long_s - short_s, expected_tokens(acceptance, longer) - tokens, short_s / tokens)


def best_length(acceptance, round_s: Callable[[int], float], lengths: Iterable[int]) -> int:
    """The draft length, of `lengths`, with the least time a token; of equal ones the shortest.

    All are compared, since padded shapes make the time a token rise and fall more than once.
    """
    lengths = sorted(lengths)
    if not lengths:
        raise ValueError("lengths is empty; it must have at least one draft length")
    return min(lengths, key=lambda m: _round_seconds(round_s, m) / expected_tokens(acceptance, m))


def _round_seconds(round_s, length):
    seconds = round_s(length)
    require_number(f"round_s({length})", seconds, above=True)
    return seconds
