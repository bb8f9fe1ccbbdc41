"""Toolchains of a machine with a device that is not there: fast ones on it, and one on the CPU that is not.

What they lower is noted in a file, so that nobody builds anything unseen.
"""

from __future__ import annotations

import dataclasses
import mmap
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from collage_core.contract import (
    PRECISIONS,
    Artifact,
    BoundCall,
    Buffer,
    Kernel,
    KernelFunction,
    Measurement,
    RunContext,
    Target,
    Unsupported,
)
from collage_core.hookspecs import hookimpl
from collage_core.ir.operators.narrowing import PRODUCTS
from collage_testing.kit import ExecutingMock, FakeDevice, FakeDevices
from collage_testing.kit.fake_kernel import load_on_fake

LIBRARIES = "COLLAGE_TEST_LIBRARIES"
"""Variable with a folder that has one for each toolchain, with a library to load."""
LOG = "COLLAGE_TEST_LOG"
"""Variable with the file that each lowering is noted in: toolchain, process, operators."""
WAIT_S = 0.05
"""What the CPU's toolchain takes for an operator that the device has, too: no other kernel takes as long."""
ON_DEVICE = ("MatMul", "Relu", "Add", "Mul")


def noted() -> list[str]:
    """The lowerings so far, a line each."""
    try:
        with open(os.environ[LOG], encoding="utf-8") as log:
            return log.read().splitlines()
    except FileNotFoundError:
        return []


class Noted(ExecutingMock):
    """Notes what it lowers; its artifacts are code, as most of those for GPUs are."""

    @hookimpl
    def collage_check_data(self) -> Unsupported:
        return Unsupported("its artifacts are code")

    @hookimpl
    def collage_lower(self, target: Target, function: KernelFunction) -> Iterator[Artifact]:
        operators = ",".join(node.op_type for node in function.model.graph)
        with open(os.environ[LOG], "a", encoding="utf-8") as log:
            log.write(f"{self.name} {os.getpid()} {operators}\n")
        made = super().collage_lower(target, function)
        assert not isinstance(made, Unsupported)
        return made


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

    @hookimpl
    def collage_measure(self, call: SlowCall) -> Measurement:
        return Measurement(samples_us=(1.0 + call.wait_s * 1e6,), warmup_runs=0)


class SlowKernel:
    def __init__(self, kernel: Kernel, wait_s: float) -> None:
        self._kernel = kernel
        self._wait_s = wait_s

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        return SlowCall(self._kernel.bind(inputs, outputs, workspace), self._wait_s)


class SlowCall:
    """A call that waits before it does anything."""

    def __init__(self, call: BoundCall, wait_s: float) -> None:
        self.wait_s = wait_s
        self._call = call

    def __call__(self) -> None:
        time.sleep(self.wait_s)
        self._call()


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
devices = FakeDevices(device)


def on_device(name: str, operators: Sequence[str]) -> Noted:
    target = Target(toolchain=name, device=device.name, fingerprint=f"{name} 1")
    return Noted(name, costs_us={}, operators=operators, targets=[target])


far = on_device("far", ON_DEVICE)
beyond = on_device("beyond", ["Softmax", "Sqrt", "Exp"])
precise = Target(toolchain="several", device=device.name, fingerprint="several 1")
rounded = dataclasses.replace(precise, exact=False, rounds=frozenset(PRODUCTS))
several = Several(
    "several",
    costs_us={},
    operators=ON_DEVICE,
    targets=[precise, *(dataclasses.replace(rounded, options=(("precision", each),)) for each in PRECISIONS)],
)
near = Slow("near", costs_us={}, operators=[*ON_DEVICE, "Softmax"])


class Jealous(Noted):
    """Cannot be in one process with its rival, of which one of both may say so; loads the file of a library.

    Attributes:
        rival: Name of the other.
    """

    here: ClassVar[set[str]] = set()
    """Those with kernels in this process."""

    def __init__(self, name: str, operators: Sequence[str], rival: str, *, excludes: bool) -> None:
        target = Target(toolchain=name, fingerprint=f"{name} 1", excludes=frozenset({rival} if excludes else ()))
        super().__init__(name, costs_us={}, operators=operators, targets=[target])
        self.rival = rival
        self._mapped: mmap.mmap | None = None

    @hookimpl
    def collage_targets(self) -> Sequence[Target] | Unsupported:
        path = Path(os.environ.get(LIBRARIES, ""), self.name, "libcudnn.so.9")
        if os.environ.get(LIBRARIES) and path.exists():
            with path.open("rb") as file:
                self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return super().collage_targets()

    @hookimpl
    def collage_load(self, target: Target, artifact: Artifact, run: RunContext) -> Kernel:
        self.here.add(self.name)
        assert self.rival not in self.here, f"{self.name} and {self.rival} are in one process"
        return super().collage_load(target, artifact, run)


left = Jealous("left", ["MatMul", "Relu"], "right", excludes=True)
right = Jealous("right", ["Relu", "Add"], "left", excludes=False)

TOOLCHAINS = {name: f"{__name__}:{name}" for name in ("far", "beyond", "several", "near", "left", "right")}
DEVICES = {"fake": f"{__name__}:devices"}
