"""When a smaller format also saves time: shorter reads against conversion (section 8.4.2). Times are seconds."""

import math
from dataclasses import dataclass

from servelab import catalog
from servelab.checks import require_int, require_name, require_number


def net_saving_s(saved_bytes: int, bandwidth: float, conversion_s: float = 0.0) -> float:
    """Seconds that a read of `saved_bytes` fewer bytes saves after conversion: saved_bytes / bandwidth - conversion_s.

    `bandwidth`: bytes a second that the read really reaches. `conversion_s` counts only where conversion delays the
    read, not where it runs beside it. Negative: the smaller format is slower.
    """
    require_int("saved_bytes", saved_bytes)
    require_number("bandwidth", bandwidth, above=True)
    require_number("conversion_s", conversion_s)
    return saved_bytes / bandwidth - conversion_s


@dataclass(frozen=True)
class ItlFit:
    """The time between two outputs as a line over context: a fixed part, and a part for each token of context."""

    intercept_s: float
    slope_s_per_token: float

    def __post_init__(self):
        require_number("intercept_s", self.intercept_s)
        require_number("slope_s_per_token", self.slope_s_per_token)

    def seconds(self, context: int) -> float:
        require_int("context", context)
        return self.intercept_s + self.slope_s_per_token * context


def itl_fit(kv_dtype: str) -> ItlFit:
    """The measured fit for "bf16" or "fp8" KV: Llama-3.1-8B on an H100, one request (record kv-format-fits)."""
    fits = {row["kv_dtype"]: row for row in catalog.record("kv-format-fits").rows}
    require_name("kv_dtype", kv_dtype, fits)
    return ItlFit(fits[kv_dtype]["intercept_ms"] * 1e-3, fits[kv_dtype]["slope_ms_per_token"] * 1e-3)


def crossing(one: ItlFit, other: ItlFit) -> float:
    """Tokens of context where both lines meet: difference of fixed parts over difference of slopes.

    `math.inf` if they meet at no context of 0 or more: then one of the two is never the slower.
    """
    fixed, slope = other.intercept_s - one.intercept_s, one.slope_s_per_token - other.slope_s_per_token
    if slope == 0 or fixed / slope < 0:
        return math.inf
    return fixed / slope
