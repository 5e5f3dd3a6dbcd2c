"""Verification of drafts by rejection sampling in Numba: one work item a request, on all cores.

It stores the sums of runs of tokens, nothing of the vocabulary's size.
"""

import numpy as np
from numba import njit, prange

from servelab.kernels.checks.verification import PLACEHOLDER_TOKEN_ID, check_arguments, check_sampled
from servelab.kernels.reference.verification import RUN_TOKENS, SMALLEST_SUM


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

    The first call compiles for a few seconds.

    Source: Leviathan et al. 2023, arXiv:2211.17192, algorithm 1; Chen et al. 2023, arXiv:2302.01318, algorithm 2.
    """
    check_arguments(target_probs, draft_probs, draft_token_ids, num_draft_tokens, uniforms)
    batch, positions, vocab = target_probs.shape
    num_accepted = np.zeros(batch, np.int32)
    output_token_ids = np.full((batch, positions), PLACEHOLDER_TOKEN_ID, np.int32)
    looked_up = draft_probs is None
    _kernel(
        target_probs,
        np.empty((0, 0, vocab)) if looked_up else draft_probs,
        looked_up,
        draft_token_ids.copy(),
        num_draft_tokens.copy(),
        uniforms.copy(),
        num_accepted,
        output_token_ids,
    )
    check_sampled(num_accepted, output_token_ids)
    return num_accepted, output_token_ids


# No fastmath here: the order of additions is part of the result.
@njit(parallel=True)
def _kernel(
    target_probs, draft_probs, looked_up, draft_token_ids, num_draft_tokens, uniforms, num_accepted, output_token_ids
):
    for request in prange(target_probs.shape[0]):
        drafts = draft_token_ids[request, : num_draft_tokens[request]]
        accepted = 0
        for position in range(len(drafts)):
            p = target_probs[request, position, drafts[position]]
            q = 1.0 if looked_up else draft_probs[request, position, drafts[position]]
            if not (q > 0 and uniforms[request, position] * q < p):
                break
            output_token_ids[request, position] = drafts[position]
            accepted += 1
        num_accepted[request] = accepted

        p_row, uniform = target_probs[request, accepted], uniforms[request, -1]
        token = -1
        if accepted < len(drafts):
            q_row = p_row[:0] if looked_up else draft_probs[request, accepted]
            token = _sample(p_row, q_row, drafts[accepted] if looked_up else -1, uniform)
        if token < 0:
            token = _sample(p_row, p_row[:0], -1, uniform)
        if token >= 0:
            output_token_ids[request, accepted] = token


@njit
def _sample(p_row, q_row, one_hot, uniform):
    """The token at `uniform` of the sum of weights; -1 where the sum is none to sample from."""
    vocab = p_row.size
    run_sums = np.empty((vocab + RUN_TOKENS - 1) // RUN_TOKENS)
    total = 0.0
    for run in range(run_sums.size):
        within = 0.0
        for token in range(run * RUN_TOKENS, min((run + 1) * RUN_TOKENS, vocab)):
            within += _weight(p_row, q_row, one_hot, token)
        run_sums[run] = within
        total += within
    if not (SMALLEST_SUM <= total < np.inf):
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


@njit
def _weight(p_row, q_row, one_hot, token):
    """max(0, p - q) of one token. q is `q_row` unless that is empty, and 1 at the token `one_hot`."""
    weight = p_row[token]
    if q_row.size:
        weight -= q_row[token]
    if token == one_hot:
        weight -= 1.0
    return weight if weight > 0 else 0.0
