"""Verification of drafts by rejection sampling in Numba-CUDA: one thread block a request.

One thread decides the draft. Then each thread adds up runs of tokens of the row to sample from, and one thread finds
the run, and in it the token, at which the sum is reached.
"""

import functools
import math

import numpy as np
from numba import cuda, int32

from servelab.kernels.checks.verification import PLACEHOLDER_TOKEN_ID, check_arguments, check_sampled
from servelab.kernels.cuda.device import require_device
from servelab.kernels.reference.verification import RUN_TOKENS, SMALLEST_SUM

THREADS = 128
# Put into the kernel before it is compiled: for a function that is called, Numba asks the GPU that is here.
_inline = cuda.jit(device=True, inline="always")


def verify(target_probs, draft_probs, draft_token_ids, num_draft_tokens, uniforms):
    """Accept each request's draft token by token until one is rejected, and sample one token more.

    - `target_probs`: (batch, max_draft + 1, vocab) float64, C-contiguous: the target's distribution at each draft
      position and behind the last one. max_draft is at least 1.
    - `draft_probs`: (batch, max_draft, vocab) float64, C-contiguous: the distributions that the drafts were drawn
      from. None where they were not drawn but looked up: each has probability 1 at its drafted token.
    - `draft_token_ids`: (batch, max_draft) int32.
    - `num_draft_tokens`: (batch,) int32, 0 to max_draft: how many of the row are drafted. The rest is ignored.
    - `uniforms`: (batch, max_draft + 1) float64, at least 0 and below 1. Column j decides draft token j, the last
      column the sampled token.

    With target p, draft q and uniform u, a draft token is accepted if q > 0 and u * q < p, which has probability
    min(1, p / q). At the first rejection the token is sampled from max(0, p - q) (from p where that has no mass: then
    rounding alone rejected), behind a draft accepted as a whole from p. Sampled is the first token at which the sum
    of the weights exceeds u times their sum over the vocabulary. Sums are float64, over runs of 256 tokens one after
    the other, and then over the runs one after the other: the kernels on all devices agree exactly.

    Returns `num_accepted`, (batch,) int32, and `output_token_ids`, (batch, max_draft + 1) int32: the accepted tokens,
    the sampled one, and -1 behind it. A bad argument raises ValueError naming the argument, its value and what is
    allowed, before anything runs; a row that is sampled from and is no distribution (NaN, infinite, all 0), after.

    Arguments and results are NumPy arrays: each call copies them to the GPU and back, so time the kernel, not this
    call. No GPU and no simulator raises RuntimeError before anything runs.

    Source: Leviathan et al. 2023, arXiv:2211.17192, algorithm 1; Chen et al. 2023, arXiv:2302.01318, algorithm 2.
    """
    check_arguments(target_probs, draft_probs, draft_token_ids, num_draft_tokens, uniforms)
    require_device()
    batch, positions, vocab = target_probs.shape
    looked_up = draft_probs is None
    arrays = (
        target_probs,
        np.empty((1, 1, 1)) if looked_up else draft_probs,
        draft_token_ids.copy(),
        num_draft_tokens.copy(),
        uniforms.copy(),
        np.empty((batch, -(-vocab // RUN_TOKENS))),  # the sums of each request's runs
        np.zeros(batch, np.int32),
        np.full((batch, positions), PLACEHOLDER_TOKEN_ID, np.int32),
    )
    on_device = [cuda.to_device(array) for array in arrays]
    _compiled()[batch, THREADS](looked_up, *on_device)
    num_accepted, output_token_ids = (array.copy_to_host() for array in on_device[-2:])
    check_sampled(num_accepted, output_token_ids)
    return num_accepted, output_token_ids


@functools.cache
def _compiled():
    return cuda.jit(kernel)


def kernel(
    looked_up,
    target_probs,
    draft_probs,
    draft_token_ids,
    num_draft_tokens,
    uniforms,
    run_sums,
    num_accepted,
    output_token_ids,
):
    """`run_sums`: (batch, num_runs) float64, scratch. `output_token_ids` comes filled with the placeholder."""
    # One shared array a line: the simulator tells them apart by line.
    shared_accepted = cuda.shared.array(1, int32)
    shared_token = cuda.shared.array(1, int32)
    request, thread = cuda.blockIdx.x, cuda.threadIdx.x
    drafts = draft_token_ids[request, : num_draft_tokens[request]]

    if thread == 0:
        accepted = 0
        for position in range(len(drafts)):
            p = target_probs[request, position, drafts[position]]
            q = 1.0 if looked_up else draft_probs[request, position, drafts[position]]
            if not (q > 0 and uniforms[request, position] * q < p):
                break
            output_token_ids[request, position] = drafts[position]
            accepted += 1
        num_accepted[request] = accepted
        shared_accepted[0] = accepted
    cuda.syncthreads()  # all threads know which row to sample from

    accepted = shared_accepted[0]
    p_row = target_probs[request, accepted]
    q_row, one_hot = p_row[:0], -1
    if accepted < len(drafts):
        if looked_up:
            one_hot = drafts[accepted]
        else:
            q_row = draft_probs[request, accepted]
    for _ in range(2):
        for run in range(thread, run_sums.shape[1], cuda.blockDim.x):
            run_sums[request, run] = _sum_run(p_row, q_row, one_hot, run)
        cuda.syncthreads()  # the sums of all runs are there
        if thread == 0:
            shared_token[0] = _find(p_row, q_row, one_hot, run_sums[request], uniforms[request, -1])
        cuda.syncthreads()  # all threads know whether there was something to sample from
        if shared_token[0] >= 0:
            break
        q_row, one_hot = p_row[:0], -1  # rounding alone rejected: sample from p
    if thread == 0 and shared_token[0] >= 0:
        output_token_ids[request, accepted] = shared_token[0]


@_inline
def _sum_run(p_row, q_row, one_hot, run):
    within = 0.0
    for token in range(run * RUN_TOKENS, min((run + 1) * RUN_TOKENS, p_row.size)):
        within += _weight(p_row, q_row, one_hot, token)
    return within


@_inline
def _find(p_row, q_row, one_hot, run_sums, uniform):
    """The token at `uniform` of the sum of weights; -1 where the sum is none to sample from."""
    total = 0.0
    for run in range(run_sums.size):
        total += run_sums[run]
    if not (SMALLEST_SUM <= total < math.inf):
        return -1

    threshold = uniform * total
    before, run = 0.0, 0
    while before + run_sums[run] <= threshold:  # ends: the last run reaches the total, which is above the threshold
        before += run_sums[run]
        run += 1
    token = run * RUN_TOKENS
    within = _weight(p_row, q_row, one_hot, token)
    while before + within <= threshold:
        token += 1
        within += _weight(p_row, q_row, one_hot, token)
    return token


@_inline
def _weight(p_row, q_row, one_hot, token):
    """max(0, p - q) of one token. q is `q_row` unless that is empty, and 1 at the token `one_hot`."""
    weight = p_row[token]
    if q_row.size:
        weight -= q_row[token]
    if token == one_hot:
        weight -= 1.0
    return weight if weight > 0 else 0.0
