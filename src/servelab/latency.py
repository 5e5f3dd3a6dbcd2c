"""What a user waits for: TTFT, ITL, TPOT, request time and percentiles (section 8.1.3). Times are seconds."""

import itertools
import math
from collections.abc import Sequence

from servelab.checks import require_int, require_number


def ttft(arrival_s: float, token_times_s: Sequence[float]) -> float:
    """Time to first token: from arrival to the first output."""
    _require_times(arrival_s, token_times_s)
    return token_times_s[0] - arrival_s


def itl(token_times_s: Sequence[float]) -> list[float]:
    """Inter-token latencies: the gaps between outputs, one fewer than there are outputs."""
    _require_times(token_times_s[0] if len(token_times_s) else 0, token_times_s)
    return [later - earlier for earlier, later in itertools.pairwise(token_times_s)]


def tpot(token_times_s: Sequence[float]) -> float:
    """Time per output token of one request: the mean of its gaps; 0 with a single output.

    Averaged per request first, as vLLM reports it. With speculation, where one step gives several tokens, the mean
    over requests of this is not the mean over all gaps.
    """
    gaps = itl(token_times_s)
    return sum(gaps) / len(gaps) if gaps else 0.0


def request_time(ttft_s: float, itl_s: Sequence[float]) -> float:
    """From arrival to the last output: TTFT and all gaps."""
    require_number("ttft_s", ttft_s)
    for gap in itl_s:
        require_number("itl_s", gap)
    return ttft_s + sum(itl_s)


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile: the smallest value that at least `percent` % of all values do not exceed.

    Always one of the values; NumPy's default interpolates between two, and differs on few samples.
    """
    if not len(values):
        raise ValueError("values is empty; it must have at least one value")
    require_number("percent", percent, maximum=100)
    if any(math.isnan(value) for value in values):
        raise ValueError("values has a NaN, which no order has a place for; each must be a number")
    return sorted(values)[max(1, math.ceil(percent / 100 * len(values))) - 1]


def uniform_request_time(queue_s: float, prefill_s: float, itl_s: float, output_tokens: int) -> float:
    """Time of a request whose gaps are all alike: queue, prefill, and `output_tokens - 1` gaps."""
    for name, value in (("queue_s", queue_s), ("prefill_s", prefill_s), ("itl_s", itl_s)):
        require_number(name, value)
    require_int("output_tokens", output_tokens, minimum=1)
    return queue_s + prefill_s + (output_tokens - 1) * itl_s


def _require_times(arrival_s, token_times_s):
    if not len(token_times_s):
        raise ValueError("token_times_s is empty; it must have at least one output")
    times = [arrival_s, *token_times_s]
    require_number("arrival_s", arrival_s, minimum=-math.inf)
    for time_s in token_times_s:
        require_number("token_times_s", time_s, minimum=-math.inf)
    if any(later < earlier for earlier, later in itertools.pairwise(times)):
        raise ValueError(
            f"token_times_s is {list(token_times_s)!r}; it must not decrease, nor start before {arrival_s!r}"
        )
