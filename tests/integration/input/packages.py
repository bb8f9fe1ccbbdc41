"""Packages of whole models over one toolchain, made in this process without any measuring."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from collage.devices.this_host import this_host
from collage.prepare.steps import prepare
from collage.runtime.package import save_package
from collage_core.contract import Artifact, Target, Unsupported
from collage_core.fusion import CandidateKernel, FusionSpec, OpCallByKindRule, Partitioning, SubGraph
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.io.model_io import load_model
from collage_core.passes.apply import apply_partitioning
from collage_core.passes.call_sites import call_sites
from collage_core.registry import load_toolchain
from collage_testing.kit import build_context


def packaged(
    model: Path, package: Path, toolchain: str, input_shapes: Mapping[str, tuple[int, ...]] | None = None
) -> None:
    """Writes a package whose one kernel is the whole model."""
    graph = DataflowGraph(prepare(load_model(model), input_shapes=input_shapes))
    library = load_toolchain(toolchain)
    targets = library.targets(this_host())
    assert not isinstance(targets, Unsupported), targets.reason
    spec = FusionSpec(name=toolchain, rule=OpCallByKindRule(), targets=(targets[0],))
    kernel = CandidateKernel(SubGraph(graph, graph.completed(graph.needs_kernel)), spec)
    partitioned = apply_partitioning(Partitioning(graph, (kernel,)))
    artifacts: dict[str, Artifact] = {}
    with tempfile.TemporaryDirectory() as folder:
        build = build_context(Path(folder), effort=0, workspace_limit_bytes=1 << 30)
        for site in call_sites(partitioned):
            variants = library.lower(targets[0], site.kernel_function(), build)
            assert not isinstance(variants, Unsupported), variants.reason
            artifacts[site.name] = next(iter(variants))
    of_site: dict[str, Target] = dict.fromkeys(artifacts, targets[0])
    save_package(package, partitioned, artifacts, of_site, None, threads=1, model_name=model.name, model_sha256="")
