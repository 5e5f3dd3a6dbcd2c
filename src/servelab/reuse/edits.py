"""Three ways to bring something new into a long context, and what each leaves reusable (section 8.3.3, figure 8-20)."""

from collections.abc import Sequence
from dataclasses import dataclass

from servelab.checks import require_int
from servelab.reuse.tree import common_prefix_length


@dataclass(frozen=True)
class ContextEdit:
    """What the first request after an edit reuses and processes, in tokens."""

    reused_tokens: int
    processed_tokens: int
    generated_tokens: int = 0  # by the model before that request, to prepare the edit

    @property
    def context_tokens(self) -> int:
        """Length of the context afterwards: what each later output token reads."""
        return self.reused_tokens + self.processed_tokens


def compare_contexts(old: Sequence, new: Sequence) -> ContextEdit:
    """What it takes to go on with the tokens `new` when the KV of `old` is cached: the rule behind the other edits."""
    reused = common_prefix_length(old, new)
    return ContextEdit(reused, len(new) - reused)


def append_context(history_tokens: int, new_tokens: int) -> ContextEdit:
    """Add `new_tokens` at the end: all of the history is reused."""
    require_int("history_tokens", history_tokens)
    require_int("new_tokens", new_tokens)
    return ContextEdit(history_tokens, new_tokens)


def rewrite_context(history_tokens: int, new_tokens: int, first_changed: int = 0) -> ContextEdit:
    """Change the history from token `first_changed` on, keeping its length, and add `new_tokens` at the end.

    One changed token is enough: the K and V of everything behind it depend on it, even where the text is the same.
    """
    require_int("history_tokens", history_tokens)
    require_int("new_tokens", new_tokens)
    require_int("first_changed", first_changed, maximum=history_tokens)
    return ContextEdit(first_changed, history_tokens - first_changed + new_tokens)


def summarize_context(history_tokens: int, new_tokens: int, summary_tokens: int, kept_tokens: int = 0) -> ContextEdit:
    """Put a summary of `summary_tokens` in place of the history but its first `kept_tokens`, then add `new_tokens`.

    The model writes the summary behind the whole history. Its KV from then is of no use later, since the summary
    stands behind other tokens now: it is processed again. A longer summary than what it replaces is refused.
    """
    require_int("history_tokens", history_tokens)
    require_int("new_tokens", new_tokens)
    require_int("kept_tokens", kept_tokens, maximum=history_tokens)
    require_int("summary_tokens", summary_tokens, maximum=history_tokens - kept_tokens)
    return ContextEdit(kept_tokens, summary_tokens + new_tokens, generated_tokens=summary_tokens)
