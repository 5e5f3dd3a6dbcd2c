"""What every verification kernel asks of its arguments, asked once and before anything runs."""

import numpy as np

from servelab.kernels.checks.arrays import require_all, require_array, require_contiguous, require_shape

PLACEHOLDER_TOKEN_ID = -1  # fills output_token_ids behind the last token, as in vLLM


def check_arguments(target_probs, draft_probs, draft_token_ids, num_draft_tokens, uniforms):
    """Raise ValueError naming the first bad argument, its value and what is allowed.

    Entries that no draft reaches are not looked at, and probabilities not at all: to sum every row would take longer
    than the kernels, which read one row or two of each request.
    """
    require_array("target_probs", target_probs, 3, (np.float64,))
    batch, positions, vocab = target_probs.shape
    if positions < 2:
        raise ValueError(f"target_probs has {positions} positions: allowed are 2 or more, the longest draft plus one")
    require_contiguous("target_probs", target_probs)
    if draft_probs is not None:
        require_array("draft_probs", draft_probs, 3, (np.float64,))
        require_shape("draft_probs", draft_probs, (batch, positions - 1, vocab), "target_probs' with a position less")
        require_contiguous("draft_probs", draft_probs)
    require_array("draft_token_ids", draft_token_ids, 2, (np.int32,))
    require_shape("draft_token_ids", draft_token_ids, (batch, positions - 1), "(batch, max_draft) of target_probs")
    require_array("num_draft_tokens", num_draft_tokens, 1, (np.int32,))
    require_shape("num_draft_tokens", num_draft_tokens, (batch,), "one a request")
    require_array("uniforms", uniforms, 2, (np.float64,))
    require_shape("uniforms", uniforms, (batch, positions), "(batch, max_draft + 1) of target_probs")

    in_range = (num_draft_tokens >= 0) & (num_draft_tokens < positions)
    require_all("num_draft_tokens", num_draft_tokens, in_range, f"0 to {positions - 1}, the positions there are")
    unused = np.arange(positions) >= num_draft_tokens[:, None]  # (batch, max_draft + 1)
    known = (draft_token_ids >= 0) & (draft_token_ids < vocab)
    require_all("draft_token_ids", draft_token_ids, known | unused[:, :-1], f"0 to {vocab - 1}, a token id")
    unused[:, -1] = False  # the sampled token's
    below_one = (uniforms >= 0) & (uniforms < 1)  # false for NaN
    require_all("uniforms", uniforms, below_one | unused, "at least 0 and below 1")


def check_sampled(num_accepted, output_token_ids):
    """Raise ValueError if a row of probabilities had nothing to sample from; the kernels mark it with a placeholder."""
    sampled = np.take_along_axis(output_token_ids, num_accepted[:, None], axis=1)[:, 0]  # (batch,)
    missing = np.flatnonzero(sampled == PLACEHOLDER_TOKEN_ID)
    if missing.size:
        request = missing[0]
        raise ValueError(
            f"target_probs[{request}, {num_accepted[request]}] is no distribution: allowed are finite probabilities "
            f"of at least 0, with a sum of about 1"
        )
