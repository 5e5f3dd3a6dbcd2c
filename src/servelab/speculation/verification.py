"""Verifying a draft: greedy, and by rejection sampling (section 8.5.1).

Source of the sampled rule: Leviathan et al. 2023, arXiv:2211.17192; Chen et al. 2023, arXiv:2302.01318. Where a token
comes from is never random here: the caller gives the uniform numbers, so that a run can be repeated.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from servelab.checks import require_int, require_number
from servelab.speculation.distribution import as_mapping, as_mappings, like


@dataclass(frozen=True)
class Verification:
    """What one verification decides: the accepted draft tokens, and one more that the target chose.

    That one corrects the first rejected token, or follows a draft that was accepted as a whole.
    """

    tokens: tuple
    draft_length: int

    def __post_init__(self):
        require_int("draft_length", self.draft_length)
        if not 1 <= len(self.tokens) <= self.draft_length + 1:
            raise ValueError(f"tokens has {len(self.tokens)} entries; it must have 1 to {self.draft_length + 1}")

    @property
    def num_accepted(self) -> int:
        return len(self.tokens) - 1

    @property
    def num_discarded(self) -> int:
        """Draft tokens that were verified in vain: the rejected one and all behind it."""
        return self.draft_length - self.num_accepted


def verify_greedy(draft: Sequence, target: Sequence) -> Verification:
    """Keep the draft up to the first token that the target would not have chosen, and take the target's there.

    target: the target's most probable token at each position of the draft and at the one behind it, all computed in
    one step. What it says behind a wrong token rests on that token, and is dropped.
    """
    _require_one_more("target", target, draft)
    accepted = 0
    while accepted < len(draft) and draft[accepted] == target[accepted]:
        accepted += 1
    return Verification((*draft[:accepted], target[accepted]), len(draft))


def acceptance_rate(p, q):
    """The probability that a token drawn from `q` is accepted: sum of min(p, q) over tokens."""
    p_of, q_of = as_mappings(p, q)
    return sum(min(p_of[token], q_of[token]) for token in p_of)


def residual(p, q):
    """What to sample from after a rejection: max(0, p - q), normalised; in the form of `p`.

    It holds what accepted tokens leave missing. Where q equals p nothing is ever rejected, and it is p.
    """
    p_of, q_of = as_mappings(p, q)
    missing = {token: max(0, p_of[token] - q_of[token]) for token in p_of}
    total = sum(missing.values())
    return like(p, {token: part / total for token, part in missing.items()} if total else p_of)


def sample(distribution, uniform: float):
    """The token at `uniform` of the cumulative distribution: the first whose cumulative probability exceeds it."""
    items = as_mapping("distribution", distribution)
    _require_uniform("uniform", uniform)
    below = 0
    for token, probability in items.items():
        below += probability
        if uniform < below:
            return token
    return [token for token, probability in items.items() if probability][-1]  # rounding left the sum short of 1


def verify_token(p, q, token, accept_uniform: float, resample_uniform: float) -> tuple:
    """(output, accepted) for one `token` drawn from `q`: it is accepted with probability min(1, p / q).

    Otherwise the output is sampled from the residual. Over both uniform numbers and q the output is distributed as p.
    """
    p_of, q_of = as_mappings(p, q)
    _require_uniform("accept_uniform", accept_uniform)
    _require_uniform("resample_uniform", resample_uniform)
    if not q_of.get(token):
        raise ValueError(f"token is {token!r}; it must be one that q can draw")
    if accept_uniform * q_of[token] < p_of[token]:
        return token, True
    return sample(residual(p_of, q_of), resample_uniform), False


def verify_draft(targets: Sequence, drafts: Sequence, draft: Sequence, uniforms: Sequence[float]) -> Verification:
    """Accept the draft token by token until one is rejected, and sample one more token.

    targets: the target's distributions at the m positions of the draft and behind it, each given the draft before
    it. drafts: the m distributions that the draft was drawn from. uniforms: m + 1 numbers, one for each position's
    acceptance, the last for the token that is sampled at the end.
    """
    _require_one_more("targets", targets, draft)
    _require_one_more("uniforms", uniforms, draft)
    if len(drafts) != len(draft):
        raise ValueError(f"drafts has {len(drafts)} entries; it must have one for each of {len(draft)} draft tokens")
    for position, token in enumerate(draft):
        output, accepted = verify_token(targets[position], drafts[position], token, uniforms[position], uniforms[-1])
        if not accepted:
            return Verification((*draft[:position], output), len(draft))
    return Verification((*draft, sample(targets[-1], uniforms[-1])), len(draft))


def _require_one_more(name, values, draft):
    if len(values) != len(draft) + 1:
        raise ValueError(
            f"{name} has {len(values)} entries; it must have {len(draft) + 1}, one more than the draft has tokens"
        )


def _require_uniform(name, value):
    require_number(name, value, maximum=1)
    if value == 1:
        raise ValueError(f"{name} is {value!r}; it must be a number of at least 0 and below 1")
