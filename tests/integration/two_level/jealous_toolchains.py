"""Two toolchains whose kernels sleep, and longer after a kernel of the other: what they cost alone does not add.

Each is fast in one half of a chain of operators but for one operator, which the other has faster.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final

from collage.reference.plugin import ReferencePlugin
from collage_core.contract import (
    Artifact,
    BoundCall,
    Buffer,
    Host,
    Joins,
    Kernel,
    KernelFunction,
    RunContext,
    Supported,
    Target,
)
from collage_core.hookspecs import hookimpl
from collage_core.patterns import PatternTable

CHANGE_S: Final = 0.006
"""What a kernel takes longer after one of the other toolchain."""
OPERATORS: Final = ("Relu", "Exp", "Neg", "Abs", "Tanh", "Sin")
SECONDS: Final[Mapping[str, Mapping[str, float]]] = {
    "left": dict(zip(OPERATORS, (0.001, 0.003, 0.001, 0.012, 0.002, 0.012), strict=True)),
    "right": dict(zip(OPERATORS, (0.012, 0.002, 0.012, 0.001, 0.003, 0.001), strict=True)),
}
"""What an operator takes, by toolchain. Alone, the cheapest kernels change toolchains five times."""


def latency_s(placed: Sequence[str]) -> float:
    """Return what a plan takes that runs again and again.

    Args:
        placed: The toolchain of each operator of the chain.
    """
    changes = sum(one != other for one, other in itertools.pairwise([*placed, placed[0]]))
    return sum(SECONDS[name][operator] for name, operator in zip(placed, OPERATORS, strict=True)) + changes * CHANGE_S


class Jealous:
    """Runs any region of operators, as the reference does, and then sleeps."""

    last: ClassVar[str] = ""
    """Who ran the kernel before in this process."""

    def __init__(self, name: str) -> None:
        self.name = name

    @hookimpl
    def collage_targets(self, host: Host) -> Sequence[Target]:
        return [Target(toolchain=self.name, fingerprint="1", joins=Joins.ANY)]

    @hookimpl
    def collage_register_predicates(self, table: PatternTable, target: Target) -> None:
        table.predicate("*", lambda node: Supported())

    @hookimpl
    def collage_lower(self, target: Target, function: KernelFunction) -> Iterator[Artifact]:
        seconds = sum(SECONDS[self.name][node.op_type] for node in function.model.graph)
        for artifact in ReferencePlugin().collage_lower(function):
            yield Artifact(files=artifact.files, metadata={"seconds": str(seconds)})

    @hookimpl
    def collage_check_data(self, target: Target, artifact: Artifact) -> Supported:
        return Supported()

    @hookimpl
    def collage_load(self, target: Target, artifact: Artifact, run: RunContext) -> Kernel:
        return SleepyKernel(
            ReferencePlugin().collage_load(artifact, run), self, float(str(artifact.metadata["seconds"]))
        )


class SleepyKernel:
    """Computes as another kernel does, and sleeps."""

    def __init__(self, kernel: Kernel, toolchain: Jealous, seconds: float) -> None:
        self._kernel = kernel
        self._toolchain = toolchain
        self._seconds = seconds

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        """See `Kernel.bind`."""
        right, name = self._kernel.bind(inputs, outputs, workspace), self._toolchain.name

        def call() -> None:
            right()
            changed = Jealous.last not in ("", name)
            Jealous.last = name
            time.sleep(self._seconds + changed * CHANGE_S)

        return call


left, right = Jealous("left"), Jealous("right")
