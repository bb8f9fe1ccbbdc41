"""A toolchain for functions `y = x + w` that tells what it was told: each variant's name says what its build was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from collage_core.contract import (
    Artifact,
    BoundCall,
    Buffer,
    BuildContext,
    Kernel,
    KernelFunction,
    RunContext,
    Target,
)
from collage_core.hookspecs import hookimpl

WORKSPACE_BYTES = 4096


class ContextPlugin:
    @hookimpl
    def collage_targets(self) -> Sequence[Target]:
        return [Target(toolchain="context", fingerprint="context 1")]

    @hookimpl
    def collage_lower(self, function: KernelFunction, build: BuildContext) -> Iterator[Artifact]:
        files = {"w.bin": function.constant("w").tobytes()}
        if build.variant is not None:
            yield Artifact(files=files, variant=build.variant)
            return
        within = build.tuning_s < build.deadline_s
        cores = build.host.physical_cores
        for number in range(build.max_variants):
            yield Artifact(files=files, variant=f"{number} of {build.max_variants}, {within}, {cores}")

    @hookimpl
    def collage_load(self, artifact: Artifact, run: RunContext) -> Kernel:
        return AddKernel(np.frombuffer(artifact.files["w.bin"], np.float32))


class AddKernel:
    """Asks for scratch memory only once it is loaded."""

    workspace_bytes = WORKSPACE_BYTES

    def __init__(self, weight: np.ndarray) -> None:
        self._weight = weight

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        assert workspace is not None
        assert workspace.array.nbytes == WORKSPACE_BYTES
        return lambda: np.add(inputs[0].array, self._weight, out=outputs[0].array)


plugin = ContextPlugin()
