"""What a draft is on its way through a step: set, cut to what fits, verified, and taken back where rejected (8.5)."""

from servelab.checks import require_int
from servelab.engine.batch import Row
from servelab.engine.request import MAX_TOKEN_ID, Request, Status


def require_draft(request: Request, token_ids: list[int]) -> None:
    """Raise `ValueError` unless `request` takes a draft now, and `token_ids` can be one."""
    if request.status is not Status.RUNNING or not request.takes_draft:
        raise ValueError(f"request {request.id!r} takes no draft now: it must be running, and its next step a decode")
    for position, token_id in enumerate(token_ids):
        require_int(f"token_ids[{position}]", token_id, maximum=MAX_TOKEN_ID)


def take_draft(request: Request, max_tokens: float) -> list[int]:
    """Its draft, cut to what fits into a row of `max_tokens`, its last output tokens and the free blocks.

    Nobody is preempted to make room for a guess. vLLM V1 cuts to budget and model length only, and does preempt.
    """
    draft, request.spec_token_ids = request.spec_token_ids, []
    wanted = request.num_prompt_tokens + request.max_tokens - request.num_tokens
    table, pool = request.table, request.table.pool
    slots = table.unused_slots + (pool.num_free - table.tail_is_shared) * pool.block_size
    return draft[: max(0, min(max_tokens, wanted, slots) - 1)]  # one is for the token that is fed anyway


def take_verified(row: Row, tokens: list[int]) -> None:
    """Append what a row with a draft yielded, to where the output ends, and take back the KV of all else."""
    request, before = row.request, row.request.num_tokens
    for token in tokens:
        request.append_token(token)
        if request.has_ended:
            break
    # One token was fed that had been decided before; each that was accepted has its KV too, the last has none yet.
    request.num_computed_tokens = row.num_computed_tokens + request.num_tokens - before
    request.table.truncate(request.num_computed_tokens)
