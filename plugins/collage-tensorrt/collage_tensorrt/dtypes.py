"""Element types of ONNX and their TensorRT names."""

from __future__ import annotations

from types import MappingProxyType

import onnx_ir

from collage_core.contract import TensorSpec

_NAMES = MappingProxyType(
    {
        onnx_ir.DataType.FLOAT: "FLOAT",
        onnx_ir.DataType.FLOAT16: "HALF",
        onnx_ir.DataType.BFLOAT16: "BF16",
        onnx_ir.DataType.FLOAT8E4M3FN: "FP8",
        onnx_ir.DataType.INT8: "INT8",
        onnx_ir.DataType.UINT8: "UINT8",
        onnx_ir.DataType.INT32: "INT32",
        onnx_ir.DataType.INT64: "INT64",
        onnx_ir.DataType.BOOL: "BOOL",
    }
)
"""Types that cross a kernel's boundary, with the same bytes on both sides.

4-bit types are packed there, but occupy a byte each here.
"""

_INSIDE = (onnx_ir.DataType.INT4, onnx_ir.DataType.FLOAT4E2M1)


def library_type(dtype: onnx_ir.DataType | None) -> str:
    """Return TensorRT's name of an element type; `""` if tensors of it cannot be exchanged."""
    return "" if dtype is None else _NAMES.get(dtype, "")


def cannot_hold(spec: TensorSpec) -> str:
    """Return why an engine cannot compute with a value, judging by its type; `""` if it can."""
    if spec.dtype is None:
        return f"{spec.name!r} is no tensor of a known type; TensorRT has no sequences and optionals"
    if spec.dtype == onnx_ir.DataType.DOUBLE:
        # Seen with RTX 1.7.1: the importer declares a float64 input as float32 and says nothing.
        return f"{spec.name!r} is float64, of which its importer makes float32"
    if not library_type(spec.dtype) and spec.dtype not in _INSIDE:
        return f"TensorRT has no {spec.dtype.name}, which {spec.name!r} is"
    return ""
