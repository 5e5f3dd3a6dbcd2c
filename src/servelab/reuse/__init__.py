"""What a later request can take over from an earlier one, and what it must compute again (section 8.3.3).

The K and V of a token depend on every token before it, so only an unbroken common beginning can be reused. What else
limits reuse is the kind of state that was kept: KV of each token, a recurrent state now and then, or a window.
Lengths and positions are tokens, counted from the start of a text; sizes are bytes.
"""

from servelab.reuse.checkpoints import (
    checkpoint_bytes,
    checkpoint_positions,
    mean_recomputed_tokens,
    recomputed_tokens,
    restore_point,
)
from servelab.reuse.edits import ContextEdit, append_context, compare_contexts, rewrite_context, summarize_context
from servelab.reuse.tree import (
    PrefixNode,
    PrefixTree,
    common_prefix_length,
    common_prefixes,
    prefix_tree,
    recorded_turns,
    stand_in_tokens,
)
from servelab.reuse.windows import (
    DEEPSEEK_V41,
    RECOVERY_PATHS,
    Recovery,
    WindowedModel,
    long_term_storage_ratio,
    recover,
    windowed_state_bytes,
)

__all__ = [
    "DEEPSEEK_V41",
    "RECOVERY_PATHS",
    "ContextEdit",
    "PrefixNode",
    "PrefixTree",
    "Recovery",
    "WindowedModel",
    "append_context",
    "checkpoint_bytes",
    "checkpoint_positions",
    "common_prefix_length",
    "common_prefixes",
    "compare_contexts",
    "long_term_storage_ratio",
    "mean_recomputed_tokens",
    "prefix_tree",
    "recomputed_tokens",
    "recorded_turns",
    "recover",
    "restore_point",
    "rewrite_context",
    "stand_in_tokens",
    "summarize_context",
    "windowed_state_bytes",
]
