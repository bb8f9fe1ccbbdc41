"""Describe the groups of a kernel function: a single group, or those of a joined region."""

from __future__ import annotations

import dataclasses

import onnx_ir

from collage_core.contract import KernelFunction, Target, Unsupported
from collage_core.ir.graph.metadata_keys import COMPOSITE_METADATA
from collage_core.ir.values.content import constant_of
from collage_core.patterns import Mismatch, match_model
from collage_cudnn.described import Described, Operand
from collage_cudnn.graph import Layout
from collage_cudnn.patterns import FORMS, matcher_of


def parts_of(function: KernelFunction, target: Target, layout: Layout) -> tuple[Described, ...] | Unsupported:
    """Describe a function's groups, in an order in which they can be computed.

    Args:
        function: One of the table's groups, or a region of which each is a call.
        target: Target that determines the precision.
        layout: Memory layout of images while graphs compute.
    """
    exact = target.option("precision") != "tf32"
    if function.composite:
        only = _described(function.composite, function.model, layout, exact=exact)
        return only if isinstance(only, Unsupported) else (only,)
    found = []
    for node in function.model.graph:
        inner = function.model.functions.get(node.op_identifier())
        if inner is None:
            return Unsupported(f"{node.op_type} {node.name!r} is in none of its groups")
        part = _called(node, inner, layout, exact=exact)
        if isinstance(part, Unsupported):
            return part
        found.append(part)
    return tuple(found)


def _described(label: str, model: onnx_ir.Model, layout: Layout, *, exact: bool) -> Described | Unsupported:
    if label not in FORMS:
        return Unsupported(f"{label!r} is none of its groups")
    match = match_model(matcher_of(label), model)
    if isinstance(match, Mismatch):
        return Unsupported(f"not {label}: {match.reason}")
    return FORMS[label].describe(match, layout, exact)


def _called(call: onnx_ir.Node, function: onnx_ir.Function, layout: Layout, *, exact: bool) -> Described | Unsupported:
    """Describe one group of a region, in terms of the region's values."""
    graph = function.clone().graph
    outer: dict[onnx_ir.Value, onnx_ir.Value] = {}
    for given, inside in zip(call.inputs, tuple(graph.inputs), strict=True):
        assert given is not None, "what a call of a composite takes is there"
        outer[inside] = given
        tensor = constant_of(given)
        if tensor is not None:
            graph.inputs.remove(inside)
            inside.const_value = tensor
            graph.register_initializer(inside)
    outer.update(zip(graph.outputs, call.outputs, strict=True))
    model = onnx_ir.Model(graph, ir_version=10)
    found = _described(function.metadata_props.get(COMPOSITE_METADATA, ""), model, layout, exact=exact)
    if isinstance(found, Unsupported):
        return found
    operands = {
        name: Operand(tuple(outer[value] for value in each.values), each.stored, each.recipe, each.number)
        for name, each in found.operands.items()
    }
    return dataclasses.replace(found, operands=operands, result=outer[found.result])
