"""Who runs a batch. The scheduler does not know: the same one drives a cost model here and a real model elsewhere."""

import math
from collections.abc import Callable
from typing import Protocol

from servelab.engine.batch import Batch, Row
from servelab.engine.request import Request


class StepCostModel(Protocol):
    def seconds(self, rows) -> float:
        """Seconds of a step whose rows are pairs (new tokens, context)."""


class Executor(Protocol):
    """What `Engine` asks of an executor. Times are seconds on its own clock, which starts at 0."""

    def require_runnable(self, request: Request) -> None:
        """Raise `ValueError` if this executor can never run `request`: asked before the engine takes it."""

    def now(self) -> float: ...

    def wait_until(self, time_s: float) -> None:
        """Nothing to do before `time_s`: return when it has come."""

    def execute(self, batch: Batch) -> list[list[int | None]]:
        """Run the batch; returns the `num_samples` tokens of each row, `None` each where the text is unknown.

        In this order: copy the blocks `batch.copies`; in each layer write the K and V of all rows' new tokens, then
        read (a row may hit a block that another row of the same batch fills). Row i writes positions
        `row.positions` and reads all before them through `row.request.table`. An executor changes no request.

        A row with a draft (`row.spec_token_ids`) returns the beginning of it that the model accepts and one token more.
        """


def made_up_token(token_ids: list[int], sample: int = 0) -> int:
    """A stand-in for a model: an id below 50,000 that depends on the text alone, as in greedy decoding.

    Equal texts continue equally, so prefix hits and recomputation change nothing that is produced.
    """
    return (31 * token_ids[-1] + 17 * len(token_ids) + 7 * sample + 1) % 50_000


class CostExecutor:
    """Runs nothing: advances a virtual clock by what `step_cost` says and makes tokens up."""

    def __init__(self, step_cost: StepCostModel, next_token: Callable[[list[int], int], int] = made_up_token):
        self.step_cost = step_cost
        self.next_token = next_token
        self._clock_s = 0.0

    def require_runnable(self, request: Request) -> None:
        """Any will do."""

    def now(self) -> float:
        return self._clock_s

    def wait_until(self, time_s: float) -> None:
        self._clock_s = max(self._clock_s, time_s)

    def execute(self, batch: Batch) -> list[list[int | None]]:
        self._clock_s += self.step_cost.seconds([(row.num_tokens, row.num_computed_tokens) for row in batch.rows])
        return [
            self.verify(row)
            if row.spec_token_ids
            else [self.sample(row.request)]
            if row.num_samples == 1
            else [self.sample(row.request, sample) for sample in range(row.num_samples)]
            for row in batch.rows
        ]

    def sample(self, request: Request, sample: int = 0) -> int | None:
        return None if request.token_ids is None else self.next_token(request.token_ids, sample)

    def verify(self, row: Row) -> list[int]:
        """The draft up to the first token that is not the one that follows, and that one."""
        text, tokens = list(row.request.token_ids), []
        for drafted in (*row.spec_token_ids, None):
            tokens.append(self.next_token(text, 0))
            text.append(tokens[-1])
            if tokens[-1] != drafted:
                break
        return tokens

    def execute_decodes(
        self, requests: list[Request], num_steps: int, start_before_s: float = math.inf, end_before_s: float = math.inf
    ) -> list[float]:
        """Run up to `num_steps` steps in which each of `requests` gets one token; returns when each step ended.

        A step that would start at `start_before_s` or later, or end at `end_before_s` or later, is left for another
        call. Tokens are the caller's to `sample`: one request's do not depend on the others'.
        """
        ends = []
        contexts = [request.num_computed_tokens for request in requests]
        while len(ends) < num_steps and self._clock_s < start_before_s:
            end_s = self._clock_s + self.step_cost.seconds([(1, context + len(ends)) for context in contexts])
            if end_s >= end_before_s:
                break
            self._clock_s = end_s
            ends.append(end_s)
        return ends
