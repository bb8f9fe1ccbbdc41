"""The hooks of the toolchains `tensorrt` and `tensorrt_rtx`. Importing this imports neither."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from collage_core.contract import (
    PRECISIONS,
    Artifact,
    BuildContext,
    Device,
    Host,
    Joins,
    Kernel,
    KernelFunction,
    Obstacle,
    RunContext,
    Supported,
    Target,
    Unsupported,
)
from collage_core.errors import DeviceError
from collage_core.hookspecs import hookimpl
from collage_core.ir.operators.narrowing import PRODUCTS
from collage_core.patterns import PatternTable
from collage_cuda import TENSOR_CORES, Activation, capability, driver_problem, gpu_targets, usable_gpus
from collage_tensorrt.editions import RTX, TENSORRT, Edition, capabilities, listed
from collage_tensorrt.engine import Settings, build_engine
from collage_tensorrt.kernel import load
from collage_tensorrt.lower import lower
from collage_tensorrt.patterns import takes
from collage_tensorrt.query import refusals
from collage_tensorrt.trial import NoBlobs, smallest_model


class TensorRtPlugin:
    """Hooks of one edition.

    Args:
        edition: Which.
        find: Gives its module; called where it is needed, in the worker. None for the installed one.
        activate: Makes a device the current one; None to have `collage_cuda` open it.
    """

    def __init__(
        self,
        edition: Edition,
        find: Callable[[], Any] | None = None,
        activate: Callable[[str], None] | None = None,
    ) -> None:
        self._edition = edition
        self._find = find or edition.find
        self._activate = activate or Activation()

    @hookimpl
    def collage_check_host(self, host: Host) -> Supported | Unsupported:
        """Check that there is a GPU, and a driver for a CUDA version that TensorRT exists for."""
        found = usable_gpus(host)
        return found if isinstance(found, Unsupported) else Supported()

    @hookimpl
    def collage_targets(self, host: Host) -> Sequence[Target] | Unsupported:
        """Return each device's target, and those of the lower precisions that its tensor cores support."""
        edition, devices = self._edition, usable_gpus(host)
        if isinstance(devices, Unsupported):
            return devices
        try:
            library = self._find()
        except Exception as error:
            reason = f"{edition.title} cannot be imported ({error}); {edition.install}"
            return Unsupported(reason, Obstacle.NO_LIBRARY)
        problems = {device.name: self._problem(library, device) for device in devices}
        usable = [device for device in devices if problems[device.name] is None]
        if usable:
            return targets(edition, str(library.__version__), usable)
        told = {name: problem for name, problem in problems.items() if problem is not None}
        sorts = {problem.obstacle for problem in told.values()}
        return Unsupported(
            "; ".join(f"{name}: {problem.reason}" for name, problem in told.items()),
            sorts.pop() if len(sorts) == 1 else Obstacle.OTHER,
        )

    def _problem(self, library: Any, device: Device) -> Unsupported | None:
        """Return why nothing can be built for a device, or None."""
        if (problem := driver_problem(device, self._edition.oldest_driver())) is not None:
            return problem
        if self._edition.ahead_of_time:
            if listed(library, device) is not None:
                return None
            known = ", ".join(capabilities(library))
            return Unsupported(
                f"it builds for compute capability {known}; {device.model} has {device.compute_capability}",
                Obstacle.COMPUTE_CAPABILITY,
            )
        settings = Settings(device=device, level=0, workspace_bytes=1 << 20, tf32=False)
        try:
            self._activate(device.name)
            engine = build_engine(self._edition, library, smallest_model(), (), settings, NoBlobs())
        except (DeviceError, TypeError) as error:  # a Builder that does not start is nothing the binding can return
            return Unsupported(f"it does not start on {device.model}: {error}")
        return Unsupported(f"it builds nothing for {device.model}: {engine}") if isinstance(engine, str) else None

    @hookimpl
    def collage_register_predicates(self, table: PatternTable, target: Target) -> None:
        """Register every standard operator; `collage_query` asks the importer which of them it supports."""
        table.predicate("*", takes)

    @hookimpl
    def collage_query(self, target: Target, model: KernelFunction) -> Mapping[str, str] | None:
        """Return the nodes that the importer refuses, with reasons."""
        return refusals(self._find(), model.model)

    @hookimpl
    def collage_lower(
        self, target: Target, function: KernelFunction, build: BuildContext
    ) -> Iterator[Artifact] | Unsupported:
        """Build engines for a function."""
        return lower(self._edition, self._find(), self._activate, target, function, build)

    @hookimpl
    def collage_load(self, target: Target, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
        """Load the engine."""
        try:
            library = self._find()
        except Exception as error:
            return Unsupported(f"{self._edition.title} cannot be imported ({error}); {self._edition.install}")
        return load(library, artifact, run)


def targets(edition: Edition, version: str, devices: Iterable[Device]) -> list[Target]:
    """Return targets of the devices that engines can be built for, and of their tensor cores' precisions.

    What is not in 8-bit integers is float32, or float16 in `int8+fp16`. Explicit quantisation is symmetric ("Working
    with Quantized Types" of both editions): the importer refuses zero points other than 0, and there is no uint8.

    Args:
        edition: Edition of TensorRT.
        version: Version of TensorRT.
        devices: CUDA devices.
    """
    known = tuple(devices)
    found = gpu_targets(
        known,
        toolchain=edition.toolchain,
        fingerprint=f"{edition.toolchain} {version}",
        joins=Joins.ANY,
        precisions=TENSOR_CORES,
        rounds=dict.fromkeys(PRECISIONS, PRODUCTS),  # what TF32 is used for, the library decides
    )
    quantising = {device.name for device in known if capability(device) >= edition.int8}
    quantised = [
        dataclasses.replace(
            plain, options=(("precision", precision),), exact=False, rounds=frozenset(PRODUCTS), symmetric=True
        )
        for plain in found
        if plain.exact and plain.device in quantising
        for precision in ("int8", "int8+fp16")
    ]
    return found + quantised


tensorrt = TensorRtPlugin(TENSORRT)
tensorrt_rtx = TensorRtPlugin(RTX)
