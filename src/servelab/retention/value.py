"""What keeping a prefix is worth: computing it again against fetching it back (section 8.3.4)."""

import math
from dataclasses import dataclass

from servelab import memory
from servelab.catalog import Accelerator, Link, Model
from servelab.checks import require_int, require_number
from servelab.cost import step_flops
from servelab.units import MIB


def value_of_keeping(hit_probability: float, recompute_s: float, fetch_s: float, maintain_s: float) -> float:
    """Expected net time saved by keeping a prefix, in seconds: p_h * (T_r - T_f) - T_m. Negative: better dropped.

    A hit saves computing the prefix again and costs fetching it; keeping costs `maintain_s`, hit or not.
    """
    require_number("hit_probability", hit_probability, maximum=1)
    require_number("recompute_s", recompute_s)
    require_number("fetch_s", fetch_s)
    require_number("maintain_s", maintain_s)
    return hit_probability * (recompute_s - fetch_s) - maintain_s


def value_per_mib(value_s: float, size_bytes: int) -> float:
    """Seconds saved for each MiB that a prefix takes: compares prefixes of different sizes."""
    require_number("value_s", value_s, minimum=-math.inf)
    require_int("size_bytes", size_bytes, minimum=1)
    return value_s / (size_bytes / MIB)


def break_even_hit_probability(recompute_s: float, fetch_s: float, maintain_s: float, value_s: float = 0.0) -> float:
    """The hit probability at which keeping a prefix is worth exactly `value_s`: (T_m + value) / (T_r - T_f).

    `value_s`: what the room is worth otherwise; 0 asks when keeping pays at all. A result above 1 says that even a
    certain hit is not enough; it is infinite if fetching takes as long as computing again, or longer.
    """
    require_number("recompute_s", recompute_s)
    require_number("fetch_s", fetch_s)
    require_number("maintain_s", maintain_s)
    require_number("value_s", value_s)
    if recompute_s <= fetch_s:
        return math.inf
    return (maintain_s + value_s) / (recompute_s - fetch_s)


def recompute_seconds(model: Model, tokens: int, accelerator: Accelerator, mfu: float) -> float:
    """Time to prefill the first `tokens` tokens of a text again, computing at `mfu` of peak; no output head.

    Grows faster than the length, because attention does. Matrix operations as `cost.step_flops` counts them.
    """
    require_int("tokens", tokens, minimum=1)
    require_number("mfu", mfu, maximum=1, above=True)
    return step_flops(model, [(tokens, 0)], logit_rows=0) / (accelerator.flops * mfu)


def transfer_seconds(num_bytes: int, link: Link) -> float:
    """Time to move `num_bytes` one way at the link's nominal bandwidth: a lower bound."""
    require_int("num_bytes", num_bytes)
    return num_bytes / link.bandwidth


@dataclass(frozen=True)
class Prefix:
    """What a cache knows of one prefix."""

    tokens: int
    size_bytes: int
    recompute_s: float
    fetch_s: float = 0.0  # to make it usable when it is hit
    maintain_s: float = 0.0  # to keep it: once, when it is admitted
    hit_probability: float = 0.5  # as estimated beforehand

    def __post_init__(self):
        require_int("tokens", self.tokens, minimum=1)
        require_int("size_bytes", self.size_bytes, minimum=1)
        value_of_keeping(self.hit_probability, self.recompute_s, self.fetch_s, self.maintain_s)  # refuses the rest

    @classmethod
    def of_model(
        cls,
        model: Model,
        tokens: int,
        accelerator: Accelerator,
        mfu: float,
        link: Link | None = None,
        hit_probability: float = 0.5,
        kv_dtype: str = "bf16",
    ) -> "Prefix":
        """The first `tokens` tokens of a text, swapped out and fetched back over `link`; without one it stays in place.

        Maintenance is the one transfer out, as in the chapter's example.
        """
        recompute_s = recompute_seconds(model, tokens, accelerator, mfu)
        size_bytes = tokens * memory.kv_bytes_per_token(model, kv_dtype)
        transfer_s = transfer_seconds(size_bytes, link) if link else 0.0
        return cls(tokens, size_bytes, recompute_s, transfer_s, transfer_s, hit_probability)

    @property
    def value_s(self) -> float:
        return value_of_keeping(self.hit_probability, self.recompute_s, self.fetch_s, self.maintain_s)

    @property
    def value_per_mib(self) -> float:
        return value_per_mib(self.value_s, self.size_bytes)


@dataclass(frozen=True)
class SwapOrRecompute:
    """Two ways to give a preempted request its KV back, in seconds."""

    swap_s: float  # out and back in
    recompute_s: float
    break_even_bandwidth: float  # bytes a second in one direction, at which both take the same

    @property
    def faster(self) -> str:
        """ "swap" or "recompute"; the latter if they are equal, since it needs no room elsewhere."""
        return "swap" if self.swap_s < self.recompute_s else "recompute"


def swap_or_recompute(
    model: Model, tokens: int, accelerator: Accelerator, link: Link, mfu: float, kv_dtype: str = "bf16"
) -> SwapOrRecompute:
    """Compare swapping the KV of `tokens` computed tokens to the host and back with computing them again.

    Neither overlaps with anything, and the link runs at its nominal rate: small blocks, copied one by one, do not
    reach it. Kwon et al. 2023, PagedAttention, arXiv:2309.06180, sections 4.5 and 7.3.
    """
    recompute_s = recompute_seconds(model, tokens, accelerator, mfu)
    both_ways = 2 * tokens * memory.kv_bytes_per_token(model, kv_dtype)
    return SwapOrRecompute(transfer_seconds(both_ways, link), recompute_s, both_ways / recompute_s)
