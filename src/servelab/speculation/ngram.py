"""Drafts looked up in the text itself (section 8.5.3): prompt lookup decoding (Saxena 2023), vLLM's "ngram" method."""

from collections.abc import Iterable

from servelab.checks import require_int


class NgramDrafter:
    """Proposes what followed the last tokens when they occurred before.

    Of the suffixes of `max_n` down to `min_n` tokens it takes the longest that occurred, and of its occurrences the
    earliest, as vLLM V1 does. vLLM searches all of the text in each round; here an index grows with it, so that a
    lookup costs at most `max_n - min_n + 1` dictionary reads, and building the index is what preparation costs.
    Only decided tokens come in, so that a rejected draft leaves nothing to undo.
    """

    def __init__(self, min_n: int = 1, max_n: int = 3):
        require_int("min_n", min_n, minimum=1)
        require_int("max_n", max_n, minimum=min_n)
        self.min_n = min_n
        self.max_n = max_n
        self.tokens: list = []
        self._behind: dict[tuple, int] = {}  # n-gram -> position behind its earliest occurrence

    def extend(self, tokens: Iterable) -> None:
        """Add decided tokens: the prompt first, then what each round decides."""
        for token in tokens:
            self.tokens.append(token)
            for n in range(self.min_n, min(self.max_n, len(self.tokens)) + 1):
                self._behind.setdefault(tuple(self.tokens[-n:]), len(self.tokens))

    def draft(self, draft_length: int) -> list:
        """Up to `draft_length` tokens; none if no suffix occurred before."""
        require_int("draft_length", draft_length)
        for n in range(min(self.max_n, len(self.tokens)), self.min_n - 1, -1):
            start = self._behind[tuple(self.tokens[-n:])]
            if start < len(self.tokens):  # not the suffix itself
                return self.tokens[start : start + draft_length]
        return []
