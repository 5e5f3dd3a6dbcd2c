"""Paged attention for one decode step, written three times with one signature.

- `servelab.kernels.reference`: NumPy, gather through the block table and softmax; the oracle.
- `servelab.kernels.cpu`: Numba, all cores, reads each cached key and value once.
- `servelab.kernels.cuda`: Numba-CUDA, on a GPU or on Numba's simulator.

Each exports `paged_attention(query, key_cache, value_cache, block_tables, seq_lens, scale=None)`. Import the one
you want: this package imports none of them, since NumPy and Numba are heavy.
"""
