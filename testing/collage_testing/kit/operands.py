"""What a candidate's kernel reads and writes, by values of a reference run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collage_core.contract import Artifact, KernelFunction, ValueKind, weight_named
from collage_core.fusion import SubGraph, kernel_function
from collage_core.ir.graph.canonical import canonical_form


def operands(sub_graph: SubGraph, values: Mapping[str, Any]) -> tuple[KernelFunction, list[Any], list[Any]]:
    """Return a candidate's function, what it reads, and what it should write.

    Args:
        sub_graph: The candidate.
        values: Every value of a reference run of its model, by name.
    """
    form = canonical_form(sub_graph.graph, sub_graph.nodes, sub_graph.composites)
    given = [values[str(value.name)] for value in form.inputs]
    expected = [values.get(str(value.name)) for value in form.outputs]
    return kernel_function(sub_graph, "kernel"), given, expected


def never_on_a_device(function: KernelFunction) -> str:
    """Return why core never places a function's values on a device; empty if it does."""
    for spec in (*function.inputs, *function.outputs):
        if spec.kind is not ValueKind.PLANNED:
            return f"{spec.name!r} is {spec.kind.value}; on a device are values of static shape only"
    return ""


def foreign_constants(artifact: Artifact, function: KernelFunction) -> list[str]:
    """Return names of constants that an artifact asks for and its function does not have."""
    known = set(function.constants.values())
    return [name for name, key in artifact.constants.items() if weight_named(key)[0] not in known]
