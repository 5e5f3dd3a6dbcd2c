"""Scheduler and executor together: requests in, trace out (sections 8.2.2 to 8.3.2)."""

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable
from itertools import count

from servelab.checks import require_int, require_number
from servelab.engine.blocks import BlockPool
from servelab.engine.drafter import Drafter
from servelab.engine.executor import CostExecutor, Executor, StepCostModel
from servelab.engine.jump import plan_decodes, take_decodes
from servelab.engine.recorder import Recorder
from servelab.engine.request import Request, Status
from servelab.engine.scheduler import Scheduler
from servelab.engine.trace import Trace


class Engine:
    """Serves requests step by step on the executor's clock and records what happens in `trace`.

    An arrival or a cancellation takes effect between steps; a request that is cancelled while a step runs loses what
    that step yields, and leaves when it ends. With `jump`, a `CostExecutor` (no subclass: it may watch each step)
    takes runs of plain decode steps in one go; the trace is the same.

    With a `drafter`, each decode step begins with its drafts, and verifies them (section 8.5). What drafting takes on
    the executor's clock is part of the step.

    An exception of the executor or the drafter, Ctrl-C included, comes through, and nothing is lost: what has finished
    is in `trace`, all texts so far are in `requests`; whoever was in that step waits to be recomputed, as if
    preempted. `run` may be called again, `cancel` before.
    """

    def __init__(self, scheduler: Scheduler, executor: Executor, jump: bool = True, drafter: Drafter | None = None):
        self.scheduler = scheduler
        self.executor = executor
        self.requests: dict[str, Request] = {}  # all that were added and their forks, by id
        self._forks: dict[str, list[str]] = defaultdict(list)  # by the id of what they were forked from
        self.drafter = drafter
        self._jump = jump and type(executor) is CostExecutor and drafter is None
        self._arrivals: list[tuple[float, int, Request]] = []  # heaps, by time
        self._cancels: list[tuple[float, int, str]] = []
        self._order = count()
        self._recorder = Recorder(
            {
                "policy": scheduler.policy,
                "max_running": scheduler.max_running,
                "token_budget": scheduler.token_budget,
                "chunk": scheduler.chunk,
                "num_blocks": scheduler.pool.num_blocks,
                "block_size": scheduler.pool.block_size,
                "prefix_caching": scheduler.prefix_caching,
            }
        )

    @property
    def trace(self) -> Trace:
        """What has happened so far."""
        return self._recorder.trace

    def add(self, request: Request) -> None:
        """Let `request` arrive at its `arrival_s`, or now if that is past. Refuses what can never run."""
        self.executor.require_runnable(request)
        self.scheduler.register(request)
        self.requests[request.id] = request
        self._recorder.add(request)
        heapq.heappush(self._arrivals, (request.arrival_s, next(self._order), request))
        if request.cancel_s is not None:
            self.cancel(request.id, request.cancel_s)

    def cancel(self, request_id: str, time_s: float | None = None) -> None:
        """Give a request and its forks up, now or at `time_s`. What has ended by then is left as it is."""
        if request_id not in self.requests:
            raise ValueError(f"request_id is {request_id!r}; no request has this id")
        time_s = self.executor.now() if time_s is None else time_s
        require_number("time_s", time_s)
        if time_s < self.requests[request_id].arrival_s:
            raise ValueError(f"time_s is {time_s}; it must be at least the request's arrival_s")
        heapq.heappush(self._cancels, (time_s, next(self._order), request_id))

    def run(self) -> Trace:
        """Step until every request has left."""
        while self.step():
            pass
        return self.trace

    def step(self) -> bool:
        """One step, or one run of plain decodes; waits for the next arrival if need be. False if nothing is left."""
        self._deliver()
        while not self.scheduler.requests:
            events = self._arrivals[:1] + self._cancels[:1]
            if not events:
                return False
            self.executor.wait_until(min(event[0] for event in events))
            self._deliver()
        if not (self._jump and self._step_by_jump()):
            self._step_by_batch()
        return True

    def _step_by_batch(self) -> None:
        start_s = self.executor.now()
        self._draft()
        batch = self.scheduler.schedule()
        assert batch.rows, "requests wait, but none can be admitted"
        try:
            sampled = self.executor.execute(batch)
            end_s = self.executor.now()
        except BaseException:
            self.scheduler.abandon(batch)
            self._recorder.abandoned(batch)
            raise
        self._deliver()  # what came while the step ran: blocks of a cancelled request stay until `update`
        finished = self.scheduler.update(batch, sampled)
        for fork in batch.forks:
            self.requests[fork.id] = fork
            self._forks[fork.parent].append(fork.id)
        self._recorder.step(batch, start_s, end_s)
        for request in finished:
            self._leave(request, end_s)

    def _draft(self) -> None:
        if self.drafter is not None:
            for request in self.scheduler.running:
                if request.takes_draft:
                    self.scheduler.set_draft(request, self.drafter.propose(request))

    def _leave(self, request: Request, time_s: float) -> None:
        self._recorder.leave(request, time_s)
        if self.drafter is not None:
            self.drafter.forget(request.id)

    def _step_by_jump(self) -> bool:
        run = plan_decodes(self.scheduler)
        if run is None:
            return False
        start_s = self.executor.now()
        arrival_s = self._arrivals[0][0] if self._arrivals and not run.is_closed else math.inf
        cancel_s = self._cancels[0][0] if self._cancels else math.inf
        ends_s = self.executor.execute_decodes(self.scheduler.running, run.num_steps, arrival_s, cancel_s)
        if not ends_s:
            return False
        free_blocks = take_decodes(self.scheduler, self.executor, run, len(ends_s))
        self._recorder.decodes(self.scheduler.running, start_s, ends_s, free_blocks)
        finished = [request for request in self.scheduler.running if request.has_ended]
        self.scheduler.finish(finished)
        for request in finished:
            self._leave(request, ends_s[-1])
        return True

    def _deliver(self) -> None:
        """Pass on, in order of time, the arrivals and cancellations that are due."""
        now = self.executor.now()
        while True:
            arrival_s = self._arrivals[0][0] if self._arrivals else math.inf
            cancel_s = self._cancels[0][0] if self._cancels else math.inf
            if min(arrival_s, cancel_s) > now:
                return
            if arrival_s <= cancel_s:
                self.scheduler.add(heapq.heappop(self._arrivals)[2])
            else:
                request_id = heapq.heappop(self._cancels)[2]
                for cancelled_id in (request_id, *self._forks.get(request_id, ())):
                    request = self.requests[cancelled_id]
                    was_running = request.status is Status.RUNNING
                    if self.scheduler.cancel(cancelled_id):
                        self._leave(request, now if was_running else cancel_s)


def simulate(
    requests: Iterable[Request],
    step_cost: StepCostModel,
    policy: str = "chunked",
    max_running: int = 2,
    token_budget: int = 4096,
    chunk: int | None = 2048,
    num_blocks: int | None = None,
    block_size: int = 16,
    prefix_caching: bool = False,
    jump: bool = True,
    drafter: Drafter | None = None,
) -> Trace:
    """Serve `requests` on a virtual clock that advances by `step_cost`; returns the trace.

    `policy` and limits are those of `Scheduler`. `token_budget` (tokens a step) and `chunk` (tokens of one request a
    step) matter to "chunked" only: the other policies compute prompts whole, however long. `num_blocks` is the
    size of the pool in blocks of `block_size` tokens; `None` makes it large enough that nothing is preempted, nor
    evicted from the prefix cache. Drafts of `drafter` take no time, verifying them does. `requests` are copied: the
    same ones can be simulated again.
    """
    requests = [request.fresh() for request in requests]
    limits = (policy, max_running, token_budget, chunk, num_blocks, block_size, prefix_caching)
    engine = Engine(make_scheduler(requests, *limits), CostExecutor(step_cost), jump, drafter)
    for request in requests:
        engine.add(request)
    return engine.run()


def make_scheduler(
    requests: list[Request],
    policy: str,
    max_running: int,
    token_budget: int,
    chunk: int | None,
    num_blocks: int | None,
    block_size: int,
    prefix_caching: bool,
) -> Scheduler:
    """The scheduler that `simulate` describes, with a pool for `requests`."""
    require_int("token_budget", token_budget, minimum=1)
    require_int("max_running", max_running, minimum=1)
    require_int("block_size", block_size, minimum=1)
    if num_blocks is None:
        num_blocks = _enough_blocks(requests, max_running, block_size, prefix_caching)
    is_chunked = policy == "chunked"
    return Scheduler(
        BlockPool(num_blocks, block_size),
        policy,
        max_running,
        token_budget if is_chunked else None,
        chunk if is_chunked else None,
        prefix_caching,
    )


def _enough_blocks(requests: list[Request], max_running: int, block_size: int, prefix_caching: bool) -> int:
    blocks = [-(-request.max_written_tokens // block_size) for request in requests for _ in range(request.n)]
    if prefix_caching:
        return max(1, sum(blocks))
    return max(1, min(max_running, len(blocks)) * max(blocks, default=1))
