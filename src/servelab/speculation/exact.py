"""What speculative sampling puts out, exactly: all paths are walked and their probabilities added (section 8.5.1).

Rational probabilities (`Fraction`, `int`) stay rational, so that "equal to the target" means equal. Here the target
and the drafter are functions from a prefix, a tuple of tokens, to a distribution.
"""

from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction

from servelab.checks import require_int
from servelab.speculation.distribution import as_mapping, as_mappings, like
from servelab.speculation.verification import residual


def output_distribution(p, q, resample_from=None):
    """The distribution of the token that one position puts out, in the form of `p`; equal to p for every q.

    Walks each token of `q`: accepted with min(1, p / q), else replaced by one from the residual. `resample_from`, a
    distribution, replaces the residual: with p itself, the usual mistake, accepted tokens come out too often.
    """
    p_of, q_of = as_mappings(p, q)
    replacement = as_mapping("resample_from", residual(p_of, q_of) if resample_from is None else resample_from)
    output = dict.fromkeys(p_of, Fraction(0))
    for token, drafted in q_of.items():
        accepted = _accepted(p_of, q_of, token)
        output[token] += accepted
        for other, share in replacement.items():
            output[other] = output.get(other, 0) + (drafted - accepted) * share
    return like(p, output)


def _accepted(p_of, q_of, token):
    """The probability that `token` is drafted and accepted."""
    if not q_of[token]:
        return 0
    return q_of[token] * min(Fraction(1), p_of[token] / q_of[token])


def round_distribution(target: Callable, drafter: Callable, draft_length: int, prefix: tuple = ()) -> dict:
    """tokens that a round behind `prefix` decides -> probability. A round decides 1 to draft_length + 1 tokens.

    The mean length is what `expected_tokens` gives for the acceptances on the way. Cost grows as the number of
    tokens to the power of draft_length + 1.
    """
    require_int("draft_length", draft_length)
    outcomes = defaultdict(Fraction)

    def walk(decided, reached):
        p = target((*prefix, *decided))
        if len(decided) == draft_length:
            for token, share in as_mapping("target", p).items():
                outcomes[(*decided, token)] += reached * share
            return
        p_of, q_of = as_mappings(p, drafter((*prefix, *decided)))
        rejected = Fraction(0)
        for token, drafted in q_of.items():
            accepted = _accepted(p_of, q_of, token)
            rejected += drafted - accepted
            if accepted:
                walk((*decided, token), reached * accepted)
        for token, share in residual(p_of, q_of).items():
            outcomes[(*decided, token)] += reached * rejected * share

    walk((), Fraction(1))
    return {tokens: probability for tokens, probability in outcomes.items() if probability}


def generated_distribution(target: Callable, drafter: Callable, draft_length: int, num_tokens: int) -> dict:
    """tokens -> probability of the first `num_tokens` tokens that round after round decides."""
    require_int("num_tokens", num_tokens)
    finished = defaultdict(Fraction)
    unfinished = {(): Fraction(1)}
    while unfinished:
        prefix = min(unfinished, key=len)  # all paths to it have arrived
        reached = unfinished.pop(prefix)
        if len(prefix) >= num_tokens:
            finished[prefix[:num_tokens]] += reached
            continue
        for tokens, share in round_distribution(target, drafter, draft_length, prefix).items():
            longer = prefix + tokens
            unfinished[longer] = unfinished.get(longer, 0) + reached * share
    return dict(finished)


def sequence_distribution(target: Callable, num_tokens: int) -> dict:
    """tokens -> probability of `num_tokens` tokens sampled from the target one by one: what speculation must equal."""
    require_int("num_tokens", num_tokens)
    reached = {(): Fraction(1)}
    for _ in range(num_tokens):
        reached = {
            (*prefix, token): probability * share
            for prefix, probability in reached.items()
            for token, share in as_mapping("target", target(prefix)).items()
            if share
        }
    return reached
