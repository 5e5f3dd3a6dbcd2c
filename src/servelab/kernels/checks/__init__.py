"""What the kernels ask of their arguments: one module a kernel, asked once and before anything runs."""
