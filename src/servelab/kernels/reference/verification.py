"""Verification of drafts by rejection sampling in NumPy: one request after the other, one row of weights at once."""

import numpy as np

from servelab.kernels.checks.verification import PLACEHOLDER_TOKEN_ID, check_arguments, check_sampled

# Weights are added in runs of so many tokens: the order of additions decides the last bits of a sum, so all three
# kernels keep the same one. A GPU adds the runs in parallel; it could not wait for a vocabulary added one by one.
RUN_TOKENS = 256
# A smaller sum (0, NaN) is none to sample from: float64 has no full precision below.
SMALLEST_SUM = float(np.finfo(np.float64).tiny)


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

    Source: Leviathan et al. 2023, arXiv:2211.17192, algorithm 1; Chen et al. 2023, arXiv:2302.01318, algorithm 2.
    """
    check_arguments(target_probs, draft_probs, draft_token_ids, num_draft_tokens, uniforms)
    batch, positions, _ = target_probs.shape
    num_accepted = np.zeros(batch, np.int32)
    output_token_ids = np.full((batch, positions), PLACEHOLDER_TOKEN_ID, np.int32)
    for request in range(batch):
        drafts = draft_token_ids[request, : num_draft_tokens[request]]
        accepted = 0
        for position, token in enumerate(drafts):
            p = target_probs[request, position, token]
            q = 1.0 if draft_probs is None else draft_probs[request, position, token]
            if not (q > 0 and uniforms[request, position] * q < p):
                break
            accepted += 1
        token = None
        if accepted < len(drafts):
            q_row = one_hot(drafts[accepted], target_probs) if draft_probs is None else draft_probs[request, accepted]
            token = sample(target_probs[request, accepted] - q_row, uniforms[request, -1])
        if token is None:
            token = sample(target_probs[request, accepted], uniforms[request, -1])
        num_accepted[request] = accepted
        output_token_ids[request, :accepted] = drafts[:accepted]
        if token is not None:
            output_token_ids[request, accepted] = token
    check_sampled(num_accepted, output_token_ids)
    return num_accepted, output_token_ids


def one_hot(token, target_probs):
    """The distribution of a draft that was looked up: (vocab,) float64."""
    row = np.zeros(target_probs.shape[2])
    row[token] = 1
    return row


def sample(weights, uniform):
    """The token at `uniform` of the sum of `weights`, (vocab,) float64; what is not above 0 counts as 0.

    None where the sum is none to sample from.
    """
    weights = np.where(weights > 0, weights, 0)  # NaN too
    runs = np.pad(weights, (0, -len(weights) % RUN_TOKENS)).reshape(-1, RUN_TOKENS)  # (num_runs, RUN_TOKENS)
    within = np.cumsum(runs, axis=1)  # adds one after the other, unlike np.sum
    ends = np.cumsum(within[:, -1])  # (num_runs,)
    total = ends[-1]
    if not SMALLEST_SUM <= total < np.inf:
        return None
    # u < 1 and a normal total: their product rounds to less than the total, so that a run and a token exceed it.
    threshold = uniform * total
    run = np.argmax(ends > threshold)
    before = ends[run - 1] if run else 0.0
    return run * RUN_TOKENS + np.argmax(before + within[run] > threshold)
