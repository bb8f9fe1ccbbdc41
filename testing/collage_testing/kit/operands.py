"""What a candidate's kernel reads and writes, by values of a reference run."""

from __future__ import annotations

import dataclasses
from typing import Any

from collage.reference import Evaluation
from collage.reference.conditioning import Conditioning
from collage.reference.judge import Judge
from collage_core.contract import Artifact, KernelFunction, ValueKind, weight_named
from collage_core.fusion import SubGraph, kernel_function
from collage_core.ir.graph.canonical import canonical_form
from collage_testing.kit.received import received


@dataclasses.dataclass(frozen=True, slots=True)
class Operands:
    """What a candidate's kernel reads and should write.

    Attributes:
        given: Values of its inputs.
        expected: Values of its outputs.
        conditioning: What rounding does to each of these; None where that is not known.
        judge: Judges what the kernel wrote.
    """

    given: list[Any]
    expected: list[Any]
    conditioning: list[Conditioning | None]
    judge: Judge


def operands(
    sub_graph: SubGraph, run: Evaluation, *, correct: bool, tolerance: float
) -> tuple[KernelFunction, Operands]:
    """Return a candidate's function, with what it reads and should write.

    Args:
        sub_graph: The candidate.
        run: A reference run of its model.
        correct: Whether outputs have to be correct; otherwise only their error counts.
        tolerance: Largest error, and largest share of differing integers of which it is not known what decides them.
    """
    form = canonical_form(sub_graph.graph, sub_graph.nodes, sub_graph.composites)
    given = [run.values[str(value.name)] for value in form.inputs]
    expected = [run.values.get(str(value.name)) for value in form.outputs]
    conditioning = [run.conditioning.get(str(value.name)) for value in form.outputs]
    function = received(kernel_function(sub_graph, "kernel"))
    judge = Judge.over(function.model.graph, run, correct=correct, relative=tolerance, mismatched=tolerance)
    return function, Operands(given, expected, conditioning, judge)


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
