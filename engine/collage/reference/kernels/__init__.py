"""Vectorised NumPy versions of the operators that ONNX's evaluator computes with Python loops, or not as it should.

Each takes `(inputs, attributes)` and returns its outputs, or NotImplemented for a case it leaves to
ONNX's own implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from collage.reference.kernels.convolution import conv, conv_transpose
from collage.reference.kernels.detection import non_max_suppression
from collage.reference.kernels.elementwise import einsum, erf, gelu, matmul, matmul_integer
from collage.reference.kernels.gather import gather_elements, pad, scatter_elements
from collage.reference.kernels.normalisation import lrn
from collage.reference.kernels.optional import optional
from collage.reference.kernels.pooling import average_pool, global_lp_pool, lp_pool, max_pool, max_pool_with_indices
from collage.reference.kernels.recurrent import gru, lstm, rnn
from collage.reference.kernels.resize import resize
from collage.reference.kernels.sampling import grid_sample
from collage.reference.kernels.strings import string_normalizer

Kernel = Callable[..., Any]

_KERNELS: Mapping[str, Kernel] = {
    "AveragePool": average_pool,
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "Einsum": einsum,
    "Erf": erf,
    "GRU": gru,
    "GatherElements": gather_elements,
    "Gelu": gelu,
    "GlobalLpPool": global_lp_pool,
    "GridSample": grid_sample,
    "LRN": lrn,
    "LSTM": lstm,
    "LpPool": lp_pool,
    "MatMul": matmul,
    "MatMulInteger": matmul_integer,
    "MaxPool": max_pool,
    "NonMaxSuppression": non_max_suppression,
    "Optional": optional,
    "Pad": pad,
    "RNN": rnn,
    "Resize": resize,
    "ScatterElements": scatter_elements,
    "StringNormalizer": string_normalizer,
}


def find_kernel(op_type: str, output_count: int) -> Kernel | None:
    """Return the kernel of a standard operator that is to give so many outputs."""
    if op_type == "MaxPool" and output_count > 1:
        return max_pool_with_indices
    return _KERNELS.get(op_type)
