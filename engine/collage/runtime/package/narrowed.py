"""Documents of a plan that is to serve a part of the shapes that it was made for."""

from __future__ import annotations

import json
from collections.abc import Mapping

import onnx_ir as ir

from collage.documents.strict import strict_converter
from collage.runtime.package.manifest import parsed
from collage.runtime.package.plan import PackagedPlan
from collage.temporary_folders import TemporaryFolder
from collage_core.ir.values.size_range import Shape
from collage_core.ir.values.symbolic_sizes import say_sizes, sizes_of


def documents_for(plan: PackagedPlan, shapes: Mapping[str, Shape]) -> tuple[bytes | memoryview, bytes | memoryview]:
    """Return the bytes of a plan's model and of its record, with these shapes of the inputs.

    Args:
        plan: The plan.
        shapes: By input: as its own, or with ranges within these.
    """
    model, record = plan.documents()
    changed = {name: shape for name, shape in shapes.items() if plan.input_shapes.get(name, shape) != shape}
    if not changed:
        return model, record
    with TemporaryFolder() as folder:
        file = folder / "model.onnx"
        file.write_bytes(model)
        # sizes of inputs are metadata; weights stay where they are, by their names
        proto = _with_sizes(ir.load(file), shapes)
    document = parsed(record, "record", plan.path)
    document["model"]["input_shapes"] = strict_converter().unstructure({**plan.input_shapes, **changed})
    return proto, json.dumps(document, indent=1, allow_nan=False).encode()


def _with_sizes(model: ir.Model, shapes: Mapping[str, Shape]) -> bytes:
    for value in model.graph.inputs:
        name = value.name or ""
        if sizes_of(value) is not None and name in shapes:
            say_sizes(value, shapes[name])
    data: bytes = ir.to_proto(model).SerializeToString(deterministic=True)
    return data
