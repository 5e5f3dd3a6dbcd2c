"""Which prefixes to keep after their request has ended, and for how long (section 8.3.4).

Times are seconds, sizes are `int` bytes; value is expected time saved.
"""

from servelab.retention.blocks import BlockLRU, HitRatios, hit_ratios, replay_turns
from servelab.retention.cache import POLICIES, PrefixStore, replay
from servelab.retention.value import (
    Prefix,
    SwapOrRecompute,
    break_even_hit_probability,
    recompute_seconds,
    swap_or_recompute,
    transfer_seconds,
    value_of_keeping,
    value_per_mib,
)

__all__ = [
    "POLICIES",
    "BlockLRU",
    "HitRatios",
    "Prefix",
    "PrefixStore",
    "SwapOrRecompute",
    "break_even_hit_probability",
    "hit_ratios",
    "recompute_seconds",
    "replay",
    "replay_turns",
    "swap_or_recompute",
    "transfer_seconds",
    "value_of_keeping",
    "value_per_mib",
]
