"""Verified drafts are distributed as the target: by chi-square against the exact enumeration, and by transformers."""

import functools
import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import torch
from verification_cases import sample_rows

from servelab import speculation
from servelab.kernels import cpu, reference


def assert_distributed(counts, expected):
    """`counts` of outcomes against their exact probabilities; fails once in a million draws from the right ones."""
    assert speculation.chi_square(counts, expected) < speculation.chi_square_limit(len(expected) - 1, chance=1e-6)


P, Q = np.array([0.5, 0.25, 0.125, 0.125, 0]), np.array([0.125, 0.25, 0.375, 0, 0.25])


def verify_one_position(draws, seed, draft_probs=Q):
    rng = np.random.default_rng(seed)
    ids = sample_rows(np.tile(Q, (draws, 1, 1)), rng)
    if draft_probs is not None:
        draft_probs = np.tile(draft_probs, (draws, 1, 1))
    targets = np.tile(P, (draws, 2, 1))
    return cpu.verify(targets, draft_probs, ids, np.ones(draws, np.int32), rng.random((draws, 2)))


def test_one_position_is_distributed_as_the_target():
    num_accepted, tokens = verify_one_position(40_000, seed=1)
    assert_distributed(Counter(tokens[:, 0].tolist()), {t: p for t, p in enumerate(P) if p})
    assert num_accepted.mean() == pytest.approx(float(speculation.acceptance_rate(P.tolist(), Q.tolist())), abs=0.01)
    bonus = tokens[num_accepted == 1, 1]
    assert_distributed(Counter(bonus.tolist()), {t: p for t, p in enumerate(P) if p})


def test_a_looked_up_draft_leaves_the_target_too():
    """Whatever the look-up proposes: here as if from Q, which the kernel is not told."""
    _, tokens = verify_one_position(40_000, seed=2, draft_probs=None)
    assert_distributed(Counter(tokens[:, 0].tolist()), {t: p for t, p in enumerate(P) if p})


def test_the_test_would_see_a_wrong_distribution():
    """Accepting by p/q but sampling from p, not from the residual: the usual mistake."""
    wrong = speculation.output_distribution(P.tolist(), Q.tolist(), resample_from=P.tolist())
    tokens = np.random.default_rng(3).choice(5, 40_000, p=np.array(wrong, float))
    with pytest.raises(AssertionError):
        assert_distributed(Counter(tokens.tolist()), {t: p for t, p in enumerate(P) if p})


def context_distributions(salt):
    """A function from a prefix to a distribution over 3 tokens, in sixteenths."""

    @functools.cache
    def distribution(prefix):
        weights = np.random.default_rng([salt, len(prefix), *prefix]).multinomial(13, [1 / 3] * 3) + 1
        return [Fraction(int(weight), 16) for weight in weights]

    return distribution


TARGET, DRAFTER, DRAFT_LENGTH = context_distributions(1), context_distributions(2), 2
EXACT = speculation.round_distribution(TARGET, DRAFTER, DRAFT_LENGTH)
ROWS = {  # the distributions behind each prefix, as the kernels take them
    prefix: (np.array(TARGET(prefix), float), np.array(DRAFTER(prefix), float))
    for length in range(DRAFT_LENGTH + 1)
    for prefix in itertools.product(range(3), repeat=length)
}


def drafted(rng):
    """A draft from the drafter, the target's distributions behind each of its prefixes, and the drafter's."""
    draft = ()
    for _ in range(DRAFT_LENGTH):
        draft = (*draft, int(sample_rows(ROWS[draft][1], rng)))
    rows = [ROWS[draft[:i]] for i in range(DRAFT_LENGTH + 1)]
    return draft, np.array([p for p, _ in rows]), np.array([q for _, q in rows[:-1]])


@pytest.fixture
def transformers_sampling():
    """Its speculative sampling, on one thread: rows of 3 tokens give no work to more."""
    from transformers.generation.utils import _speculative_sampling

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield lambda draft, targets, drafters: _speculative_sampling(
        torch.tensor([draft]), as_logits(drafters), DRAFT_LENGTH, as_logits(targets)
    )
    torch.set_num_threads(threads)


def as_logits(distributions):
    return torch.from_numpy(distributions).log()[None]


def test_whole_drafts_are_distributed_as_the_exact_enumeration():
    draws, rng = 20_000, np.random.default_rng(4)
    drafts, targets, drafters = zip(*(drafted(rng) for _ in range(draws)), strict=True)
    num_accepted, tokens = cpu.verify(
        np.array(targets),
        np.array(drafters),
        np.array(drafts, np.int32),
        np.full(draws, DRAFT_LENGTH, np.int32),
        rng.random((draws, DRAFT_LENGTH + 1)),
    )
    outcomes = Counter(
        tuple(row[: accepted + 1]) for row, accepted in zip(tokens.tolist(), num_accepted.tolist(), strict=True)
    )
    assert_distributed(outcomes, {tokens: float(p) for tokens, p in EXACT.items()})


def test_transformers_draws_from_the_same_distribution(transformers_sampling):
    rng = np.random.default_rng(5)
    torch.manual_seed(5)
    outcomes = Counter()
    for _ in range(3000):
        tokens, _ = transformers_sampling(*drafted(rng))
        outcomes[tuple(tokens[0].tolist())] += 1
    assert_distributed(outcomes, {tokens: float(p) for tokens, p in EXACT.items()})


def test_transformers_decides_the_same_with_the_same_uniforms(transformers_sampling, monkeypatch):
    """Its random numbers replaced by ours, and its multinomial draw by the first token past the cumulative sum."""
    rng = np.random.default_rng(6)
    for _ in range(300):
        draft, targets, drafters = drafted(rng)
        uniforms = rng.random(DRAFT_LENGTH + 1)
        monkeypatch.setattr(torch, "rand_like", lambda like, u=uniforms: torch.from_numpy(u[:-1]).reshape(like.shape))
        monkeypatch.setattr(
            torch, "multinomial", lambda p, num_samples, u=uniforms: (p.cumsum(-1) > u[-1]).int().argmax(-1)[:, None]
        )
        theirs, matches = transformers_sampling(draft, targets, drafters)
        num_accepted, ours = reference.verify(
            targets[None],
            drafters[None],
            np.array([draft], np.int32),
            np.array([DRAFT_LENGTH], np.int32),
            uniforms[None],
        )
        assert num_accepted[0] == int(matches)
        assert ours[0, : num_accepted[0] + 1].tolist() == theirs[0].tolist()
