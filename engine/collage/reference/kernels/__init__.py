"""NumPy versions of the operators that ONNX's evaluator computes with slow loops or copies, or not as it should.

Their memory is a small multiple of inputs and outputs, whatever the attributes.

Each takes `(inputs, attributes)` and returns its outputs, or NotImplemented for a case it leaves to
ONNX's own implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from collage.reference.kernels.convolution import causal_conv_with_state, conv, conv_transpose
from collage.reference.kernels.detection import non_max_suppression
from collage.reference.kernels.elementwise import einsum, erf, gelu, matmul, matmul_integer
from collage.reference.kernels.gather import gather_elements, pad, scatter_elements
from collage.reference.kernels.normalisation import lrn
from collage.reference.kernels.optional import optional
from collage.reference.kernels.pooling import (
    average_pool,
    global_lp_pool,
    global_max_pool,
    lp_pool,
    max_pool,
    max_pool_with_indices,
)
from collage.reference.kernels.positions import arg_max, arg_min
from collage.reference.kernels.quantised import conv_integer, qlinear_conv
from collage.reference.kernels.recurrent import gru, lstm, rnn
from collage.reference.kernels.resize import resize
from collage.reference.kernels.sampling import grid_sample
from collage.reference.kernels.strings import string_normalizer

Kernel = Callable[..., Any]

_KERNELS: Mapping[str, Kernel] = {
    "ArgMax": arg_max,
    "ArgMin": arg_min,
    "AveragePool": average_pool,
    "CausalConvWithState": causal_conv_with_state,
    "Conv": conv,
    "ConvInteger": conv_integer,
    "ConvTranspose": conv_transpose,
    "Einsum": einsum,
    "Erf": erf,
    "GRU": gru,
    "GatherElements": gather_elements,
    "Gelu": gelu,
    "GlobalLpPool": global_lp_pool,
    "GlobalMaxPool": global_max_pool,
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
    "QLinearConv": qlinear_conv,
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
