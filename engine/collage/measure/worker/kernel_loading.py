"""Kernels of one candidate, loaded in its toolchain's worker with the weights they ask for."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from collage.devices.opening import Devices, placed_on
from collage.measure.wire.outcomes import BuildSettings, Refused, Stage
from collage.measure.worker.failing import Stopped, failing_as
from collage_core.contract import (
    Artifact,
    DeviceStream,
    Host,
    Kernel,
    KernelFunction,
    RunContext,
    Target,
    Unsupported,
    ValueKind,
    Weights,
    weight_named,
    workspace_of,
)
from collage_core.registry import Toolchain


class KernelLoading:
    """Loads kernels.

    Args:
        toolchain: Loads.
        target: Its target.
        function: The candidate.
        settings: CPU threads, and how much workspace is allowed.
        scratch: A directory of this trial's own.
        host: The machine kernels run on.
        devices: Those of the toolchain's targets.
        lost: Receives why a device is lost.
    """

    def __init__(
        self,
        toolchain: Toolchain,
        target: Target,
        function: KernelFunction,
        settings: BuildSettings,
        scratch: Path,
        host: Host,
        devices: Devices,
        lost: Callable[[str], None],
    ) -> None:
        self._toolchain = toolchain
        self._target = target
        self._function = function
        self._settings = settings
        self._scratch = scratch
        self._host = host
        self._devices = devices
        self._lost = lost

    def device(self) -> DeviceStream | None:
        """Make the target's device the current one, and return it; None for the CPU."""
        if self._target.device == "cpu":
            return None
        device = self._devices[self._target.device]
        device.activate()
        return device

    def load(self, artifact: Artifact) -> Kernel:
        """Load a kernel that may be bound.

        Raises:
            Stopped: If core or the toolchain refuses, or loading fails.
        """
        with failing_as(Stage.LOAD, self._lost):
            kernel = self.loaded(artifact)
        if isinstance(kernel, Unsupported):
            raise Stopped(Refused(reason=f"it cannot load what it built: {kernel.reason}"))
        self._check_workspace(workspace_of(artifact, kernel))
        return kernel

    def loaded(self, artifact: Artifact) -> Kernel | Unsupported:
        """Load a kernel, with a copy of its weights of its own where they are on a device."""
        return self._toolchain.load(self._target, artifact, self.context(artifact))

    def context(self, artifact: Artifact) -> RunContext:
        """Return what the toolchain gets to load an artifact."""
        device, constants = self.device(), _constants(self._function, artifact)
        return RunContext(
            threads=self._settings.threads,
            host=self._host,
            device=self._target.device,
            constants=constants,
            placed={} if device is None else {key: placed_on(device, key, each) for key, each in constants.items()},
            stream=None if device is None else device.handle,
            capture=self._target.launch == "graph",
            scratch=Path(tempfile.mkdtemp(dir=self._scratch)),
        )

    def check(self, artifact: Artifact) -> None:
        """Refuse what core does not place on the target's device, and more workspace than is allowed.

        Raises:
            Stopped: If it is refused.
        """
        for spec in (*self._function.inputs, *self._function.outputs):
            if self._target.device != "cpu" and spec.kind is not ValueKind.PLANNED:
                reason = f"{spec.name!r} is {spec.kind.value}; on {self._target.device} are values of static shape only"
                raise Stopped(Refused(reason=reason))
        self._check_workspace(artifact.workspace_bytes)

    def _check_workspace(self, nbytes: int) -> None:
        limit = self._settings.workspace_limit_bytes
        if nbytes > limit:
            raise Stopped(Refused(reason=f"it needs {nbytes} bytes of workspace, {limit} are allowed"))


def _constants(function: KernelFunction, artifact: Artifact) -> Mapping[str, np.ndarray[Any, Any]]:
    names = {content: name for name, content in function.constants.items()}
    wanted = {weight_named(key)[0] for key in artifact.constants.values()}
    weights = Weights({content: function.constant(names[content]) for content in wanted})
    return {key: weights[key] for key in artifact.constants.values()}
