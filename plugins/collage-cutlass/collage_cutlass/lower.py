"""Lower a kernel function to artifacts: tiles are the variants, compiled in parallel and cached."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Iterator

from collage_core.contract import (
    Artifact,
    BuildContext,
    Device,
    KernelFunction,
    Requirement,
    Target,
    Unsupported,
)
from collage_core.patterns import Mismatch, match_model
from collage_cuda.variants import begun
from collage_cutlass.architectures import Architecture, architecture_of
from collage_cutlass.building import Job, libraries
from collage_cutlass.described import Described
from collage_cutlass.menu import AnyTile, Shortlist, ranked
from collage_cutlass.patterns import FORMS, matcher_of
from collage_cutlass.problem import Gemm
from collage_cutlass.program import Program, assembled
from collage_cutlass.source import Kernel
from collage_cutlass.toolkit import Compiler, library_key, oldest_driver

LIBRARY = "kernel.so"
SOURCE = "kernel.cu"
HURRY_S = 100.0
"""Deadline in seconds below which kernels of CUTLASS 3.x come last: one takes most of a minute to compile."""

REPLACED = 2
"""Most tiles whose compilation is started per variant that core will try, replacements included."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Parts:
    """State shared by all variants."""

    program: Program
    constants: dict[str, str]


def lower(
    compiler: Compiler,
    shortlist: Shortlist,
    target: Target,
    device: Device,
    function: KernelFunction,
    build: BuildContext,
) -> Iterator[Artifact] | Unsupported:
    """Describe a function, and compile as many kernels for it as core will try.

    Args:
        compiler: Compiles libraries.
        shortlist: Returns the recommended tiles.
        target: Target that determines the precision.
        device: Device to build for.
        function: Function labelled with one of `FORMS`.
        build: Limits, and how many variants or which one.

    Returns:
        The variants, each as soon as it and those before it are compiled; or why there is none.
    """
    form = FORMS.get(function.composite)
    if form is None:
        return Unsupported(f"{function.composite!r} is none of its composites")
    match = match_model(matcher_of(form.name), function.model)
    if isinstance(match, Mismatch):
        return Unsupported(f"not {form.name}: {match.reason}")
    found = form.describe(match, target.option("precision"))
    if isinstance(found, Unsupported):
        return found
    architecture = architecture_of(device)
    if architecture is None:
        return Unsupported(f"nothing is compiled for {device.model} of compute capability {device.compute_capability}")
    if architecture.wgmma:
        found = found.for_wgmma()
    whole = assembled(found, function)
    if isinstance(whole, Unsupported):
        return whole
    program, constants = whole
    if program.scratch_bytes > build.workspace_limit_bytes:
        what = "rounding factors" if isinstance(found.problem, Gemm) else "turning images"
        return Unsupported(f"{what} takes {program.scratch_bytes} bytes of workspace, too many")
    in_a_hurry = build.deadline_s < HURRY_S
    tiles = [
        tile
        for tile in ranked(found.problem, found.numbers, architecture, shortlist, in_a_hurry=in_a_hurry)
        if build.variant in (None, tile.name)
    ]
    if not tiles:
        return Unsupported(f"no tile is named {build.variant!r}")
    jobs = [_job(compiler, architecture, found, tile) for tile in tiles[: REPLACED * max(1, build.max_variants)]]
    return begun(_variants(compiler, architecture, build, _Parts(program, constants), jobs))


def _job(compiler: Compiler, architecture: Architecture, found: Described, tile: AnyTile) -> Job:
    source = Kernel.of(found.problem, found.numbers, found.chain.activation, found.chain.source, tile).text
    return Job(tile, source, library_key(compiler, source, architecture.flags))


def _variants(
    compiler: Compiler, architecture: Architecture, build: BuildContext, parts: _Parts, jobs: list[Job]
) -> Generator[Artifact, None, str]:
    """Yield the variants in order; return the reason if there is none."""
    made = libraries(compiler, architecture.flags, jobs, build)
    while True:
        try:
            job, library = next(made)
        except StopIteration as nothing:
            return str(nothing.value)
        yield _artifact(compiler, architecture, parts, job, library)


def _artifact(compiler: Compiler, architecture: Architecture, parts: _Parts, job: Job, library: bytes) -> Artifact:
    return Artifact(
        files={LIBRARY: library, SOURCE: job.source.encode()},
        metadata={**parts.program.to_json(), "compiler": compiler.identity, "key": job.key},
        requires=(
            Requirement(kind="compute_capability", name="cuda", specifier=architecture.specifier),
            Requirement(kind="driver", name="cuda", specifier=f">={oldest_driver(compiler.major)}"),
        ),
        constants=parts.constants,
        workspace_bytes=parts.program.scratch_bytes,
        variant=job.tile.name,
        capturable=True,
    )
