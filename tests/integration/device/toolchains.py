"""Toolchains of a machine with a device that is not there: two on it, which are fast, and one on the CPU, which is not.

What they lower is noted in a file, so that nobody builds anything unseen.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator, Sequence

from collage_core.contract import Artifact, BoundCall, Buffer, Kernel, KernelFunction, RunContext, Target
from collage_core.hookspecs import hookimpl
from collage_core.testing import FakeDevice, MockToolchain

LOG = "COLLAGE_TEST_LOG"
"""Variable with the file that each lowering is noted in: toolchain, process, operators."""
WAIT_S = 0.01
"""What the CPU's toolchain takes for an operator that the device has, too: more than a fake device even when busy."""
ON_DEVICE = ("MatMul", "Relu", "Add", "Mul")


def noted() -> list[str]:
    """The lowerings so far, a line each."""
    try:
        with open(os.environ[LOG], encoding="utf-8") as log:
            return log.read().splitlines()
    except FileNotFoundError:
        return []


class Noted(MockToolchain):
    """Notes what it lowers."""

    @hookimpl
    def collage_lower(self, target: Target, function: KernelFunction) -> Iterator[Artifact]:
        operators = ",".join(node.op_type for node in function.model.graph)
        with open(os.environ[LOG], "a", encoding="utf-8") as log:
            log.write(f"{self.name} {os.getpid()} {operators}\n")
        return super().collage_lower(target, function)


class Slow(Noted):
    """Runs everything on the CPU, and takes its time for what a device would run."""

    @hookimpl
    def collage_lower(self, target: Target, function: KernelFunction) -> Iterator[Artifact]:
        waits = sum(node.op_type in ON_DEVICE for node in function.model.graph) * WAIT_S
        for artifact in super().collage_lower(target, function):
            yield dataclasses.replace(artifact, metadata={"wait_s": waits})

    @hookimpl
    def collage_load(self, target: Target, artifact: Artifact, run: RunContext) -> Kernel:
        return SlowKernel(super().collage_load(target, artifact, run), float(str(artifact.metadata["wait_s"])))


class SlowKernel:
    def __init__(self, kernel: Kernel, wait_s: float) -> None:
        self._kernel = kernel
        self._wait_s = wait_s

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        call = self._kernel.bind(inputs, outputs, workspace)

        def slowly() -> None:
            time.sleep(self._wait_s)
            call()

        return slowly


device = FakeDevice("fake:0")
"""Of this process."""


def on_device(name: str, operators: Sequence[str]) -> Noted:
    target = Target(toolchain=name, device=device.name, fingerprint=f"{name} 1")
    return Noted(name, costs_us={}, operators=operators, targets=[target], device=device)


far = on_device("far", ON_DEVICE)
beyond = on_device("beyond", ["Softmax", "Sqrt", "Exp"])
near = Slow("near", costs_us={}, operators=[*ON_DEVICE, "Softmax"])

TOOLCHAINS = {name: f"{__name__}:{name}" for name in ("far", "beyond", "near")}
