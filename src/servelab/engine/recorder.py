"""Writes a `Trace` while an engine runs."""

from servelab.engine.batch import Batch
from servelab.engine.request import Request, Status
from servelab.engine.trace import RequestRecord, Segment, Trace


class Recorder:
    """Called once for each request that is added, each step (or run of plain decodes), each request that leaves."""

    def __init__(self, config: dict):
        self.trace = Trace(config)
        self._records: dict[str, RequestRecord] = {}

    def add(self, request: Request) -> None:
        record = RequestRecord(
            request.id,
            request.arrival_s,
            request.num_prompt_tokens,
            request.max_tokens,
            request.parent,
            steps=self.trace.steps,
        )
        self._records[request.id] = record
        self.trace.requests.append(record)

    def step(self, batch: Batch, start_s: float, end_s: float) -> None:
        """A step ended and `Scheduler.update` has seen it."""
        step = len(self.trace.steps)
        self.abandoned(batch)
        if batch.preempted:
            self.trace.steps.preempted[step] = [request.id for request in batch.preempted]
        self.trace.steps.append(start_s, end_s, batch.num_free_blocks)
        for row in batch.rows:
            if row.kind == "new":
                self._records[row.request.id].num_cached_tokens = row.num_computed_tokens
            cancelled = row.request.status is Status.CANCELLED
            samples = 0 if cancelled else min(row.num_samples, 1)
            drafted = len(row.spec_token_ids)
            if drafted and not cancelled:
                samples = row.request.num_computed_tokens - row.num_computed_tokens  # what was rejected is taken back
            self._extend(row.request, step, 1, row.num_tokens, row.num_computed_tokens, samples, drafted)
        for fork in batch.forks:
            self.add(fork)
            self._extend(fork, step, 1, 0, fork.num_computed_tokens, 1)

    def abandoned(self, batch: Batch) -> None:
        """A step did not finish: nothing came of it but preemptions."""
        for request in batch.preempted:
            self._records[request.id].num_preemptions += 1

    def decodes(self, requests: list[Request], start_s: float, ends_s: list[float], num_free_blocks: list[int]) -> None:
        """Steps one after the other in which each of `requests`, now behind them, got and yielded one token."""
        step = len(self.trace.steps)
        for request in requests:
            self._extend(request, step, len(ends_s), 1, request.num_computed_tokens - len(ends_s), 1)
        for end_s, free in zip(ends_s, num_free_blocks, strict=True):
            self.trace.steps.append(start_s, end_s, free)
            start_s = end_s

    def _extend(self, request: Request, step, num_steps, num_tokens, num_computed_tokens, num_samples, num_drafted=0):
        segments = self._records[request.id].segments
        if segments and num_tokens == num_samples == 1:
            last = segments[-1]
            if last.num_tokens == last.num_samples == 1 and last.first_step + last.num_steps == step:
                last.num_steps += num_steps
                return
        segments.append(
            Segment(step, num_steps, num_tokens, num_computed_tokens, num_samples, request.admission, num_drafted)
        )

    def leave(self, request: Request, time_s: float) -> None:
        """The request has reached a final status, its blocks are free or on their way."""
        record = self._records[request.id]
        record.status = request.status.value
        record.finish_s = time_s
        record.output_token_ids = request.output_token_ids
