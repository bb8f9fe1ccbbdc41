"""A toolchain whose targets lose, or never had, what they need of a device, as the target's option `fault` says.

Each target has a device of its own, so that what one does to it is nobody else's trouble. A fault is named
`WHAT-in-WHERE`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from collage_core.contract import (
    Artifact,
    BoundCall,
    Buffer,
    Device,
    Host,
    Kernel,
    KernelFunction,
    LibraryFamily,
    RunContext,
    Supported,
    Target,
)
from collage_core.errors import (
    DeviceCapabilityError,
    DeviceError,
    DeviceUnavailableError,
    DriverTooOldError,
    KernelError,
)
from collage_core.hookspecs import hookimpl
from collage_core.patterns import PatternTable
from collage_testing.kit import FakeDevice, FakeStream, stream_of
from collage_testing.kit.fake_hardware import FakeHardware
from collage_testing.kit.fake_kernel import load_on_fake, lower_for_fake

TOO_MUCH = 1 << 40

OPENING: Mapping[str, Callable[[str], Exception]] = {
    "absent-in-open": lambda name: DeviceUnavailableError(name, "it is in exclusive use elsewhere"),
    "capability-in-open": lambda name: DeviceCapabilityError(name, "it is of 3.5, and code is for 7.0 and newer"),
    "driver-in-open": lambda name: DriverTooOldError(name, "the driver is of CUDA 11, the library of CUDA 13"),
}
MEMORY = ("memory-in-lower", "memory-in-load", "memory-in-bind", "memory-in-run", "memory-in-plan")
LOST = (
    "lost-in-lower",
    "lost-in-load",
    "lost-in-run",
    "lost-unsaid-in-run",
    "stuck-in-run",
    "lost-in-measure",
    "lost-in-plan",
)
FAULTS = (*OPENING, *MEMORY, *LOST)
IN_PLAN = ("memory-in-plan", "lost-in-plan")
"""Nothing is wrong with a kernel alone, only with the finished plan."""
OFFERED = (*OPENING, *MEMORY, "lost-in-measure", "lost-in-plan")
"""Those of the targets; a lost device ends a process twice, which takes time."""


def device_of(fault: str) -> str:
    return f"failing:{FAULTS.index(fault)}"


def in_worker() -> bool:
    return Path(sys.argv[0]).stem == "worker_main"


def lose(device: FakeHardware) -> None:
    """From now on it does not answer."""
    device.lost_after = 0


def stuck() -> None:
    """Fails for a reason that says nothing of a loss."""
    raise DeviceError("fake", "it does not answer any more: cudaErrorUnknown")


class FailingDevices:
    """The provider of the targets' devices."""

    library_families: Sequence[LibraryFamily] = ()

    def __init__(self) -> None:
        self._made: dict[str, FakeDevice] = {}

    def __getitem__(self, name: str) -> FakeDevice:
        return self._made.setdefault(name, FakeDevice(name))

    def devices(self) -> tuple[Device, ...]:
        return ()

    def open(self, name: str) -> FakeStream:
        fault = FAULTS[int(name.rpartition(":")[2])]
        if fault in OPENING:
            raise OPENING[fault](name)
        made = self[name]
        if fault == "memory-in-bind":
            made.memory_bytes = 1 << 10  # the weight, and nothing else
        if fault == "memory-in-plan" and not in_worker():
            made.memory_bytes = 1 << 10
        return made.open(name)

    def why_unusable(self, name: str) -> str:
        return ""


class Failing:
    """Hooks of the toolchain."""

    def __init__(self, devices: FailingDevices) -> None:
        self._devices = devices

    def targets(self, faults: Sequence[str]) -> list[Target]:
        return [
            Target(toolchain="failing", device=device_of(fault), options=(("fault", fault),), fingerprint="failing 1")
            for fault in faults
        ]

    @hookimpl
    def collage_targets(self, host: Host) -> Sequence[Target]:
        return self.targets(OFFERED)

    @hookimpl
    def collage_register_predicates(self, table: PatternTable, target: Target) -> None:
        # those that fail as plans take all of the model, so that each has a plan of its own
        for operator in ("MatMul", "Softmax") if target.option("fault") in IN_PLAN else ("MatMul",):
            table.predicate(operator, lambda node: Supported())

    @hookimpl
    def collage_lower(self, target: Target, function: KernelFunction) -> Iterator[Artifact]:
        self._misbehave(target, "lower", self._devices[target.device].open(target.device))
        return lower_for_fake(function, capturable=True)

    @hookimpl
    def collage_load(self, target: Target, artifact: Artifact, run: RunContext) -> Kernel:
        stream = stream_of(run.stream)
        self._misbehave(target, "load", stream)
        return FailingKernel(target.option("fault"), stream, load_on_fake(artifact, run))

    @hookimpl
    def collage_measure(self, target: Target, fallback: Callable[[], Any]) -> Any:
        if target.option("fault") == "lost-in-measure":
            lose(self._devices[target.device])
        return fallback()

    def _misbehave(self, target: Target, where: str, stream: FakeStream) -> None:
        fault = target.option("fault")
        if fault == f"lost-in-{where}":
            lose(stream.device)
        if fault.endswith(f"-in-{where}"):
            stream.allocate(TOO_MUCH)


class FailingKernel:
    def __init__(self, fault: str, stream: FakeStream, kernel: Kernel) -> None:
        self._fault = fault
        self._stream = stream
        self._kernel = kernel

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        call = self._kernel.bind(inputs, outputs, workspace)
        device = self._stream.device

        def failing() -> None:
            match self._fault:
                case "memory-in-run":
                    self._stream.allocate(TOO_MUCH)
                case "lost-in-run":
                    lose(device)
                case "lost-unsaid-in-run":
                    lose(device)
                    raise KernelError("launch failed with 719")
                case "stuck-in-run":
                    self._stream.synchronise = stuck  # type: ignore[method-assign]
                    raise KernelError("launch failed with 999")
                case "lost-in-plan" if not in_worker():
                    lose(device)
            call()

        return failing


devices = FailingDevices()
failing = Failing(devices)
