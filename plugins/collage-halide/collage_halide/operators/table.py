"""Every operator that has a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from collage_halide.elements import element_type
from collage_halide.errors import Refused
from collage_halide.op import Op, shape_of
from collage_halide.operators.elementwise import ELEMENTWISE
from collage_halide.operators.movement import MOVEMENT
from collage_halide.operators.operator import Operator
from collage_halide.operators.quantisation import QUANTISATION
from collage_halide.operators.reductions import REDUCTIONS
from collage_halide.operators.resizing import RESIZING
from collage_halide.operators.sampling import SAMPLING
from collage_halide.operators.scans import SCANS
from collage_halide.operators.windows import WINDOWS

OPERATORS: Mapping[str, Operator] = MappingProxyType(
    {
        **ELEMENTWISE,
        **MOVEMENT,
        **REDUCTIONS,
        **WINDOWS,
        **RESIZING,
        **SAMPLING,
        **SCANS,
        **QUANTISATION,
    }
)


def operator_of(op: Op) -> Operator:
    """Return what is known of a node's operator.

    Raises:
        Refused: If the node has no kernel.
    """
    operator = OPERATORS.get(op.name) if op.node.domain in ("", "ai.onnx") else None
    if operator is None:
        raise Refused(f"it has no kernel for {op.node.op_identifier()[1]}")
    for value in (*op.node.inputs, *op.node.outputs):
        if value is not None and value.name and (value.producer() is not op.node or op.uses(value.index() or 0)):
            shape_of(value)
            element_type(value)
    if (held := op.kind(operator.data).name) not in operator.types:
        raise Refused(f"{op.name} of {held}; it takes {', '.join(sorted(operator.types))}")
    operator.check(op)
    return operator
