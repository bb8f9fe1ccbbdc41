"""Compare what a kernel of a plan made with the reference, by the judge of the candidates."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

import onnx_ir

from collage.measure.driver.capture import random_nodes
from collage.measure.driver.requests import function_of
from collage.measure.wire.outcomes import Tolerance
from collage.measure.worker.verdicts import judged
from collage.reference import Evaluation
from collage.reference.choices import needed_values
from collage.reference.judge import Judge
from collage_core.contract import Buffer
from collage_core.errors import EvaluationError, KernelError
from collage_core.fusion import SubGraph
from collage_core.ir.graph.masks import iterate_bits

Reference: TypeAlias = Callable[[onnx_ir.Model, Mapping[str, Any], Collection[str]], Evaluation]
"""Evaluates a model on inputs, and returns the values of some names."""


class KernelCheck:
    """Says what a kernel has to make of values, and whether what it made is right.

    Args:
        sub_graph: What the kernel computes.

    Attributes:
        reads: Names of the values that it reads.
        writes: Names of the values that it writes.
    """

    def __init__(self, sub_graph: SubGraph) -> None:
        self._function = function_of(sub_graph)
        graph = sub_graph.graph
        chance = iterate_bits(random_nodes(graph, sub_graph.nodes))
        self._chance = {value.name for index in chance for value in graph.nodes[index].outputs}
        self.reads = tuple(spec.name for spec in self._function.inputs)
        self.writes = tuple(spec.name for spec in self._function.outputs)

    def right(self, values: Mapping[str, Any], reference: Reference) -> Evaluation | None:
        """Return what the kernel has to make of values; None if the reference cannot say.

        Args:
            values: Those that it reads, by name, among others.
            reference: Evaluates the kernel's function.
        """
        given = {name: values[name] for name in self.reads}
        graph = self._function.model.graph
        try:
            return reference(self._function.model, given, {*self.reads, *self.writes, *needed_values(graph.outputs)})
        except EvaluationError:
            return None

    def problem(self, made: Mapping[str, Any], right: Evaluation, tolerance: Tolerance, *, correct: bool) -> str:
        """Return what is wrong with what the kernel made; empty if nothing is, or nobody can tell.

        Args:
            made: What it made, by name.
            right: What it had to make; what is not in it is not compared.
            tolerance: How far off outputs may be.
            correct: Whether they have to be correct; otherwise only their error counts.
        """
        specs = [spec for spec in self._function.outputs if spec.name in right.values and spec.name not in self._chance]
        outputs = [Buffer(spec) for spec in specs]
        try:
            for buffer in outputs:
                buffer.put(made[buffer.spec.name])
        except KernelError as error:
            return str(error)
        judge = Judge.over(
            self._function.model.graph,
            right,
            correct=correct,
            relative=tolerance.relative,
            mismatched=tolerance.mismatched,
        )
        verdict = judged(
            judge,
            outputs,
            [right.values[spec.name] for spec in specs],
            [right.conditioning.get(spec.name) for spec in specs],
        )
        return verdict if isinstance(verdict, str) else ""
