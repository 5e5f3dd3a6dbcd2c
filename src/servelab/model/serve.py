"""Requests in, trace and texts out, on a real model: what `engine.simulate` is to a cost model."""

import time
from collections.abc import Callable, Iterable

from servelab.engine import Drafter, Engine, Request, Trace
from servelab.engine.engine import make_scheduler
from servelab.model.decoder import Decoder
from servelab.model.executor import TorchExecutor, WatchLogits
from servelab.model.kv_formats import KVFormat


def serve(
    model: Decoder,
    requests: Iterable[Request],
    policy: str = "chunked",
    max_running: int = 2,
    token_budget: int = 4096,
    chunk: int | None = 2048,
    num_blocks: int | None = None,
    block_size: int = 16,
    prefix_caching: bool = False,
    kv_dtype: str | KVFormat = "f32",
    kernels: bool | None = None,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
    watch_logits: WatchLogits = lambda rows, logits: None,
    drafter: Drafter | None = None,
) -> tuple[Trace, dict[str, list[int]]]:
    """Serve `requests` on `model` by the wall clock; returns the trace, and the output token ids of each request.

    The arguments up to `prefix_caching` are those of `engine.simulate`, the others those of `TorchExecutor`, but for
    `drafter`: a `speculation.NgramProposer` or a `model.draft.DraftModelProposer`, whose proposals are verified.
    `requests` are copied. Forks have outputs of their own, under `Request.sample_ids`.

    An exception that ends the run early, Ctrl-C included, carries the engine as its attribute `engine`: what has
    finished is in `engine.trace` and `outputs_of(engine)`.
    """
    requests = [request.fresh() for request in requests]
    limits = (policy, max_running, token_budget, chunk, num_blocks, block_size, prefix_caching)
    scheduler = make_scheduler(requests, *limits)
    executor = TorchExecutor(
        model, scheduler.pool.num_blocks, block_size, kv_dtype, kernels, clock, sleep, watch_logits
    )
    engine = Engine(scheduler, executor, drafter=drafter)
    for request in requests:
        engine.add(request)
    try:
        engine.run()
    except BaseException as error:
        error.engine = engine
        raise
    return engine.trace, outputs_of(engine)


def outputs_of(engine: Engine) -> dict[str, list[int]]:
    """Output token ids of all requests and forks of `engine`, by id: all there are so far."""
    return {request_id: request.output_token_ids for request_id, request in engine.requests.items()}
