"""Contenders of a comparison: packages as they are, and each target's plan for the whole model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx_ir
from onnx_ir.passes.common import InlinePass

from collage.build.assemble import assemble
from collage.build.package_contender import PACKAGE_CALL
from collage.control.plan_file import PlanFile
from collage.explore.fixed_plan import planned, proposed
from collage.measure.contenders.interleaved import Contender
from collage.measure.driver.source import MeasuringCostSource
from collage.report.progress import Progress
from collage.runtime import load_package
from collage.setup.environment import Environment
from collage.setup.queries import ask_targets
from collage.setup.workload import Workload
from collage_core.candidates.plan import Plan
from collage_core.contract import Target
from collage_core.errors import CollageError
from collage_core.fusion import CandidateBounds, CandidateKernel, FusionSpec, OpCallByKindRule, Partitioning, SubGraph

PACKAGE_SUFFIX = ".collage"


def is_package(path: Path) -> bool:
    """Whether a file is a package rather than a model, going by its name."""
    return path.suffix == PACKAGE_SUFFIX


def model_of(path: Path) -> Path | onnx_ir.Model:
    """The model a path stands for: itself, or what a package was made from, prepared.

    Raises:
        PackageError: If a package cannot be read.
    """
    if not is_package(path):
        return path
    model = load_package(path).model.clone()
    InlinePass()(model)
    return model


def package_contender(name: str, path: Path, inputs: Path, threads: int, *, warmup: int = 0) -> Contender:
    """A package, to be timed.

    Args:
        name: Unique among the contenders.
        path: The package.
        inputs: Document of `write_values` with the model's inputs.
        threads: CPU threads of each kernel.
        warmup: Untimed runs before its first turn.
    """
    return Contender(
        name=name,
        call=PACKAGE_CALL,
        arguments={"package": str(path), "inputs": str(inputs), "threads": threads, "warmup": warmup},
    )


def whole_model_plan(workload: Workload, target: Target) -> Plan:
    """All of a model as one kernel of one target, its cost unknown."""
    graph = workload.graph
    spec = FusionSpec(name=target.name, rule=OpCallByKindRule(), targets=(target,))
    kernel = CandidateKernel(SubGraph(graph, graph.completed(graph.needs_kernel)), spec)
    return Plan(
        name=target.name, single=True, partitioning=Partitioning(graph, (kernel,)), costs_us=(0.0,), dispatch_us=0.0
    )


def plan_packages(
    files: Sequence[PlanFile],
    names: Sequence[str],
    workload: Workload,
    environment: Environment,
    source: MeasuringCostSource,
    progress: Progress,
) -> Mapping[str, Path]:
    """A package of each plan a user gives.

    Args:
        files: What they say.
        names: What each is called among the contenders.
        workload: The model.
        environment: The toolchains.
        source: Builds kernels; costs are not asked for.
        progress: Is told.

    Returns:
        Path by name.

    Raises:
        CollageError: If one is no plan of this model, or cannot be built: it was asked for.
    """
    packages: dict[str, Path] = {}
    asked = ask_targets(workload.graph, environment, progress)
    proposals = proposed(asked.rules, workload.graph, CandidateBounds())
    for number, (file, name) in enumerate(zip(files, names, strict=True)):
        plan = planned(file, workload.graph, environment.targets(), proposals.values())
        progress.phase(f"building {file.source}", len(plan.kernels))
        path = environment.folder / f"plan-{number}{PACKAGE_SUFFIX}"
        built = assemble(plan, source, environment.store, progress, check=False)
        built.save(path, None, threads=environment.threads, model_name=workload.facts.name, model_sha256="")
        packages[name] = path
    return packages


def single_packages(
    workload: Workload, environment: Environment, source: MeasuringCostSource, progress: Progress
) -> tuple[Mapping[str, Path], Mapping[str, str]]:
    """A package of the whole model for each target that takes it.

    Returns:
        Path by target name, and by name the reason of each target that has none.
    """
    packages: dict[str, Path] = {}
    failed: dict[str, str] = {}
    targets = environment.targets()
    progress.phase("building single-toolchain plans", len(targets))
    for number, target in enumerate(targets):
        path = environment.folder / f"single-{number}{PACKAGE_SUFFIX}"
        try:
            plan = assemble(whole_model_plan(workload, target), source, environment.store, progress, check=False)
            plan.save(path, None, threads=environment.threads, model_name=workload.facts.name, model_sha256="")
        except CollageError as error:
            failed[target.name] = str(error)
            progress.advance()
            continue
        packages[target.name] = path
    return packages, failed
