"""Types that are multiplied, how they are multiplied, and their names in a kernel's source."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

import onnx_ir

from collage_core.contract import PRECISIONS, TensorSpec, Unsupported


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """One way to multiply.

    Attributes:
        name: Key in the menu of tiles.
        dtype: Type of the model's tensors: addends, result, and factors before any rounding.
        element: CUTLASS type of the factors as multiplied.
        result: CUTLASS type of all other tensors.
        operator_class: CUTLASS operator class: tensor cores or SIMT.
        instruction: Extents of one instruction of `sm_80`.
        access: Elements of a factor that are read at once; contiguous extents have to be multiples of it. 128 bits for
            tensor cores.
        result_access: The same for the result and its addends.
        itemsize: Bytes of a factor's element.
        heuristic: Types of factors, sum and result as nvidia-matmul-heuristics spells them: H is float16, T bfloat16,
            S float32.
        narrowed: Type to which float32 factors are rounded in memory before the product; None if they are not.
    """

    name: str
    dtype: onnx_ir.DataType
    element: str
    result: str
    operator_class: str
    instruction: tuple[int, int, int]
    access: int
    result_access: int
    itemsize: int
    heuristic: str
    narrowed: onnx_ir.DataType | None = None

    @property
    def by_tensor_cores(self) -> bool:
        """Whether products are computed on tensor cores."""
        return self.operator_class == _TENSOR


_TENSOR, _SIMT = "cutlass::arch::OpClassTensorOp", "cutlass::arch::OpClassSimt"

HALF = Numbers(
    name="f16",
    dtype=onnx_ir.DataType.FLOAT16,
    element="cutlass::half_t",
    result="cutlass::half_t",
    operator_class=_TENSOR,
    instruction=(16, 8, 16),
    access=8,
    result_access=8,
    itemsize=2,
    heuristic="HSH",
)
BFLOAT16 = dataclasses.replace(
    HALF,
    name="bf16",
    dtype=onnx_ir.DataType.BFLOAT16,
    element="cutlass::bfloat16_t",
    result="cutlass::bfloat16_t",
    heuristic="TST",
)
FLOAT = Numbers(
    name="f32",
    dtype=onnx_ir.DataType.FLOAT,
    element="float",
    result="float",
    operator_class=_SIMT,
    instruction=(1, 1, 1),
    access=1,
    result_access=1,
    itemsize=4,
    heuristic="",  # it knows tensor cores only
)
# float elements multiplied by tensor cores are rounded to TF32, to the nearest, on their way into registers
# (cutlass/gemm/warp/mma_tensor_op.h)
TF32 = dataclasses.replace(
    FLOAT,
    name="tf32",
    operator_class=_TENSOR,
    instruction=(16, 8, 8),
    access=4,
    result_access=4,
    heuristic="SSS",
)
BY_HALF = dataclasses.replace(
    HALF,
    name="f32_by_f16",
    dtype=onnx_ir.DataType.FLOAT,
    result="float",
    result_access=4,
    heuristic="HSS",
    narrowed=PRECISIONS["fp16"],
)
BY_BFLOAT16 = dataclasses.replace(
    BY_HALF,
    name="f32_by_bf16",
    element="cutlass::bfloat16_t",
    heuristic="TSS",
    narrowed=PRECISIONS["bf16"],
)

NUMBERS: Mapping[str, Numbers] = MappingProxyType(
    {each.name: each for each in (HALF, BFLOAT16, FLOAT, TF32, BY_HALF, BY_BFLOAT16)}
)
"""All ways to multiply, by name."""

PLAIN: Mapping[onnx_ir.DataType, Numbers] = MappingProxyType({each.dtype: each for each in (HALF, BFLOAT16, FLOAT)})
"""Way to multiply each type on the target without a precision."""

LOWER: Mapping[str, Numbers] = MappingProxyType({"tf32": TF32, "fp16": BY_HALF, "bf16": BY_BFLOAT16})
"""Way to multiply float32 on targets with the option `precision`, by its value."""


def numbers_for(specs: Mapping[str, TensorSpec], precision: str) -> Numbers | Unsupported:
    """Return how tensors are multiplied, if they share a supported type and extents are known and not 0.

    Args:
        specs: Specs of the tensors.
        precision: The target's precision: empty, or one of `LOWER`.
    """
    found = {spec.dtype for spec in specs.values()}
    names = " and ".join(sorted(each.name if each else "no tensor" for each in found))
    if len(found) > 1 or (dtype := found.pop()) not in PLAIN or dtype is None:
        return Unsupported(f"it is about {names}; one of {', '.join(each.name for each in PLAIN)} is multiplied")
    for spec in specs.values():
        if spec.shape is None or None in spec.shape:
            return Unsupported(f"the shape of {spec.name!r} is not known")
        if 0 in spec.shape:
            return Unsupported(f"{spec.name!r} {list(spec.static_shape)} has no elements")
    if not precision:
        return PLAIN[dtype]
    if dtype != onnx_ir.DataType.FLOAT:
        return Unsupported(f"precision={precision} is a way to multiply float32; other types are the plain target's")
    return LOWER[precision]
