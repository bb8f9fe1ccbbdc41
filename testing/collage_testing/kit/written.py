"""Kernel functions written as the text of ONNX, and what ONNX's reference makes of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import onnx.shape_inference
import onnx_ir
from onnx.reference import ReferenceEvaluator

from collage_core.contract import KernelFunction, TensorSpec, ValueKind, content_hash

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class WrittenFunction:
    """A kernel function, and the model it is.

    Attributes:
        proto: The model.
        function: The same for a toolchain.
        arrays: Its weights by name.
    """

    proto: onnx.ModelProto
    function: KernelFunction
    arrays: Mapping[str, Array]

    def expected(self, feeds: Mapping[str, Any]) -> list[Any]:
        """Evaluate it by ONNX's reference."""
        return list(ReferenceEvaluator(self.proto).run(None, dict(feeds)))


def written(
    text: str,
    constants: Mapping[str, Array] | None = None,
    *,
    bounds: Mapping[str, tuple[int, ...]] | None = None,
    opset: int = 20,
) -> WrittenFunction:
    """Make a kernel function from the ONNX text of a graph.

    Args:
        text: The graph, perhaps with functions of a domain `local` behind it.
        constants: Its weights by name.
        bounds: Largest shapes of values by name; others of open shape are foreign.
        opset: Version of ONNX's own operators.
    """
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": {opset}, "com.microsoft": 1, "local": 1]> {text}'
    )
    arrays = dict(constants or {})
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    proto = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    model = onnx_ir.from_proto(proto)
    function = KernelFunction(
        name="kernel",
        model=model,
        inputs=tuple(_spec(value, bounds or {}) for value in model.graph.inputs),
        outputs=tuple(_spec(value, bounds or {}) for value in model.graph.outputs),
        constants={name: content_hash(array) for name, array in arrays.items()},
    )
    return WrittenFunction(proto=proto, function=function, arrays=arrays)


def _spec(value: onnx_ir.Value, bounds: Mapping[str, tuple[int, ...]]) -> TensorSpec:
    name = str(value.name)
    dtype = value.dtype if isinstance(value.type, onnx_ir.TensorType) else None
    shape = None
    if dtype is not None and value.shape is not None:
        shape = tuple(extent if isinstance(extent, int) else None for extent in value.shape)
    if name in bounds:
        return TensorSpec(name=name, kind=ValueKind.BOUNDED, dtype=dtype, shape=shape, bound=bounds[name])
    planned = shape is not None and None not in shape and dtype != onnx_ir.DataType.STRING
    return TensorSpec(name=name, kind=ValueKind.PLANNED if planned else ValueKind.FOREIGN, dtype=dtype, shape=shape)
