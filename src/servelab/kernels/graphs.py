"""Steps in captured shapes: padded to one on any device, replayed as CUDA Graphs on a GPU (section 8.2.4).

A decode step launches hundreds of small kernels. A CUDA Graph launches them all at once, but only for the shapes and
memory that it was captured with: a batch is padded to the next captured size, and what padding computes is thrown
away. Here a step is a function of one array, (rows, ...) to (rows, ...), that treats each row by itself. In an engine
padding rows need a KV slot that nobody reads, too.
"""

import statistics

import numpy as np

from servelab import measure
from servelab.checks import require_int
from servelab.cost import padded_rows


def run_padded(step, inputs, captured):
    """step(inputs), computed in the smallest of the `captured` sizes that holds its rows, and cut to its rows.

    inputs: (rows, ...), a NumPy array or a PyTorch tensor; padding rows are 0. Beyond the largest size nothing is
    captured, and the step runs as it is. Raises ValueError for no rows, a size below 1, or a step that changes their
    number.
    """
    rows = len(inputs)
    outputs = _run(step, pad(inputs, padded_rows(rows, captured)))
    return outputs[:rows]


def pad(inputs, rows):
    """`inputs`, a NumPy array or a PyTorch tensor, with rows of 0 behind its own, up to `rows`."""
    require_int("rows", rows, minimum=len(inputs))
    if rows == len(inputs):
        return inputs
    shape = (rows, *inputs.shape[1:])
    padded = np.zeros(shape, inputs.dtype) if isinstance(inputs, np.ndarray) else inputs.new_zeros(shape)
    padded[: len(inputs)] = inputs
    return padded


def _run(step, inputs):
    outputs = step(inputs)
    if len(outputs) != len(inputs):
        raise ValueError(f"step makes {len(outputs)} rows of {len(inputs)}; it must keep their number")
    return outputs


def decode_like_step(num_layers=8, width=256, device="cpu", seed=0):
    """A step of many small operations, as a decode step is: for each layer a norm, a product, an activation, a sum.

    Returns a function of one float32 tensor, (rows, width) to (rows, width), on that device of PyTorch's.
    """
    import torch

    require_int("num_layers", num_layers, minimum=1)
    require_int("width", width, minimum=1)
    generator = torch.Generator().manual_seed(seed)
    weights = (torch.randn(num_layers, width, width, generator=generator) / width**0.5).to(device)

    def step(inputs):
        hidden = inputs  # (rows, width)
        for matrix in weights:
            normed = torch.nn.functional.rms_norm(hidden, (width,))
            hidden = hidden + torch.nn.functional.silu(normed @ matrix)
        return hidden

    return step


def measure_padding(step, inputs, captured, rounds=20):
    """{rows: (seconds as it is, seconds padded)} for each number of rows of `inputs`: what padding alone costs here.

    Medians over `rounds`, in which all take turns. On a CPU there is no launch to save: padding only costs.
    """
    contestants = {}
    for rows in range(1, len(inputs) + 1):
        contestants[rows, "plain"] = lambda batch=inputs[:rows]: _run(step, batch)
        contestants[rows, "padded"] = lambda batch=inputs[:rows]: run_padded(step, batch, captured)
    samples = measure.interleave(contestants, rounds=rounds)
    medians = {name: statistics.median(seconds) for name, seconds in samples.items()}
    return {rows: (medians[rows, "plain"], medians[rows, "padded"]) for rows in range(1, len(inputs) + 1)}


class CapturedStep:
    """A step of PyTorch operations as CUDA Graphs, one for each of the `captured` sizes.

    step: a function of one CUDA tensor, (rows, *row_shape) of `dtype` (float32 by default) to (rows, ...). It is
    recorded once for each size and not called again for it, so nothing in it may depend on values: no Python branch on
    them, no `.item()`, no new shape. What it reads besides its input, weights or a KV cache, is read where it lay when
    it was captured. Raises ValueError for bad sizes, RuntimeError where PyTorch finds no GPU.
    """

    def __init__(self, step, captured, row_shape, dtype=None):
        import torch

        captured = sorted(set(captured))
        if not captured:
            raise ValueError("captured is empty; it must have at least one number of rows")
        for size in captured:
            require_int("captured", size, minimum=1)
        if not torch.cuda.is_available():
            raise RuntimeError("PyTorch finds no CUDA GPU: run_padded shows the padding without graphs")
        self.step = step
        self.captured = captured
        self.row_shape = tuple(row_shape)
        self.inputs = torch.zeros((captured[-1], *row_shape), dtype=dtype or torch.float32, device="cuda")
        self.graphs, self.outputs = {}, {}
        for size in captured:
            self._capture(torch.cuda, size)

    def _capture(self, cuda, size):
        inputs = self.inputs[:size]
        side = cuda.Stream()  # libraries set themselves up on first use, which no graph may hold
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            for _ in range(2):
                _run(self.step, inputs)
        cuda.current_stream().wait_stream(side)
        self.graphs[size] = cuda.CUDAGraph()
        with cuda.graph(self.graphs[size]):
            self.outputs[size] = self.step(inputs)

    def __call__(self, inputs):
        """step(inputs) for (rows, *row_shape): replayed in the smallest size that holds them, else run as it is.

        Raises ValueError for rows of another shape or dtype.
        """
        rows = len(inputs)
        if tuple(inputs.shape[1:]) != self.row_shape or inputs.dtype != self.inputs.dtype:
            raise ValueError(
                f"inputs have rows of {tuple(inputs.shape[1:])} in {inputs.dtype}; "
                f"they must be of {self.row_shape} in {self.inputs.dtype}, as captured"
            )
        size = padded_rows(rows, self.captured)
        if size not in self.graphs:
            return _run(self.step, inputs)
        self.inputs[:rows] = inputs
        self.inputs[rows:size] = 0  # the last batch's rows, should it have been larger
        self.graphs[size].replay()
        return self.outputs[size][:rows].clone()  # the next replay overwrites the graph's own
