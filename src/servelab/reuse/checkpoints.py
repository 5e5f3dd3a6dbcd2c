"""Models with recurrent layers keep a state now and then, not one a token: where reuse can resume (section 8.3.3)."""

from collections.abc import Iterable

from servelab.checks import require_int


def checkpoint_positions(context_tokens: int, spacing: int) -> range:
    """Where a recurrent state is kept: after every `spacing` tokens, up to `context_tokens`."""
    require_int("context_tokens", context_tokens)
    require_int("spacing", spacing, minimum=1)
    return range(spacing, context_tokens + 1, spacing)


def restore_point(matched_tokens: int, checkpoints: Iterable[int]) -> int:
    """The last checkpoint not beyond the match, or 0: start from nothing (figure 8-19).

    A recurrent state sums up all tokens before it and cannot be taken back, so a later one is of no use.
    """
    require_int("matched_tokens", matched_tokens)
    checkpoints = list(checkpoints)
    for position in checkpoints:
        require_int("checkpoints", position, minimum=1)
    return max((position for position in checkpoints if position <= matched_tokens), default=0)


def recomputed_tokens(matched_tokens: int, checkpoints: Iterable[int]) -> int:
    """Tokens of the match that are computed again, from the restored checkpoint to the end of the match."""
    return matched_tokens - restore_point(matched_tokens, checkpoints)


def mean_recomputed_tokens(context_tokens: int, spacing: int) -> float:
    """Mean of `recomputed_tokens` with evenly spaced checkpoints, all matches of 1 to `context_tokens` equally likely.

    About half the spacing; the worst case is one token less than the spacing.
    """
    require_int("context_tokens", context_tokens, minimum=1)
    require_int("spacing", spacing, minimum=1)
    full, rest = divmod(context_tokens, spacing)  # a match of m tokens leaves m % spacing
    return (full * spacing * (spacing - 1) // 2 + rest * (rest + 1) // 2) / context_tokens


def checkpoint_bytes(context_tokens: int, spacing: int, bytes_per_checkpoint: int) -> int:
    """Bytes of all checkpoints of a context. Each takes the same, however many tokens it sums up.

    Record "hybrid-state" has the size of one, of a model with KDA layers.
    """
    require_int("bytes_per_checkpoint", bytes_per_checkpoint, minimum=1)
    return len(checkpoint_positions(context_tokens, spacing)) * bytes_per_checkpoint
