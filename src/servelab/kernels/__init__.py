"""The kernels that the sections explain, each written three times with one signature.

- `servelab.kernels.reference`: NumPy; the oracle.
- `servelab.kernels.cpu`: Numba, all cores.
- `servelab.kernels.cuda`: Numba-CUDA, on a GPU or on Numba's simulator.

Each has a module a kernel, and exports the kernels by name: `paged_attention(query, key_cache, value_cache,
block_tables, seq_lens, scale=None)` and so on. `servelab.kernels.checks` refuses bad arguments for all three. Import
the room you want: this package imports none of them, since NumPy and Numba are heavy.

Two modules run what is no kernel, on a CPU or with PyTorch on a GPU: `servelab.kernels.overlap` copies weights in
behind computations, `servelab.kernels.graphs` runs steps in captured shapes.
"""
