"""Run the CUDA kernel on Numba's simulator; print its errors as JSON. Needs a process of its own, since
NUMBA_ENABLE_CUDASIM=1 must be set before Numba is imported."""

import json
import sys

import numpy as np
from kernel_cases import CUDA_CASES, random_case

from servelab.kernels import cuda, reference


def main():
    errors = {}
    for seed, (name, options) in enumerate(CUDA_CASES.items()):
        case = random_case(seed, **options)
        errors[name] = float(np.abs(cuda.paged_attention(**case) - reference.paged_attention(**case)).max())
    json.dump({"simulator": cuda.is_simulator(), "available": cuda.is_available(), "errors": errors}, sys.stdout)


if __name__ == "__main__":
    main()
