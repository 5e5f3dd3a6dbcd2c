"""Copy-on-write: the three kernels against a plain loop, in every dtype; bad lists refused; nothing else changed."""

import re

import numpy as np
import pytest
import torch
from canaries import Guarded
from gpu_compiler import GPUS, needs_compiler, ptx_for
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import int64, types, uint8, uint64

from servelab.kernels import cpu, cuda, reference
from servelab.kernels.reference.blocks import as_words

KERNELS = {"reference": reference, "cpu": cpu, "cuda": cuda}
RUNNABLE = [reference, cpu, *([cuda] if cuda.is_available() else [])]
SHAPE = (3, 8, 2, 4, 5)  # layers, blocks, KV heads, tokens, head_dim


def caches(seed=0, dtype="float32", shape=SHAPE):
    rng = np.random.default_rng(seed)
    num_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return [rng.integers(0, 256, num_bytes, np.uint8).view(dtype).reshape(shape) for _ in range(2)]


def copied(cache, block_mapping):
    """What copying must give, as bytes, since random floats hold NaN."""
    expected = cache.copy()
    for source, destination in block_mapping:
        expected[:, destination] = cache[:, source]
    return expected.tobytes()


@settings(max_examples=60, deadline=None)  # the first call compiles
@given(
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from(["float32", "float16", "int8", "uint16", "complex128", "V34"]),
    tail=st.sampled_from([(), (1,), (3,), (2, 4, 5), (1, 7, 3)]),
    num_blocks=st.integers(1, 12),
    num_layers=st.integers(1, 3),
    data=st.data(),
)
def test_each_kernel_copies_what_a_loop_copies(seed, dtype, tail, num_blocks, num_layers, data):
    blocks = data.draw(st.permutations(range(num_blocks)))
    destinations = blocks[: data.draw(st.integers(0, num_blocks - 1))]
    sources = [data.draw(st.sampled_from(blocks[len(destinations) :])) for _ in destinations]
    block_mapping = np.array([sources, destinations], np.int64).T
    before = caches(seed, dtype, (num_layers, num_blocks, *tail))
    for kernel in RUNNABLE:
        after = [cache.copy() for cache in before]
        assert kernel.copy_blocks(*after, block_mapping) is None
        assert [cache.tobytes() for cache in after] == [copied(cache, block_mapping) for cache in before]


@pytest.mark.parametrize("kernel", RUNNABLE, ids=lambda room: room.__name__)
def test_nothing_around_the_caches_changes(kernel):
    block_mapping = np.array([[0, 7], [6, 1], [0, 2]])
    guards = [Guarded(cache) for cache in caches(dtype="uint16")]
    before = [guard.array.copy() for guard in guards]
    kernel.copy_blocks(*(guard.array for guard in guards), block_mapping)
    for guard, cache in zip(guards, before, strict=True):
        guard.assert_untouched_around()
        assert guard.array.tobytes() == copied(cache, block_mapping)


@pytest.mark.parametrize(
    ("tail", "dtype", "width"), [((4,), "f4", 8), ((3,), "f4", 4), ((3,), "f2", 2), ((5,), "i1", 1)]
)
def test_blocks_are_copied_in_the_widest_words_that_divide_them(tail, dtype, width):
    cache = np.zeros((2, 3, *tail), dtype)
    words = as_words(cache)
    assert (words.dtype.itemsize, words.shape[:2], words.nbytes) == (width, (2, 3), cache.nbytes)
    assert np.shares_memory(words, cache)


def test_words_are_no_wider_than_the_memory_is_aligned():
    cache = np.zeros(1 + 2 * 3 * 8, np.int8)[1:].reshape(2, 3, 8)
    assert as_words(cache).dtype == np.uint8


def read_only(array):
    array.flags.writeable = False
    return array


# What is changed in a good case (8 blocks), and what the error says.
BAD_INPUTS = {
    "block past the pool": (
        "block_mapping",
        lambda a: np.append(a, [[0, 8]], 0),
        r"block_mapping\[2, 1\] is 8.*0 to 7",
    ),
    "block below 0": ("block_mapping", lambda a: np.append(a, [[-1, 3]], 0), r"block_mapping\[2, 0\] is -1.*0 to 7"),
    "a destination twice": ("block_mapping", lambda a: np.append(a, [[0, 1]], 0), "writes block 1 twice"),
    "a destination that is a source": (
        "block_mapping",
        lambda a: np.append(a, [[1, 3]], 0),
        "reads and writes block 1",
    ),
    "a block onto itself": ("block_mapping", lambda a: np.append(a, [[3, 3]], 0), "reads and writes block 3"),
    "a mapping in int32": ("block_mapping", lambda a: a.astype(np.int32), "block_mapping has dtype int32.*int64"),
    "a mapping of triples": (
        "block_mapping",
        lambda a: np.zeros((1, 3), np.int64),
        r"shape \(1, 3\).*\(num_pairs, 2\)",
    ),
    "a flat mapping": ("block_mapping", lambda a: a[0], r"shape \(2,\).*\(num_pairs, 2\)"),
    "a list of pairs": ("block_mapping", lambda a: a.tolist(), "block_mapping is a list.*NumPy array"),
    "keys as a tensor": ("key_cache", torch.from_numpy, "key_cache is a Tensor.*NumPy array"),
    "keys of 1 dimension": ("key_cache", lambda a: a[0, :, 0, 0, 0].copy(), r"key_cache has shape \(8,\).*num_blocks"),
    "keys without layers": ("key_cache", lambda a: a[:0], r"key_cache has shape \(0, .*at least 1"),
    "keys of objects": ("key_cache", lambda a: a.astype(object), "key_cache has dtype object.*plain bytes"),
    "keys not contiguous": ("key_cache", np.asfortranarray, "key_cache has strides.*C-contiguous"),
    "keys read-only": ("key_cache", read_only, "key_cache is read-only"),
    "values of another shape": ("value_cache", lambda a: a[:, :7].copy(), "value_cache has shape.*key_cache's"),
    "values of another dtype": (
        "value_cache",
        lambda a: np.zeros(a.shape),
        "value_cache has dtype float64.*key_cache's",
    ),
    "values not contiguous": ("value_cache", lambda a: a.repeat(2, 4)[..., ::2], "value_cache has strides"),
    "values read-only": ("value_cache", read_only, "value_cache is read-only"),
}


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("bad", BAD_INPUTS.values(), ids=BAD_INPUTS)
def test_bad_input_is_refused_and_nothing_changes(kernel, bad):
    name, change, message = bad
    keys, values = caches()
    before = [keys.copy(), values.copy()]
    case = {"key_cache": keys, "value_cache": values, "block_mapping": np.array([[0, 1], [0, 2]])}
    case[name] = change(case[name])
    with pytest.raises(ValueError, match=message):
        kernel.copy_blocks(**case)
    assert [keys.tobytes(), values.tobytes()] == [cache.tobytes() for cache in before]


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_caches_that_overlap_are_refused(kernel):
    keys, _ = caches()
    with pytest.raises(ValueError, match="value_cache overlaps key_cache"):
        kernel.copy_blocks(keys, keys, np.array([[0, 1]]))


@needs_compiler
@pytest.mark.parametrize("compute_capability", GPUS)
@pytest.mark.parametrize("word", [uint8, uint64], ids=str)
def test_kernel_compiles_for_gpus(word, compute_capability):
    cache = word[:, :, ::1]
    ptx = ptx_for(cuda.blocks.kernel, types.void(cache, cache, int64[:, ::1]), compute_capability)
    assert re.search(rf"\bst(\.global)?\.[bu]{word.bitwidth}\b", ptx)  # one word at a time, not its bytes


@pytest.mark.skipif(cuda.is_available(), reason="a CUDA GPU or the simulator is here")
def test_without_gpu_and_simulator_nothing_is_changed():
    keys, values = caches()
    with pytest.raises(RuntimeError, match="NUMBA_ENABLE_CUDASIM=1"):
        cuda.copy_blocks(keys, values, np.array([[0, 1]]))
    assert keys.tobytes() == caches()[0].tobytes()
