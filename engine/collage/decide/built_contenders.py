"""Contenders that are built for a comparison: plans a user gives, and each target's plan for the whole model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from collage.build.assemble import assemble
from collage.control.plan_file import PlanFile
from collage.control.plan_of_file import planned
from collage.decide.contenders import PACKAGE_SUFFIX, whole_model_plan
from collage.report.progress import Progress
from collage.setup.environment import Environment
from collage.setup.workload import Workload
from collage_core.candidates.all_proposals import propose_all
from collage_core.candidates.plan import Plan
from collage_core.errors import CollageError
from collage_core.fusion import CandidateBounds


def plan_packages(
    files: Sequence[PlanFile],
    names: Sequence[str],
    environment: Environment[Workload],
    progress: Progress,
) -> Mapping[str, Path]:
    """Build a package of each plan a user gives.

    Args:
        files: What they say.
        names: What each is called among the contenders.
        environment: The model and the toolchains; costs are not asked for.
        progress: Receives progress updates.

    Returns:
        Path by name.

    Raises:
        CollageError: If one is no plan of this model, or cannot be built: it was asked for.
    """
    packages: dict[str, Path] = {}
    graph, toolchains = environment.graph, environment.toolchains
    proposals = propose_all(environment.asked.rules, graph, CandidateBounds()).by_target
    for number, (file, name) in enumerate(zip(files, names, strict=True)):
        plan = planned(file, graph, toolchains.targets(), proposals.values())
        progress.phase(f"building {file.source}", len(plan.kernels))
        packages[name] = _built(plan, environment, f"plan-{number}", progress)
    return packages


def single_packages(
    environment: Environment[Workload], progress: Progress
) -> tuple[Mapping[str, Path], Mapping[str, str]]:
    """Build a package of the whole model for each target that takes it.

    Returns:
        Path by target name, and by name the reason of each target that has none.
    """
    packages: dict[str, Path] = {}
    failed: dict[str, str] = {}
    targets = environment.toolchains.targets()
    progress.phase("building single-toolchain plans", len(targets))
    for number, target in enumerate(targets):
        try:
            plan = whole_model_plan(environment.graph, target)
            packages[target.name] = _built(plan, environment, f"single-{number}", progress)
        except CollageError as error:
            failed[target.name] = str(error)
            progress.advance()
    return packages, failed


def _built(plan: Plan, environment: Environment[Workload], name: str, progress: Progress) -> Path:
    toolchains = environment.toolchains
    path = toolchains.folder / f"{name}{PACKAGE_SUFFIX}"
    built = assemble(plan, environment.source, toolchains.store, progress, check=False)
    built.save(path, None, threads=toolchains.threads, model_name=environment.workload.facts.name, model_sha256="")
    return path
