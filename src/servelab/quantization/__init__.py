"""Fewer bits a value: formats and their sizes, array codecs, and when smaller reads pay (sections 8.4.1 and 8.4.2).

Sizes, savings and fits are plain Python; `quantize`, `dequantize`, `fp8_scale` and `error_bound` need NumPy.
"""

from servelab.quantization.codecs import dequantize, error_bound, quantize
from servelab.quantization.formats import FORMATS, Format, memory_left, stored_bytes
from servelab.quantization.fp8 import fp8_scale
from servelab.quantization.gains import ItlFit, crossing, itl_fit, net_saving_s

__all__ = [
    "FORMATS",
    "Format",
    "ItlFit",
    "crossing",
    "dequantize",
    "error_bound",
    "fp8_scale",
    "itl_fit",
    "memory_left",
    "net_saving_s",
    "quantize",
    "stored_bytes",
]
