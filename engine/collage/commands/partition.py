"""`partition`: assign to one toolchain all that it takes of a model, without a search."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence

import onnx_ir

from collage.measure.models.preparing import prepared_apart
from collage.prepare.steps import check
from collage.prepare.validity import blamed_on
from collage.process_guard import plugins_guarded
from collage.setup.environment import Environment
from collage.setup.facts import opened
from collage.setup.prepared_model import PreparedModel
from collage.setup.queries import usable_rules
from collage.setup.settings import PRIVATE, SetupChoices
from collage_core.candidates.proposals import TargetRule
from collage_core.contract import Target
from collage_core.errors import CollageError
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.values.size_range import Extent
from collage_core.passes.partition_for import PartitionFor
from collage_core.registry import Registry


@dataclasses.dataclass(frozen=True, kw_only=True)
class Partitioned:
    """A model in which one toolchain's part is marked.

    Attributes:
        model: The prepared model; each kernel is a call of a function owned by the target, the rest is unchanged.
        target: Name of the target.
        kernels: Node names of each kernel.
        taken: Number of nodes in these kernels that need a kernel.
        kernel_nodes: Number of nodes in the model that need a kernel.
        refusals: Reason for each node the target does not take, by node name.
    """

    model: onnx_ir.Model = dataclasses.field(repr=False)
    target: str
    kernels: tuple[tuple[str, ...], ...]
    taken: int
    kernel_nodes: int
    refusals: Mapping[str, str]


@plugins_guarded()
def partition(
    model: str | os.PathLike[str] | onnx_ir.Model,
    target: str,
    *,
    input_shapes: Mapping[str, Sequence[Extent]] | None = None,
    registry: Registry | None = None,
) -> Partitioned:
    """Assign to one toolchain every node it takes, in as few kernels as a greedy choice makes, without measuring.

    The remaining nodes stay plain ONNX, for another pass or runtime; `optimize` respects existing marks.

    Args:
        model: Path of an ONNX file, or a model in memory.
        target: A toolchain, which stands for its default target, or one of its targets.
        input_shapes: Shape to bind, by input name; dimensions without one stay free.
        registry: Toolchains to use; the installed ones if None.

    Raises:
        CollageError: If the model cannot be used, or there is no such target here.
    """
    shapes = {name: tuple(shape) for name, shape in (input_shapes or {}).items()}

    def prepared() -> PreparedModel:
        given, _, _ = opened(model)
        check(given, input_shapes=shapes, keep_free=True)
        prepared = prepared_apart(given, shapes, keep_free=True)
        with blamed_on(prepared):
            return PreparedModel(DataflowGraph(prepared))

    choices = SetupChoices(toolchains=target, inexact=True, tuning_db=PRIVATE)
    with Environment.open(prepared, choices, registry=registry) as environment:
        wanted = environment.toolchains.targets()[0]
        graph = environment.graph
        needs_kernel = graph.needs_kernel
        rule = _rule_of(wanted, usable_rules(environment.asked))
        pass_ = PartitionFor(rule.spec, query=lambda graph: rule.query)
        pass_(graph.model)
    return Partitioned(
        model=graph.model,
        target=wanted.name,
        kernels=tuple(kernel.sub_graph.names for kernel in pass_.kernels),
        taken=sum((kernel.sub_graph.nodes & needs_kernel).bit_count() for kernel in pass_.kernels),
        kernel_nodes=needs_kernel.bit_count(),
        refusals=pass_.refusals,
    )


def _rule_of(target: Target, rules: Sequence[TargetRule]) -> TargetRule:
    for rule in rules:
        if rule.target == target:
            return rule
    raise CollageError(f"{target.name} cannot say what it would take of the model; `collage inspect` says why")
