"""Element types: their names in ONNX, in the compiler and in Triton."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import onnx_ir

from collage_triton.errors import Refused

_D = onnx_ir.DataType

ELEMENT_TYPES: Mapping[onnx_ir.DataType, str] = MappingProxyType(
    {
        _D.FLOAT: "f32",
        _D.FLOAT16: "f16",
        _D.BFLOAT16: "bf16",
        _D.INT64: "i64",
        _D.INT32: "i32",
        _D.INT8: "i8",
        _D.UINT8: "u8",
        _D.BOOL: "i1",
    }
)
"""Supported element types, by the compiler's names."""

TRITON_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "f32": "tl.float32",
        "f16": "tl.float16",
        "bf16": "tl.bfloat16",
        "i64": "tl.int64",
        "i32": "tl.int32",
        "i8": "tl.int8",
        "u8": "tl.uint8",
        "i1": "tl.int1",
    }
)
"""Triton's names of element types in source."""

POINTERS: Mapping[str, str] = MappingProxyType(
    {
        "f32": "*fp32",
        "f16": "*fp16",
        "bf16": "*bf16",
        "i64": "*i64",
        "i32": "*i32",
        "i8": "*i8",
        "u8": "*u8",
        "i1": "*u8",
    }
)
"""Triton's names of pointer arguments; Booleans are bytes in memory."""

FLOATS = frozenset({"f32", "f16", "bf16"})
INTEGERS = frozenset({"i64", "i32", "i8", "u8"})


def element_type(dtype: onnx_ir.DataType | None, name: str) -> str:
    """Return the compiler's name of an element type.

    Raises:
        Refused: If there is none.
    """
    if dtype not in ELEMENT_TYPES:
        held = "no tensor" if dtype is None else dtype.name.lower()
        raise Refused(f"{name!r} holds {held}; generated kernels hold {', '.join(ELEMENT_TYPES.values())}")
    assert dtype is not None
    return ELEMENT_TYPES[dtype]
