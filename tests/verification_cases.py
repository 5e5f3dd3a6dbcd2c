"""Random inputs for the verification kernels, with everything that must not be read made poisonous."""

import numpy as np


def random_case(seed, *, batch=4, max_draft=3, vocab=600, looked_up=False, closeness=0.7):
    """Arguments of `verify`: drafts of every length, drawn from distributions that are a mixture with the target's.

    `closeness` is the target's share, so that drafts end early and late. Past the end of a draft, probabilities are
    NaN, and ids and uniforms out of range.
    """
    rng = np.random.default_rng(seed)
    target_probs = rng.dirichlet(np.full(vocab, 0.3), (batch, max_draft + 1))
    other = rng.dirichlet(np.full(vocab, 0.3), (batch, max_draft))
    draft_probs = closeness * target_probs[:, :-1] + (1 - closeness) * other
    draft_probs /= draft_probs.sum(axis=-1, keepdims=True)
    ids = sample_rows(draft_probs, rng)
    num_draft_tokens = rng.integers(0, max_draft + 1, batch).astype(np.int32)
    uniforms = rng.random((batch, max_draft + 1))
    for request, length in enumerate(num_draft_tokens):
        target_probs[request, length + 1 :] = np.nan
        draft_probs[request, length:] = np.nan
        ids[request, length:] = 2**31 - 1
        uniforms[request, length:-1] = np.nan
    return {
        "target_probs": target_probs,
        "draft_probs": None if looked_up else draft_probs,
        "draft_token_ids": ids,
        "num_draft_tokens": num_draft_tokens,
        "uniforms": uniforms,
    }


def sample_rows(probabilities, rng):
    """A token from each row, (...,) int32."""
    ends = np.cumsum(probabilities, axis=-1)
    return (rng.random((*ends.shape[:-1], 1)) * ends[..., -1:] >= ends).sum(axis=-1).astype(np.int32)


def degenerate_case(looked_up=False):
    """Rows at the edges: q = 0 at the drafted token, p = q there, all mass on one token, rounding alone rejects."""
    certain, even = np.eye(4)[1], np.full(4, 0.25)
    below = even - 2**-55  # under q everywhere by a bit: a rejection leaves no residual
    p = np.array([[certain, even], [even, certain], [even, even], [below, even], [certain, certain]])
    q = np.array([[even], [certain], [even], [even], [certain]])
    return {
        "target_probs": p,
        "draft_probs": None if looked_up else q,
        "draft_token_ids": np.array([[0], [0], [3], [3], [1]], np.int32),
        "num_draft_tokens": np.ones(5, np.int32),
        "uniforms": np.array([[0.0, 0.5], [0.0, 0.9], [1 - 2**-53] * 2, [1 - 2**-53, 0.6], [1 - 2**-53] * 2]),
    }


# Drafts and look-ups, one run of 256 tokens and more of them, a vocabulary that fills its last run and one that does
# not; small, as the simulator runs threads in Python.
CUDA_CASES = {
    "drafts": {},
    "look-up": {"looked_up": True},
    "few tokens": {"vocab": 3, "max_draft": 5},
    "full runs": {"vocab": 512, "max_draft": 1},
    "more runs than threads": {"vocab": 256 * 129 + 1, "batch": 1, "closeness": 0.0},
}
