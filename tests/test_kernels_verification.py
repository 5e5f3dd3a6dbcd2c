"""Verification of drafts: the kernels agree exactly with each other and with the rule; bad input is refused."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import torch
from canaries import Guarded, guard_results
from gpu_compiler import GPUS, needs_compiler, ptx_for
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import boolean, float64, int32, types
from verification_cases import degenerate_case, random_case

from servelab import speculation
from servelab.kernels import cpu, cuda, reference
from servelab.kernels.checks.verification import PLACEHOLDER_TOKEN_ID

KERNELS = {"reference": reference, "cpu": cpu, "cuda": cuda}
RUNNABLE = [reference, cpu, *([cuda] if cuda.is_available() else [])]


def assert_equal(actual, expected):
    for array, like in zip(actual, expected, strict=True):
        assert array.dtype == like.dtype == np.int32
        np.testing.assert_array_equal(array, like)


@settings(max_examples=100, deadline=None)  # the first call compiles
@given(
    seed=st.integers(0, 2**32 - 1),
    batch=st.integers(1, 6),
    max_draft=st.integers(1, 5),
    vocab=st.sampled_from([1, 2, 3, 255, 256, 257, 600, 1024]),
    looked_up=st.booleans(),
    closeness=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
)
def test_kernels_agree_exactly(**options):
    case = random_case(**options)
    expected = reference.verify(**case)
    for kernel in RUNNABLE[1:]:
        assert_equal(kernel.verify(**case), expected)


@pytest.mark.parametrize("vocab", [152_064, 1000])
def test_kernels_agree_exactly_at_every_kind_of_uniform(vocab):
    """Among them such as hit a sum of probabilities to the last bit, where another order would give another token."""
    case = random_case(9, batch=40 if vocab == 1000 else 2, vocab=vocab, max_draft=1)
    case["num_draft_tokens"][:] = 0
    ends = np.cumsum(case["target_probs"][:, 0], axis=-1)
    case["uniforms"][:, -1] = np.minimum(ends[:, vocab // 3], 1 - 2**-53)
    assert_equal(cpu.verify(**case), reference.verify(**case))


@pytest.mark.parametrize("looked_up", [False, True])
@pytest.mark.parametrize("kernel", RUNNABLE, ids=lambda room: room.__name__)
def test_edges(kernel, looked_up):
    num_accepted, tokens = kernel.verify(**degenerate_case(looked_up))
    if looked_up:  # q = 1 at the drafted token: accepted with probability p
        assert num_accepted.tolist() == [0, 1, 0, 0, 1]
        assert tokens.tolist() == [[1, -1], [0, 1], [2, -1], [1, -1], [1, 1]]
    else:
        assert num_accepted.tolist() == [0, 0, 1, 0, 1]
        # Rejected, with only token 1 left; drafted with q = 0; accepted at p = q; sampled from p itself; certain.
        assert tokens.tolist() == [[1, -1], [3, -1], [3, 3], [2, -1], [1, 1]]


@settings(max_examples=200, deadline=None)
@given(data=st.data(), vocab=st.integers(2, 6), max_draft=st.integers(1, 4))
def test_reference_agrees_with_the_rule_in_fractions(data, vocab, max_draft):
    """Probabilities and uniforms that are multiples of 1/64: float64 is exact, and so is `speculation.verify_draft`."""
    total = 64

    def distribution():
        cuts = sorted(data.draw(st.lists(st.integers(0, total), min_size=vocab - 1, max_size=vocab - 1)))
        return [Fraction(b - a, total) for a, b in itertools.pairwise([0, *cuts, total])]

    targets = [distribution() for _ in range(max_draft + 1)]
    drafts = [distribution() for _ in range(max_draft)]
    draft = [data.draw(st.sampled_from([t for t in range(vocab) if q[t]])) for q in drafts]
    uniforms = [Fraction(data.draw(st.integers(0, total - 1)), total) for _ in range(max_draft + 1)]
    expected = speculation.verify_draft(targets, drafts, draft, uniforms)
    num_accepted, tokens = reference.verify(
        np.array([targets], float),
        np.array([drafts], float),
        np.array([draft], np.int32),
        np.array([max_draft], np.int32),
        np.array([uniforms], float),
    )
    assert num_accepted[0] == expected.num_accepted
    placeholders = [PLACEHOLDER_TOKEN_ID] * (max_draft - expected.num_accepted)
    assert tokens[0].tolist() == [*expected.tokens, *placeholders]


@pytest.mark.parametrize("looked_up", [False, True])
@pytest.mark.parametrize("kernel", RUNNABLE, ids=lambda room: room.__name__)
def test_nothing_outside_is_read_or_written(kernel, looked_up, monkeypatch):
    for seed in range(20):
        case = random_case(seed, looked_up=looked_up, vocab=300)
        expected = kernel.verify(**case)  # compiled before results are guarded
        guards = {name: Guarded(array) for name, array in case.items() if array is not None}
        with monkeypatch.context() as patch:
            results = guard_results(patch)
            actual = kernel.verify(**case | {name: guard.array for name, guard in guards.items()})
        assert_equal(actual, expected)
        assert results
        for guard in [*guards.values(), *results]:
            guard.assert_untouched_around()
        for name, guard in guards.items():
            assert guard.array.tobytes() == case[name].tobytes()


@pytest.mark.parametrize("kernel", RUNNABLE, ids=lambda room: room.__name__)
@pytest.mark.parametrize("value", [0.0, np.nan, np.inf, -1.0])
def test_a_row_that_is_no_distribution_gives_no_token(kernel, value):
    case = random_case(0)
    case["num_draft_tokens"][:] = [0, 0, 0, 0]
    case["target_probs"][2, 0] = value
    with pytest.raises(ValueError, match=r"target_probs\[2, 0\] is no distribution"):
        kernel.verify(**case)


def test_ids_and_uniforms_may_be_any_view():
    case = random_case(7)
    expected = cpu.verify(**case)
    for name in ("draft_token_ids", "num_draft_tokens", "uniforms"):
        case[name] = np.repeat(case[name], 2, axis=-1)[..., ::2]
        case[name].flags.writeable = False
    for kernel in RUNNABLE:
        assert_equal(kernel.verify(**case), expected)


def put(*index_and_value):
    *index, value = index_and_value

    def change(array):
        array[tuple(index)] = value
        return array

    return change


# What is changed in a good case (4 requests, drafts of 3, 3, 2 and 2 of up to 3 tokens, 600 tokens), and the error.
BAD_INPUTS = {
    "token past the vocabulary": ("draft_token_ids", put(1, 2, 600), r"draft_token_ids\[1, 2\] is 600.*0 to 599"),
    "token below 0": ("draft_token_ids", put(0, 0, -1), r"draft_token_ids\[0, 0\] is -1.*0 to 599"),
    "too many draft tokens": ("num_draft_tokens", put(1, 4), r"num_draft_tokens\[1\] is 4.*0 to 3"),
    "less than no draft tokens": ("num_draft_tokens", put(0, -1), r"num_draft_tokens\[0\] is -1.*0 to 3"),
    "uniform 1": ("uniforms", put(0, 1, 1.0), r"uniforms\[0, 1\] is 1.0.*below 1"),
    "uniform below 0": ("uniforms", put(0, 0, -0.1), r"uniforms\[0, 0\] is -0.1.*at least 0"),
    "uniform NaN": ("uniforms", put(3, 3, np.nan), r"uniforms\[3, 3\] is nan"),
    "targets in float32": ("target_probs", lambda a: a.astype("f4"), "target_probs has dtype float32.*float64"),
    "targets of 2 dimensions": ("target_probs", lambda a: a[0], "target_probs has shape.*3 dimensions"),
    "targets of one position": ("target_probs", lambda a: a[:, :1].copy(), "target_probs has 1 positions.*2 or more"),
    "targets not contiguous": ("target_probs", np.asfortranarray, "target_probs has strides"),
    "targets as a tensor": ("target_probs", torch.from_numpy, "target_probs is a Tensor"),
    "drafts in float32": ("draft_probs", lambda a: a.astype("f4"), "draft_probs has dtype float32"),
    "drafts of other positions": ("draft_probs", lambda a: a[:, 1:].copy(), r"draft_probs has shape \(4, 2, 600\)"),
    "drafts of another vocabulary": ("draft_probs", lambda a: a[..., 1:].copy(), r"draft_probs has shape \(4, 3, 599"),
    "drafts not contiguous": ("draft_probs", np.asfortranarray, "draft_probs has strides"),
    "ids in int64": ("draft_token_ids", lambda a: a.astype("i8"), "draft_token_ids has dtype int64.*int32"),
    "ids of other positions": ("draft_token_ids", lambda a: a[:, :2], r"draft_token_ids has shape \(4, 2\)"),
    "counts in int64": ("num_draft_tokens", lambda a: a.astype("i8"), "num_draft_tokens has dtype int64"),
    "a count too few": ("num_draft_tokens", lambda a: a[:3], r"num_draft_tokens has shape \(3,\)"),
    "uniforms in float32": ("uniforms", lambda a: a.astype("f4"), "uniforms has dtype float32"),
    "a uniform too few": ("uniforms", lambda a: a[:, :3], r"uniforms has shape \(4, 3\).*\(4, 4\)"),
}


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("bad", BAD_INPUTS.values(), ids=BAD_INPUTS)
def test_bad_input_is_refused_before_anything_runs(kernel, bad, monkeypatch):
    def ran(*_):
        raise AssertionError("the kernel ran")

    monkeypatch.setattr(kernel.verification, "check_sampled", ran)
    monkeypatch.setattr(cuda.verification, "require_device", ran)
    name, change, message = bad
    case = random_case(0) | {"num_draft_tokens": np.array([3, 3, 2, 2], np.int32)}
    case["draft_token_ids"][:] = 1
    case["uniforms"][:] = 0.5
    case[name] = change(case[name])
    with pytest.raises(ValueError, match=message):
        kernel.verify(**case)


@needs_compiler
@pytest.mark.parametrize("compute_capability", GPUS)
def test_kernel_compiles_for_gpus(compute_capability):
    probs, counts, ids = float64[:, :, ::1], int32[::1], int32[:, ::1]
    signature = types.void(boolean, probs, probs, ids, counts, float64[:, ::1], float64[:, ::1], counts, ids)
    ptx = ptx_for(cuda.verification.kernel, signature, compute_capability)
    assert "bar.sync" in ptx
    assert "add.rn.f64" in ptx or "add.f64" in ptx
    assert "fma.rn.f64" not in ptx  # rounds once where the other kernels round twice
