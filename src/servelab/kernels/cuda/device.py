"""Whether a CUDA kernel can run here, and on what."""

from numba import config, cuda


def is_available():
    """Whether CUDA kernels can run here: on a GPU, or on the simulator."""
    return cuda.is_available()


def is_simulator():
    """Whether Numba runs CUDA kernels on its simulator, in Python (NUMBA_ENABLE_CUDASIM=1 before Python started)."""
    return bool(config.ENABLE_CUDASIM)


def require_device():
    """Raise RuntimeError unless CUDA kernels can run here."""
    if not is_available():
        raise RuntimeError(
            "no CUDA GPU found: set NUMBA_ENABLE_CUDASIM=1 before Python starts to run this kernel on the simulator"
        )
