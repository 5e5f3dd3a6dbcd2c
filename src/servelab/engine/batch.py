"""One step's work, as the scheduler hands it to an executor."""

from typing import Literal, NamedTuple

from servelab.engine.request import Request


class Row(NamedTuple):
    """What one request gets in a step. Its KV goes to `request.table.slot(position)` of each new position."""

    request: Request
    num_tokens: int  # new tokens, drafted ones included, at positions num_computed_tokens, ...
    num_computed_tokens: int  # its context: tokens whose KV exists before the step
    num_samples: int  # tokens it yields: 0 while its prompt is incomplete, n when it forks, else 1 (beyond its draft)
    kind: Literal["running", "new", "resumed"]
    new_blocks: list[int]
    spec_token_ids: list[int] | tuple[()] = ()  # a draft to be verified: the last of its new tokens

    @property
    def positions(self) -> range:
        return range(self.num_computed_tokens, self.num_computed_tokens + self.num_tokens)

    @property
    def token_ids(self) -> list[int]:
        """The new tokens; their text must be known."""
        end = self.num_computed_tokens + self.num_tokens  # a draft lies behind the text
        return [*self.request.token_ids[self.num_computed_tokens : end], *self.spec_token_ids]

    def require_samples(self, tokens: list[int | None]) -> None:
        """Raise `ValueError` unless `tokens` are as many as it yields; of a draft, a beginning and one token more."""
        draft = self.spec_token_ids
        if draft:
            if not 1 <= len(tokens) <= len(draft) + 1 or tokens[:-1] != draft[: len(tokens) - 1]:
                raise ValueError(
                    f"sampled is {tokens} for request {self.request.id!r}; "
                    f"it must be a beginning of the draft {draft} and one token more"
                )
        elif len(tokens) != self.num_samples:
            raise ValueError(
                f"sampled has {len(tokens)} tokens for request {self.request.id!r}; it must have {self.num_samples}"
            )
        is_unknown = self.request.token_ids is None
        for token in tokens:
            if (token is None) != is_unknown:
                allowed = "None, as its text is unknown" if is_unknown else "token ids"
                raise ValueError(f"sampled is {tokens} for request {self.request.id!r}; it must be {allowed}")


class Batch:
    """Rows in the order in which they were scheduled, and what happened on the way.

    copies     blocks (source, destination) to copy, in order, before the step writes anything (copy-on-write)
    preempted  requests that lost their blocks, in order
    cached     blocks that this step fills and that can be found as of now
    forks      requests that began with this step, known after `Scheduler.update`
    """

    def __init__(self, budget: float):
        self.budget_left = budget
        self.rows: list[Row] = []
        self.copies: list[tuple[int, int]] = []
        self.preempted: list[Request] = []
        self.cached: list[int] = []
        self.forks: list[Request] = []
        self.num_free_blocks = 0

    @property
    def num_tokens(self) -> int:
        return sum(row.num_tokens for row in self.rows)

    def require_samples(self, sampled: list[list[int | None]]) -> None:
        """Raise `ValueError` unless `sampled` has the tokens that `Executor.execute` must return for this batch."""
        if len(sampled) != len(self.rows):
            raise ValueError(f"sampled has {len(sampled)} rows; it must have {len(self.rows)}")
        for row, tokens in zip(self.rows, sampled, strict=True):
            row.require_samples(tokens)
