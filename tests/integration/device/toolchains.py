"""Toolchains of a machine with a device that is not there: fast ones on it, and one on the CPU that is not.

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
from collage_core.testing.fake_kernel import load_on_fake

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


class Several(Noted):
    """Has two variants of each kernel, the faster of which may give other bits each time."""

    @hookimpl
    def collage_lower(self, target: Target, function: KernelFunction) -> Iterator[Artifact]:
        for artifact in super().collage_lower(target, function):
            yield dataclasses.replace(artifact, variant="quick", deterministic=False, metadata={"us": 1.0})
            yield dataclasses.replace(artifact, variant="steady", metadata={"us": 2.0})

    @hookimpl
    def collage_load(self, target: Target, artifact: Artifact, run: RunContext) -> Kernel:
        return load_on_fake(artifact, run, us=float(str(artifact.metadata["us"])))


device = FakeDevice("fake:0")
"""Of this process."""


def on_device(name: str, operators: Sequence[str]) -> Noted:
    target = Target(toolchain=name, device=device.name, fingerprint=f"{name} 1")
    return Noted(name, costs_us={}, operators=operators, targets=[target], device=device)


far = on_device("far", ON_DEVICE)
beyond = on_device("beyond", ["Softmax", "Sqrt", "Exp"])
precise = Target(toolchain="several", device=device.name, fingerprint="several 1")
several = Several(
    "several",
    costs_us={},
    operators=ON_DEVICE,
    targets=[precise, dataclasses.replace(precise, options=(("precision", "fp16"),), exact=False)],
    device=device,
)
near = Slow("near", costs_us={}, operators=[*ON_DEVICE, "Softmax"])

TOOLCHAINS = {name: f"{__name__}:{name}" for name in ("far", "beyond", "several", "near")}
