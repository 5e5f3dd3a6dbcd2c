"""What a round leaves behind once its rejected tokens are taken back: KV, block references, grammar (section 8.5.1)."""

from collections.abc import Hashable, Mapping, Sequence

from servelab.checks import require_int
from servelab.engine import BlockTable
from servelab.speculation.verification import Verification


class Automaton:
    """A grammar checker: a finite automaton that says which tokens may come next, and that can step back.

    transitions: state -> {token: next state}.
    """

    def __init__(self, transitions: Mapping[Hashable, Mapping], start: Hashable):
        self.transitions = transitions
        self.states = [start]  # all that were passed, the present one last

    @property
    def state(self) -> Hashable:
        return self.states[-1]

    def allowed(self, back: int = 0) -> list:
        """Tokens that may come next, or might if the last `back` tokens were taken back; a sampler masks all others."""
        require_int("back", back, maximum=len(self.states) - 1)
        return list(self.transitions.get(self.states[-1 - back], {}))

    def advance(self, token) -> None:
        """Take `token`. Raises `ValueError` if the grammar does not allow it here."""
        if token not in self.allowed():
            raise ValueError(f"token is {token!r}; it must be one of {self.allowed()}, allowed in state {self.state!r}")
        self.states.append(self.transitions[self.state][token])

    def rollback(self, num_tokens: int) -> None:
        """Forget the last `num_tokens` tokens."""
        require_int("num_tokens", num_tokens, maximum=len(self.states) - 1)
        del self.states[len(self.states) - num_tokens :]


class SpeculativeState:
    """One request between and during rounds.

    Between rounds `table` holds the KV of all tokens but the last, which is fed next: as in plain decode. A round
    begins with that token and the draft, all of which write KV; at its end the KV length falls back to what was
    decided, whole blocks behind it return to the pool, and the grammar checker stands behind the decided tokens.
    """

    def __init__(self, prompt: Sequence, table: BlockTable, grammar: Automaton | None = None):
        """`table`: empty, of the pool that the request lives in; the prompt's KV is written here, as by prefill.

        Raises `OutOfBlocks` if the pool cannot hold it. The grammar applies to what comes behind the prompt.
        """
        if not len(prompt):
            raise ValueError("prompt is empty; it must have at least one token")
        if table.num_tokens:
            raise ValueError(f"table has {table.num_tokens} tokens; it must be empty")
        table.append(len(prompt) - 1)
        self.tokens = list(prompt)
        self.table = table
        self.grammar = grammar
        self._draft: list | None = None

    @property
    def kv_length(self) -> int:
        """Tokens whose KV lies in the blocks, drafts of a round in progress included."""
        return self.table.num_tokens

    def begin_round(self, draft: Sequence) -> list:
        """Make room for the last token and the draft; returns the draft up to where the grammar forbids it.

        Raises `OutOfBlocks` if the pool has too few blocks, `ValueError` within a round; nothing has changed then.
        """
        if self._draft is not None:
            raise ValueError("a round is in progress; end_round must come first")
        if self.table.tail_is_shared:
            raise ValueError("table ends in a block that others reference; copy_on_write must come first")
        draft = self._allowed_part(draft)
        self.table.append(1 + len(draft))
        for token in draft if self.grammar else ():
            self.grammar.advance(token)
        self._draft = draft
        return list(draft)

    def _allowed_part(self, draft):
        """The tokens of `draft` before the first that the grammar forbids; leaves the grammar where it stands."""
        draft = list(draft)
        if self.grammar is None:
            return draft
        taken = 0
        while taken < len(draft) and draft[taken] in self.grammar.allowed():
            self.grammar.advance(draft[taken])
            taken += 1
        self.grammar.rollback(taken)
        return draft[:taken]

    def end_round(self, verification: Verification) -> None:
        """Keep what was decided, and take everything else of the round back.

        Raises `ValueError` if the verification is of another draft, or its last token against the grammar.
        """
        if self._draft is None:
            raise ValueError("no round is in progress; begin_round must come first")
        accepted = verification.num_accepted
        if verification.draft_length != len(self._draft) or list(verification.tokens[:-1]) != self._draft[:accepted]:
            raise ValueError(f"verification is {verification}; it must be of the draft {self._draft}")
        discarded, last = verification.num_discarded, verification.tokens[-1]
        if self.grammar and last not in self.grammar.allowed(back=discarded):
            allowed = self.grammar.allowed(back=discarded)
            raise ValueError(
                f"verification ends in {last!r}; it must end in one of {allowed}, which the grammar allows"
            )
        self.table.truncate(self.table.num_tokens - discarded)
        if self.grammar:
            self.grammar.rollback(discarded)
            self.grammar.advance(last)
        self.tokens += verification.tokens
        self._draft = None
