"""A group compiled into a shared library by TVM, for one arrangement of loops."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir

from collage_core.contract import KernelFunction
from tests.drafts.tvm_groups.operators import EXPRESSIONS
from tests.drafts.tvm_groups.schedules import Schedule

SYMBOL = "kernel"


def embedded(function: KernelFunction) -> dict[str, float]:
    """Constants of one element, by name: they become literals. Their values are in the structural hash."""
    sizes = {name: value.shape for name, value in function.model.graph.initializers.items()}
    return {
        name: float(np.asarray(function.constant(name)).reshape(()))
        for name, shape in sizes.items()
        if shape is not None and all(extent == 1 for extent in shape)
    }


def compile_group(function: KernelFunction, schedule: Schedule, level: str, folder: Path) -> bytes:
    """Compiles a group; its symbol takes the inputs, the constants that are not `embedded`, and the outputs.

    Args:
        function: The group: element-wise operators with static shapes.
        schedule: How to arrange its loops.
        level: Level of x86-64, or empty.
        folder: For files on the way.
    """
    import tvm
    from tvm import te

    program = tvm.s_tir.Schedule(_program(te, function))
    outputs = {f"out{place}" for place in range(len(function.outputs))}
    for block in list(program.get_child_blocks(program.get_sblock("root"))):
        if program.get(block).name_hint not in outputs:
            program.compute_inline(block)
    for name in sorted(outputs):
        _arrange(program, program.get_sblock(name), schedule)
    target = tvm.target.Target({"kind": "llvm", **({"mcpu": level} if level else {})})
    path = folder / f"{schedule.name}.so"
    tvm.compile(program.mod, target=target).export_library(str(path), workspace_dir=str(folder))
    return path.read_bytes()


def _arrange(program: Any, block: Any, schedule: Schedule) -> None:
    loops = program.get_loops(block)
    if not loops:
        return
    *outer, inner = loops
    if schedule.lanes > 1:
        _, lanes = program.split(inner, [None, schedule.lanes])
        program.vectorize(lanes)
    if schedule.chunks > 1 and outer:
        rows = program.fuse(*outer) if len(outer) > 1 else outer[0]
        parts, _ = program.split(rows, [schedule.chunks, None])
        program.parallel(parts)


def _program(te: Any, function: KernelFunction) -> Any:
    graph = function.model.graph
    literals = embedded(function)
    values: dict[onnx_ir.Value, Any] = {}
    arguments = []
    for place, (value, spec) in enumerate(zip(graph.inputs, function.inputs, strict=True)):
        values[value] = te.placeholder(spec.static_shape, "float32", name=f"in{place}")
        arguments.append(values[value])
    for place, (name, value) in enumerate(graph.initializers.items()):
        if name in literals:
            values[value] = te.const(literals[name], "float32")
            continue
        assert value.shape is not None
        values[value] = te.placeholder(tuple(value.shape.numpy()), "float32", name=f"constant{place}")
        arguments.append(values[value])
    places = {value: place for place, value in enumerate(graph.outputs)}
    for number, node in enumerate(graph):
        [output] = node.outputs
        name = f"out{places[output]}" if output in places else f"inner{number}"
        values[output] = _computed(te, node, [values[each] for each in node.inputs if each is not None], name)
    arguments += [values[value] for value in graph.outputs]
    return te.create_prim_func(arguments).with_attr("global_symbol", SYMBOL)


def _computed(te: Any, node: onnx_ir.Node, operands: list[Any], name: str) -> Any:
    shape = node.outputs[0].shape
    assert shape is not None
    expression = EXPRESSIONS[node.op_type]

    def attribute(key: str, default: float) -> float:
        given: Mapping[str, onnx_ir.Attr] = node.attributes
        return float(given[key].value) if key in given else default

    def element(*index: Any) -> Any:
        return expression(te, [_at(te, operand, index) for operand in operands], attribute)

    return te.compute(tuple(shape.numpy()), element, name=name)


def _at(te: Any, operand: Any, index: tuple[Any, ...]) -> Any:
    """An operand's element for an index of the result: numpy's broadcasting."""
    if not isinstance(operand, te.Tensor):
        return operand
    own = index[len(index) - len(operand.shape) :]
    return operand(*(0 if int(extent) == 1 else each for extent, each in zip(operand.shape, own, strict=True)))
