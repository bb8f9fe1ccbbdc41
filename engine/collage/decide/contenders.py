"""Contenders of a comparison: packages as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx_ir
from onnx_ir.passes.common import InlinePass

from collage.build.package_contender import PACKAGE_CALL
from collage.measure.contenders.interleaved import Contender
from collage.runtime.package import load_package
from collage_core.candidates.plan import Plan
from collage_core.contract import Target
from collage_core.fusion import CandidateKernel, FusionSpec, OpCallByKindRule, Partitioning, SubGraph
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.values.size_range import Shape

PACKAGE_SUFFIX = ".collage"


def is_package(path: Path) -> bool:
    """Return whether a file is a package rather than a model, judging by its name."""
    return path.suffix == PACKAGE_SUFFIX


def model_of(path: Path, input_shapes: Mapping[str, Shape]) -> Path | onnx_ir.Model:
    """Return the model of a path: the path itself, or the prepared model that a package was made from.

    Args:
        path: Path of a model or a package.
        input_shapes: Which plan of a package that has several.

    Raises:
        PackageError: If a package cannot be read.
        UsageError: If it has several plans, and not exactly one of them is for these shapes.
    """
    if not is_package(path):
        return path
    model = load_package(path).plan_for(input_shapes).model.clone()
    InlinePass()(model)
    return model


def package_contender(
    name: str, path: Path, inputs: Sequence[Path], threads: int, *, built_here: bool, warmup: int = 0
) -> Contender:
    """Create the contender that times a package.

    Args:
        name: Unique among the contenders.
        path: Path of the package.
        inputs: Documents of `write_values` with the model's inputs, which runs have in turn.
        threads: CPU threads of each kernel.
        built_here: Whether this process has just written the package; those that users name have to be trusted.
        warmup: Untimed runs before its first turn.
    """
    return Contender(
        name=name,
        call=PACKAGE_CALL,
        arguments={
            "package": str(path),
            "inputs": [str(each) for each in inputs],
            "threads": threads,
            "warmup": warmup,
            "trusted": built_here,
        },
    )


def whole_model_plan(graph: DataflowGraph, target: Target) -> Plan:
    """Return all of a model as one kernel of one target, its cost unknown."""
    spec = FusionSpec(name=target.name, rule=OpCallByKindRule(), targets=(target,))
    kernel = CandidateKernel(SubGraph(graph, graph.completed(graph.needs_kernel)), spec)
    return Plan(
        name=target.name, single=True, partitioning=Partitioning(graph, (kernel,)), costs_us=(0.0,), dispatch_us=0.0
    )
