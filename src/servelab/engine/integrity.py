"""What must hold of a scheduler: for a request that it takes, and between any two steps."""

from servelab.engine.request import Request, Status


def require_runnable(scheduler, request: Request) -> None:
    """Raise `ValueError` if `scheduler` can never run `request`."""
    if request.table is not None:
        raise ValueError(f"request {request.id!r} was used already; request.fresh() makes an unused copy")
    for sample_id in request.sample_ids:
        if sample_id in scheduler._ids:
            raise ValueError(f"id is {sample_id!r}, which another request has")
    tokens, slots = request.max_written_tokens, scheduler.pool.num_blocks * scheduler.pool.block_size
    if tokens > slots:
        raise ValueError(f"request {request.id!r} writes {tokens} tokens; it must be at most {slots}, all blocks")
    if scheduler.policy != "chunked" and scheduler.token_budget is not None and tokens > scheduler.token_budget:
        # A preempted request is recomputed whole, its output included.
        raise ValueError(
            f"request {request.id!r} writes {tokens} tokens; "
            f"without chunking it must be at most the token budget {scheduler.token_budget}"
        )
    if request.n > scheduler.max_running:
        raise ValueError(f"n is {request.n}; it must be at most max_running, {scheduler.max_running}")
    if request.stop_tokens and request.token_ids is None:
        raise ValueError(f"request {request.id!r} has stop_tokens; its prompt must be token ids, not their number")


def check_integrity(scheduler) -> None:
    """Raise `RuntimeError` unless queues, tables and pool agree."""
    queued = [*scheduler.waiting, *scheduler.running]
    if len(queued) != len(scheduler.requests) or any(scheduler.requests.get(r.id) is not r for r in queued):
        raise RuntimeError("a request is in no queue or in two")
    if any(r.status is not Status.RUNNING for r in scheduler.running):
        raise RuntimeError("a running request has another status")
    if any(r.table.block_ids or r.num_computed_tokens for r in scheduler.waiting):
        raise RuntimeError("a waiting request holds blocks")
    if any(r.table.num_tokens != r.num_computed_tokens for r in scheduler.running):
        raise RuntimeError("a table has room for other tokens than were computed")
    if any(a.admission >= b.admission for a, b in zip(scheduler.running, scheduler.running[1:], strict=False)):
        raise RuntimeError("running requests are not in order of admission")
    if scheduler._slots_taken() > scheduler.max_running:
        raise RuntimeError(f"{scheduler._slots_taken()} requests run, {scheduler.max_running} may")
    scheduler.pool.check_integrity([request.table for request in scheduler.running])
