"""Runs of plain decode steps, taken in one jump: the same trace as step by step, in less time.

A run is plain while every running request gets exactly one token and yields one, and nobody is admitted,
preempted or cancelled. Then all that a step changes is known beforehand, but for its duration.
"""

from typing import NamedTuple

from servelab.engine.executor import CostExecutor
from servelab.engine.request import Request
from servelab.engine.scheduler import Scheduler


class DecodeRun(NamedTuple):
    """The next `num_steps` steps of a scheduler are plain decodes, unless an arrival or a cancellation ends them.

    is_closed  whether nobody can be admitted in these steps, so that arrivals may come and wait
    events     (step of the run, row) in order: here the row takes a block from the pool or completes one
    """

    num_steps: int
    is_closed: bool
    events: list[tuple[int, int]]


def plan_decodes(scheduler: Scheduler) -> DecodeRun | None:
    """The longest run of plain decodes that `scheduler` is about to do; `None` if its next step is not one."""
    running = scheduler.running
    is_closed = _is_closed(scheduler)
    if not running or (scheduler.waiting and not is_closed):
        return None
    if scheduler.token_budget is not None and len(running) > scheduler.token_budget:
        return None
    num_steps = min([request.num_prompt_tokens + request.max_tokens - request.num_tokens for request in running])
    block_size, takes, fills = scheduler.pool.block_size, [], []
    for row, request in enumerate(running):
        unused_slots = request.table.unused_slots
        if (
            request.num_tokens - request.num_computed_tokens != 1
            or request.num_tokens == request.num_prompt_tokens
            or request.stop_tokens
            or request.table.tail_is_shared
        ):
            return None  # a prompt is not complete, the end is not known, or a copy comes first
        if unused_slots < num_steps:
            takes += [(step, row) for step in range(unused_slots, num_steps, block_size)]
        if scheduler.prefix_caching:
            fills += [(step, row) for step in range((unused_slots - 1) % block_size, num_steps, block_size)]
    takes.sort()
    if len(takes) > scheduler.pool.num_free:
        num_steps = takes[scheduler.pool.num_free][0]  # in this step somebody finds no block
    if num_steps == 0:
        return None
    events = sorted({*takes, *fills}) if fills else takes
    return DecodeRun(num_steps, is_closed, events)


def _is_closed(scheduler: Scheduler) -> bool:
    """Whether no request that waits or arrives can be admitted while the running ones stay and only take blocks."""
    running = scheduler.running
    if scheduler.policy in ("serial", "static") or len(running) in (scheduler.max_running, scheduler.token_budget):
        return True
    if not scheduler.waiting:
        return False
    head = scheduler.waiting[0]  # nobody overtakes it
    if len(running) + head.n > scheduler.max_running:
        return True
    # With prefix caching a block that a running request completes may yet let it in.
    return not scheduler.prefix_caching and not scheduler.fits(head, [])


def take_decodes(scheduler: Scheduler, executor: CostExecutor, run: DecodeRun, num_steps: int) -> list[int]:
    """Do the first `num_steps` steps of `run`, but for what ends with the last; returns the free blocks in each."""
    pool, running = scheduler.pool, scheduler.running
    first = [request.num_computed_tokens for request in running]
    for request in running:
        if request.token_ids is None:
            request.num_tokens += num_steps
        else:
            for _ in range(num_steps):
                request.append_token(executor.sample(request))
    free_blocks: list[int] = []
    for step, row in run.events:
        if step >= num_steps:
            break
        free_blocks += [pool.num_free] * (step - len(free_blocks))
        _advance(scheduler, running[row], first[row] + step + 1)
    free_blocks += [pool.num_free] * (num_steps - len(free_blocks))
    for request, computed in zip(running, first, strict=True):
        # The last blocks have room: each block that is taken was an event.
        request.table.num_tokens = request.num_computed_tokens = computed + num_steps
    return free_blocks


def _advance(scheduler: Scheduler, request: Request, num_computed_tokens: int) -> None:
    request.table.append(num_computed_tokens - request.num_computed_tokens)
    request.num_computed_tokens = num_computed_tokens
    if scheduler.prefix_caching:
        scheduler.cache_full_blocks(request)
