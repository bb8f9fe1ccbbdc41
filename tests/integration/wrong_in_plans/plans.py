"""Plans of the toolchains whose kernels go wrong, saved as packages without a search."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx_ir
import pytest

from collage.build.assemble import Assembled
from collage.prepare.steps import prepare
from collage.reference.plugin import ReferencePlugin
from collage.setup.inputs.random_arrays import random_inputs
from collage_core.candidates.plan import Plan
from collage_core.contract import Target
from collage_core.fusion import Partitioning
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.passes.apply import apply_partitioning
from collage_core.passes.call_sites import call_sites
from tests.core.candidates.making import kernel
from tests.integration.wrong_in_plans import sly_toolchain

STEADY, SLY = (Target(toolchain=name, fingerprint="1") for name in ("steady", "sly"))


@dataclasses.dataclass(frozen=True)
class SavedPlan:
    """A plan, its package, and inputs on which its kernels go wrong."""

    assembled: Assembled
    package: Path
    inputs: Mapping[str, Any]


class Plans:
    """Makes plans with kernels that go wrong in some way.

    Args:
        folder: For their packages.
        patch: Says how kernels go wrong.
    """

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._patch = patch

    def plan(self, way: str, model: onnx_ir.Model, **placed: Target) -> SavedPlan:
        """Make and save a plan, for one thread, with a kernel for each node.

        Args:
            way: How kernels go wrong; `V` stands for a value of the inputs.
            model: The model.
            **placed: Target of each node, by name.
        """
        graph = DataflowGraph(prepare(model))
        kernels = tuple(kernel(graph, target, node) for node, target in placed.items())
        plan = Plan(
            name="plan",
            single=False,
            partitioning=Partitioning(graph, kernels),
            costs_us=(1.0,) * len(kernels),
            dispatch_us=0.0,
        )
        partitioned = apply_partitioning(plan.partitioning)
        artifacts = {}
        for site in call_sites(partitioned):
            [artifacts[site.name]] = ReferencePlugin().collage_lower(site.kernel_function())
        assembled = Assembled(
            plan=plan,
            model=partitioned,
            artifacts=artifacts,
            targets=dict(zip(artifacts, (each.target for each in plan.kernels), strict=True)),
            kernels=dict(zip(artifacts, plan.kernels, strict=True)),
            errors={},
            digest="",
        )
        package = self.folder / "plan.collage"
        assembled.save(package, None, threads=1, model_name="m", model_sha256="")
        inputs = random_inputs(graph, 0)
        self._patch.setenv(sly_toolchain.SLY, way.replace("V", repr(float(inputs["x"].max()))))
        return SavedPlan(assembled, package, inputs)
