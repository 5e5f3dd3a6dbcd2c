"""What every low-rank update asks of its arguments, asked once and before anything runs."""

import numpy as np

from servelab.checks import require_number
from servelab.kernels.checks.arrays import require_all, require_array, require_contiguous, require_shape

NO_ADAPTER = -1
MAX_RANK = 128  # of the CUDA kernel: a slice of A and one of the low-rank rows fit into 48 KiB of shared memory


def check_arguments(x, adapter_ids, lora_a, lora_b, scale, *, compiled):
    """Raise ValueError naming the first bad argument, its value and what is allowed.

    `compiled` adds the limits of the compiled kernels: rank up to 128, and adapters in C order (they are never copied
    behind the caller's back).
    """
    require_array("x", x, 2, (np.float32,))
    require_array("adapter_ids", adapter_ids, 1, (np.int32,))
    require_shape("adapter_ids", adapter_ids, x.shape[:1], "one a row of x")
    require_array("lora_a", lora_a, 3, (np.float32,))
    num_adapters, rank, hidden = lora_a.shape
    if hidden != x.shape[1]:
        raise ValueError(f"lora_a takes {hidden} values: allowed is a row of x, {x.shape[1]}")
    require_array("lora_b", lora_b, 3, (np.float32,))
    require_shape("lora_b", lora_b, (num_adapters, lora_b.shape[1], rank), "(adapters, out, rank) of lora_a")
    if compiled:
        if rank > MAX_RANK:
            raise ValueError(f"lora_a has rank {rank}: allowed are at most {MAX_RANK}")
        require_contiguous("lora_a", lora_a)
        require_contiguous("lora_b", lora_b)
    known = (adapter_ids >= NO_ADAPTER) & (adapter_ids < num_adapters)
    require_all("adapter_ids", adapter_ids, known, f"-1 for none to {num_adapters - 1}")
    require_number("scale", scale, minimum=-np.inf)
