"""Speculative decoding: verify a draft, count what it gives and costs, choose its length (section 8.5)."""

from servelab.speculation.cost import (
    DRAFT_SOURCES,
    Marginal,
    best_length,
    draft_budget_s,
    draft_s,
    index_break_even_tokens,
    marginal,
    mean_of_ratios,
    time_per_token,
    verify_roofline,
)
from servelab.speculation.exact import (
    generated_distribution,
    output_distribution,
    round_distribution,
    sequence_distribution,
)
from servelab.speculation.expected import expected_rounds, expected_tokens, measured_acceptance, token_counts
from servelab.speculation.goodness import chi_square, chi_square_limit
from servelab.speculation.ngram import NgramDrafter
from servelab.speculation.proposers import NgramProposer
from servelab.speculation.rollback import Automaton, SpeculativeState
from servelab.speculation.verification import (
    Verification,
    acceptance_rate,
    residual,
    sample,
    verify_draft,
    verify_greedy,
    verify_token,
)

__all__ = [
    "DRAFT_SOURCES",
    "Automaton",
    "Marginal",
    "NgramDrafter",
    "NgramProposer",
    "SpeculativeState",
    "Verification",
    "acceptance_rate",
    "best_length",
    "chi_square",
    "chi_square_limit",
    "draft_budget_s",
    "draft_s",
    "expected_rounds",
    "expected_tokens",
    "generated_distribution",
    "index_break_even_tokens",
    "marginal",
    "mean_of_ratios",
    "measured_acceptance",
    "output_distribution",
    "residual",
    "round_distribution",
    "sample",
    "sequence_distribution",
    "time_per_token",
    "token_counts",
    "verify_draft",
    "verify_greedy",
    "verify_roofline",
    "verify_token",
]
