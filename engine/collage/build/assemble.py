"""Phase 4: turn a plan into a partitioned model, an artifact for each call site, and a package."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping

import onnx_ir

from collage.errors import PlanBuildError
from collage.measure.driver.source import MeasuringCostSource
from collage.measure.wire.artifact_codec import artifact_of
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.outcomes import Built
from collage.report.progress import Progress
from collage.runtime.package import save_package
from collage_core.candidates.plan import Plan
from collage_core.contract import Artifact, Json, Target
from collage_core.fusion import CandidateKernel
from collage_core.passes.apply import apply_partitioning
from collage_core.passes.call_sites import call_sites


@dataclasses.dataclass(frozen=True, kw_only=True)
class Assembled:
    """A plan that can be saved.

    Attributes:
        plan: The plan.
        model: The partitioned model.
        artifacts: Artifact of each call site.
        targets: Target of each call site.
        kernels: Kernel of each call site.
        errors: Error of each call site on its own captured values, relative to the scale of each tensor; 0 if
            unchecked.
        digest: SHA-256 of all artifacts, in hexadecimal: two builds of one plan are the same if it is.
    """

    plan: Plan
    model: onnx_ir.Model
    artifacts: Mapping[str, Artifact]
    targets: Mapping[str, Target]
    kernels: Mapping[str, CandidateKernel]
    errors: Mapping[str, float]
    digest: str

    def save(
        self,
        path: str | os.PathLike[str],
        record: Json,
        *,
        threads: int,
        model_name: str,
        model_sha256: str,
    ) -> str:
        """Write the package atomically, and return its `Package.digest`.

        Raises:
            PackageError: If it cannot be written.
        """
        return save_package(
            path,
            self.model,
            self.artifacts,
            self.targets,
            record,
            threads=threads,
            model_name=model_name,
            model_sha256=model_sha256,
        )


def assemble(
    plan: Plan, source: MeasuringCostSource, store: BlobStore, progress: Progress, *, check: bool = True
) -> Assembled:
    """Lower every call site with its own weights and check it on its own captured values.

    Args:
        plan: Plan to build.
        source: Builds and checks the kernels.
        store: Where workers leave artifacts.
        progress: Receives an update for each kernel.
        check: Whether to compare with the reference; unnecessary if an earlier run did.

    Raises:
        PlanBuildError: If a call site cannot be built, or its result is wrong.
    """
    model = apply_partitioning(plan.partitioning)
    sites = call_sites(model)
    artifacts: dict[str, Artifact] = {}
    errors: dict[str, float] = {}
    manifests = {}  # which name files by their SHA-256
    for site, kernel in zip(sites, plan.kernels, strict=True):
        built = source.build(kernel, source.variant(kernel), check=check)
        if not isinstance(built, Built):
            raise PlanBuildError(kernel.target.name, kernel.sub_graph.names, built.reason)
        manifests[site.name] = dataclasses.asdict(built.artifact)
        artifacts[site.name] = artifact_of(built.artifact, store)
        errors[site.name] = built.error
        progress.advance()
    kernels = dict(zip((site.name for site in sites), plan.kernels, strict=True))
    return Assembled(
        plan=plan,
        model=model,
        artifacts=artifacts,
        targets={name: kernel.target for name, kernel in kernels.items()},
        kernels=kernels,
        errors=errors,
        digest=hashlib.sha256(json.dumps(manifests, sort_keys=True).encode()).hexdigest(),
    )
