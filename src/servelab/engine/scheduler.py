"""What runs in the next step (sections 8.2.2 to 8.2.4 and 8.3.2), with the behaviour of vLLM V1 (0.32.0).

There is no prefill phase and no decode phase: a request has `num_tokens` tokens, `num_computed_tokens` of them
have their KV, and each step closes some of the gap. When it is closed, the step yields the next token.
"""

import math
from collections import deque
from itertools import count

from servelab.checks import require_int
from servelab.engine.batch import Batch, Row
from servelab.engine.blocks import BlockPool, BlockTable
from servelab.engine.drafts import require_draft, take_draft, take_verified
from servelab.engine.integrity import check_integrity, require_runnable
from servelab.engine.request import Request, Status

POLICIES = ("serial", "static", "continuous", "chunked")


class Scheduler:
    """Owns the waiting and the running requests and their blocks, and turns them into one batch a step.

    policy          "serial": one request at a time (with all its samples).
                    "static": a group is admitted only when the one before has left.
                    "continuous": whoever fits is admitted each step. These three compute a prompt whole, in one step.
                    "chunked": like continuous, but a prompt may be cut, so that no step exceeds the token budget
    max_running     most requests running at once
    token_budget    most tokens of a step, `None` for no limit
    chunk           most tokens that one request gets in a step (vLLM's long-prefill threshold), unless it is alone;
                    `None` for no limit; with "chunked" only
    prefix_caching  whether full blocks can be found by later requests

    Use: `batch = schedule()`, run it, `update(batch, tokens)`. In between the step is in flight: `cancel` and `add`
    are allowed, and blocks that a cancelled request held come back in `update`.
    """

    def __init__(
        self,
        pool: BlockPool,
        policy: str = "chunked",
        max_running: int = 2,
        token_budget: int | None = None,
        chunk: int | None = None,
        prefix_caching: bool = False,
    ):
        if policy not in POLICIES:
            raise ValueError(f"policy is {policy!r}; it must be one of {', '.join(POLICIES)}")
        require_int("max_running", max_running, minimum=1)
        if token_budget is not None:
            require_int("token_budget", token_budget, minimum=1)
        if chunk is not None:
            require_int("chunk", chunk, minimum=1)
            if policy != "chunked":
                raise ValueError(f"chunk is {chunk}; it must be None, because policy {policy!r} cuts no prompt")
        self.pool = pool
        self.policy = policy
        self.max_running = max_running
        self.token_budget = token_budget
        self.chunk = chunk
        self.prefix_caching = prefix_caching
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.requests: dict[str, Request] = {}  # waiting and running, by id
        self._ids: set[str] = set()  # of all that ever were
        self._unqueued: dict[str, Request] = {}  # registered, not yet added
        self._admissions = count()
        self._in_flight: Batch | None = None

    # ---- requests come and go

    def register(self, request: Request) -> None:
        """Take `request` on before it arrives. Raises `ValueError`, with nothing changed, if it can never run."""
        require_runnable(self, request)
        self._ids.update(request.sample_ids)
        self._unqueued[request.id] = request
        request.table = BlockTable(self.pool)

    def add(self, request: Request) -> None:
        """`request` arrives: it queues behind the others. Registers it first, if that has not been done."""
        if self._unqueued.get(request.id) is not request:
            self.register(request)
        del self._unqueued[request.id]
        self.requests[request.id] = request
        self.waiting.append(request)

    def cancel(self, request_id: str) -> bool:
        """Drop a waiting or running request; False if it had ended before. An unknown id raises `ValueError`.

        Its blocks are free at once, or when the step in flight has finished. What that step samples for it is lost.
        """
        request = self.requests.get(request_id)
        if request is None:
            if request_id not in self._ids:
                raise ValueError(f"request_id is {request_id!r}; no request has this id")
            return False
        if request.status is Status.RUNNING:
            self.running.remove(request)
        else:
            self.waiting.remove(request)
        self._leave(request, Status.CANCELLED)
        return True

    def _leave(self, request: Request, status: Status) -> None:
        request.status = status
        request.table.release()
        del self.requests[request.id]

    # ---- one step

    def set_draft(self, request: Request, token_ids: list[int]) -> None:
        """Let the next step verify `token_ids` behind the text of a running `request` that `takes_draft`.

        As much of it as fits is verified; then it is gone, as it is when the request is preempted.
        """
        require_draft(request, token_ids)
        request.spec_token_ids = list(token_ids)

    def schedule(self) -> Batch:
        """Choose the rows of the next step and give them their blocks. Running requests come first, in order.

        Waiting ones are admitted only if nothing was preempted. The batch is empty if nothing can run.
        """
        assert self._in_flight is None, "update() has not been called for the batch before"
        batch = Batch(math.inf if self.token_budget is None else self.token_budget)
        is_alone = len(self.running) + len(self.waiting) <= 1
        cap = math.inf if self.chunk is None or is_alone else self.chunk
        group_is_running = self.policy == "static" and bool(self.running)
        self._schedule_running(batch, cap)
        if not batch.preempted and not group_is_running:
            self._admit_waiting(batch, cap)
        batch.num_free_blocks = self.pool.num_free
        self.pool.begin_step()
        self._in_flight = batch
        return batch

    def _schedule_running(self, batch: Batch, cap: float) -> None:
        served = 0
        while served < len(self.running) and batch.budget_left > 0:
            request = self.running[served]
            num_tokens = min(request.num_tokens - request.num_computed_tokens, cap, batch.budget_left)
            draft = take_draft(request, min(cap, batch.budget_left)) if request.spec_token_ids else []
            num_tokens += len(draft)
            new_blocks = []
            if not request.table.fill(num_tokens):
                if not self._make_room(batch, request, num_tokens):
                    return
                new_blocks = self._append(batch, request.table, num_tokens)
            self._place(batch, request, num_tokens, "running", new_blocks, draft)
            served += 1

    def _make_room(self, batch: Batch, request: Request, num_tokens: int) -> bool:
        """Preempt the last running request until the blocks for `request` are there; False if that came to itself."""
        while request.table.blocks_needed(num_tokens) > self.pool.num_free:
            victim = self.running.pop()
            self._preempt(victim)
            batch.preempted.append(victim)
            if victim is request:
                return False
        return True

    def _preempt(self, victim: Request) -> None:
        """Take back all its blocks. Its tokens stay: what it had computed is computed again, or found in the cache."""
        victim.table.release()
        victim.num_computed_tokens = 0
        victim.num_cached_blocks = 0
        victim.spec_token_ids = []
        victim.num_preemptions += 1
        victim.status = Status.PREEMPTED
        self.waiting.appendleft(victim)

    def _admit_waiting(self, batch: Batch, cap: float) -> None:
        """Admit from the head until one does not fit: nobody overtakes."""
        while self.waiting and batch.budget_left > 0:
            request = self.waiting[0]
            if self.policy == "serial" and self.running:
                return
            if self._slots_taken() + request.n > self.max_running:
                return
            hits = self.find_prefix(request)
            missing = request.num_tokens - len(hits) * self.pool.block_size
            if self.policy != "chunked" and missing > batch.budget_left:
                return
            if not self.fits(request, hits):
                return
            self.waiting.popleft()
            request.table.reuse(hits)
            request.num_computed_tokens = request.table.num_tokens
            request.num_cached_blocks = len(hits)
            kind = "resumed" if request.status is Status.PREEMPTED else "new"
            self._start_running(request)
            num_tokens = min(missing, cap, batch.budget_left)
            self._place(batch, request, num_tokens, kind, self._append(batch, request.table, num_tokens))

    def _slots_taken(self) -> int:
        """Running requests; one that is to fork counts all its samples from the start."""
        return sum(request.n for request in self.running)

    def find_prefix(self, request: Request) -> list[int]:
        """Cached blocks that hold the beginning of its text.

        The last token is left out: it must be computed, even if its KV exists, because its logits are wanted.
        """
        if not self.prefix_caching:
            return []
        keys = request.block_keys(self.pool.block_size)
        return self.pool.prefix_cache.find(keys, (request.num_tokens - 1) // self.pool.block_size)

    def fits(self, request: Request, hits: list[int]) -> bool:
        """Whether its whole present text fits, not only its first chunk.

        Nothing is reserved by this: chunked prompts can still run out of blocks later.
        """
        blocks = -(-request.num_tokens // self.pool.block_size) - len(hits)
        blocks += sum(self.pool.ref_counts[block_id] == 0 for block_id in hits)  # to use these takes free blocks too
        return blocks <= self.pool.num_free

    def _start_running(self, request: Request) -> None:
        request.status = Status.RUNNING
        request.admission = next(self._admissions)
        self.running.append(request)

    def _append(self, batch: Batch, table: BlockTable, num_tokens: int) -> list[int]:
        batch.copies += table.copy_on_write()
        return table.append(num_tokens)

    def _place(self, batch: Batch, request: Request, num_tokens: int, kind: str, new_blocks, draft=()) -> None:
        """One more row, whose tokens have room in the table. Its full blocks go into the prefix cache.

        They can be found as of now, by a request that is admitted later in this very step: an executor must write
        all K and V of a layer before its attention reads any.
        """
        computed = request.num_computed_tokens
        request.num_computed_tokens = computed + num_tokens
        num_samples = request.n if request.num_computed_tokens >= request.num_tokens else 0
        batch.rows.append(Row(request, num_tokens, computed, num_samples, kind, new_blocks, draft))
        batch.budget_left -= num_tokens
        if self.prefix_caching:
            batch.cached += self.cache_full_blocks(request)

    def cache_full_blocks(self, request: Request) -> list[int]:
        """Make the blocks that `request` has filled since the last call findable; returns them.

        A draft fills none before it is accepted.
        """
        if request.token_ids is None:
            return []
        full_blocks = min(request.num_computed_tokens, request.num_tokens) // self.pool.block_size
        if full_blocks <= request.num_cached_blocks:
            return []
        keys = request.block_keys(self.pool.block_size)
        filled = request.table.block_ids[request.num_cached_blocks : full_blocks]
        for block_id, key in zip(filled, keys[request.num_cached_blocks : full_blocks], strict=True):
            self.pool.prefix_cache.add(block_id, key)
        request.num_cached_blocks = full_blocks
        return filled

    def update(self, batch: Batch, sampled: list[list[int | None]]) -> list[Request]:
        """The step has finished with `sampled[i]` as the tokens of row i; returns the requests that ended with it.

        A row whose `num_samples` is 0 has none. The row that completes a prompt has one token for each of its
        `n` samples: there the request forks. Token ids are `None` where the text is unknown.
        """
        assert batch is self._in_flight, "not the batch that schedule() returned last"
        batch.require_samples(sampled)
        self._in_flight = None
        self.pool.end_step()
        finished = []
        for row, tokens in zip(batch.rows, sampled, strict=True):
            if not tokens or row.request.status is Status.CANCELLED:
                continue
            if row.spec_token_ids:
                take_verified(row, tokens)
                if self.prefix_caching:
                    self.cache_full_blocks(row.request)
                if row.request.has_ended:
                    finished.append(row.request)
                continue
            samples = [row.request] if len(tokens) == 1 else self._fork(row.request, batch)
            for request, token in zip(samples, tokens):  # noqa: B905 - as many, and this is an inner loop
                request.append_token(token)
                if request.has_ended:
                    finished.append(request)
        self.finish(finished)
        return finished

    def abandon(self, batch: Batch) -> None:
        """The step did not finish. Its requests wait again, as if preempted: what it wrote cannot be relied on.

        No token is lost, and blocks that it was to fill can no longer be found.
        """
        assert batch is self._in_flight, "not the batch that schedule() returned last"
        self._in_flight = None
        for block_id in batch.cached:
            self.pool.prefix_cache.forget(block_id)
        self.pool.end_step()
        taken = {id(row.request) for row in batch.rows}
        for request in [request for request in reversed(self.running) if id(request) in taken]:
            self.running.remove(request)
            self._preempt(request)
            batch.preempted.append(request)

    def finish(self, requests: list[Request]) -> None:
        """The output of these running requests is complete: their blocks are free again."""
        for request in requests:
            self._leave(request, Status.FINISHED)
        if requests:
            self.running = [request for request in self.running if request.status is Status.RUNNING]

    def _fork(self, request: Request, batch: Batch) -> list[Request]:
        """`request`, whose prompt is complete, and its new forks: one running request for each of `n` samples."""
        forks = [request.fork(sample) for sample in range(1, request.n)]
        request.n = 1
        for fork in forks:
            self.requests[fork.id] = fork
            self._start_running(fork)
        batch.forks += forks
        return [request, *forks]

    def check_integrity(self) -> None:
        """Raise `RuntimeError` unless queues, tables and pool agree. Cheap enough for tests, not for each step."""
        check_integrity(self)
