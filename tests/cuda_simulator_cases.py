"""Run every CUDA kernel on Numba's simulator; print its errors as JSON. Needs a process of its own, since
NUMBA_ENABLE_CUDASIM=1 must be set before Numba is imported.

A kernel is registered by its name in `servelab.kernels.cuda`, with the error that it may have and a function from there
to {case: error}.
"""

import json
import sys

import kernel_cases
import lora_cases
import numpy as np
import quantized_cases
import verification_cases
from canaries import Guarded

from servelab.kernels import cuda, reference


def largest_difference(kernel, case):
    return float(np.abs(getattr(cuda, kernel)(**case) - getattr(reference, kernel)(**case)).max())


def paged_attention():
    cases = enumerate(kernel_cases.CUDA_CASES.items())
    return {
        name: largest_difference("paged_attention", kernel_cases.random_case(seed, **options))
        for seed, (name, options) in cases
    }


def lora_update():
    return {
        name: largest_difference("lora_update", lora_cases.random_case(0, **options))
        for name, options in lora_cases.CUDA_CASES.items()
    }


def verify():
    """The error is the number of entries that differ, of counts and tokens."""
    cases = {
        name: verification_cases.random_case(0, **options) for name, options in verification_cases.CUDA_CASES.items()
    }
    for looked_up in (False, True):
        cases[f"edges, looked up: {looked_up}"] = verification_cases.degenerate_case(looked_up)
    return {
        name: sum(int((a != b).sum()) for a, b in zip(cuda.verify(**case), reference.verify(**case), strict=True))
        for name, case in cases.items()
    }


def copy_blocks():
    """The error is the number of bytes that differ; margins around the caches included."""
    errors = {}
    for dtype, tail in (("float32", (2, 5)), ("int8", (34,)), ("int8", (3,)), ("float16", (300,))):
        for pairs in ([(0, 1), (0, 4), (2, 3)], []):
            wholes = [np.random.default_rng(i).integers(0, 99, (2, 7, *tail)).astype(dtype) for i in range(2)]
            expected = [whole.copy() for whole in wholes]
            mapping = np.array(pairs, np.int64).reshape(-1, 2)
            # One layer of two, in the middle of a larger array: the layer behind it must stay as it is.
            cuda.copy_blocks(*(whole[:1] for whole in wholes), mapping)
            reference.copy_blocks(*(whole[:1] for whole in expected), mapping)
            errors[f"{dtype} {tail} {pairs}"] = sum(int((a != b).sum()) for a, b in zip(wholes, expected, strict=True))
    return errors


def paged_attention_quantized():
    cases = enumerate(quantized_cases.CUDA_CASES.items())
    return {
        name: largest_difference("paged_attention_quantized", quantized_cases.attention_case(seed, **options))
        for seed, (name, options) in cases
    }


def write_quantized():
    """The error is the number of bytes that differ from the reference's, in and around the caches."""
    errors = {}
    for kv_dtype in quantized_cases.KV_DTYPES:
        for name, case in {
            "random": quantized_cases.write_case(0, kv_dtype, num_tokens=2),
            "edges": quantized_cases.edge_case(kv_dtype, quantized_cases.EDGES),
        }.items():
            caches = ("key_cache", "value_cache")
            guards = {cache: Guarded(case[cache]) for cache in caches}
            reference.write_quantized(**case)
            cuda.write_quantized(**case | {cache: guards[cache].array for cache in caches})
            for guard in guards.values():
                guard.assert_untouched_around()
            errors[f"{name}, {kv_dtype}"] = sum(int((case[cache] != guards[cache].array).sum()) for cache in caches)
    return errors


KERNELS = {
    "paged_attention": (5e-6, paged_attention),  # as in test_kernels.py
    "copy_blocks": (0, copy_blocks),
    "lora_update": (2e-5, lora_update),  # as in test_kernels_lora.py
    "verify": (0, verify),
    "paged_attention_quantized": (5e-6, paged_attention_quantized),  # as in test_kernels_quantized.py
    "write_quantized": (0, write_quantized),
}


def main():
    report = {
        "simulator": cuda.is_simulator(),
        "available": cuda.is_available(),
        "tolerances": {name: tolerance for name, (tolerance, _) in KERNELS.items()},
        "errors": {name: errors() for name, (_, errors) in KERNELS.items()},
    }
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main()
