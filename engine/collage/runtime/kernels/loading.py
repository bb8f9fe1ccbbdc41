"""Load artifacts as kernels: check requirements, call the toolchain's loader, lower again if allowed."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from collage.devices.opening import Devices, placed_on
from collage.runtime.kernels.admission import Admission, EverythingAdmitted
from collage.runtime.kernels.requirements import VersionOf, check_requirements, installed_version
from collage.runtime.scratch import removed_with
from collage.temporary_folders import TemporaryFolder
from collage_core.contract import (
    Artifact,
    Buffer,
    DeviceStream,
    Host,
    Kernel,
    RunContext,
    Supported,
    Target,
    Unsupported,
    Weights,
    weight_named,
    workspace_of,
)
from collage_core.errors import DeviceError, KernelLoadError, PluginError
from collage_core.passes.call_sites import CallSite

Load = Callable[[Target, Artifact, RunContext], Kernel | Unsupported]
"""A toolchain's loader, as `Toolchain.load` is."""

Relower = Callable[[CallSite], Artifact]
"""Lowers a call site again, for an artifact that does not load on this machine."""


@dataclasses.dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class Loaded:
    """A kernel ready to be bound. Its directory is removed together with this object.

    Attributes:
        kernel: The kernel.
        workspace_bytes: Scratch memory its calls need.
        not_captured: Why its calls are not part of a device's graph; empty if they may be.
    """

    kernel: Kernel
    workspace_bytes: int
    not_captured: str = "it runs on the CPU"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoweredAgain:
    """A kernel whose packaged artifact does not fit this machine, or is code that is not trusted.

    Attributes:
        site: Its call site.
        target: Name of its target.
        nodes: Names of the nodes it computes.
        reason: Why it was not loaded.
        artifact: The replacement.
    """

    site: str
    target: str
    nodes: tuple[str, ...]
    reason: str
    artifact: Artifact = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """Loads kernels for one executable.

    Attributes:
        load: The toolchains' loaders.
        threads: CPU threads of each kernel.
        scratch: In which each kernel gets a directory of its own; it goes with the last loader.
        host: This machine.
        devices: Where kernels of other devices run.
        weights: Weights by content hash; None to take them from the model.
        relower: What to do about an artifact that does not load; None to give up.
        admission: Decides what may be loaded.
        version_of: Looks up installed distributions.
        again: By call site, what was lowered again; clones load that.
        placed: By device and what artifacts call them, weights that are there already.
        converted: Weights converted for kernels of the CPU, as long as one of them holds them.
    """

    load: Load
    threads: int
    scratch: TemporaryFolder
    host: Host
    devices: Devices
    weights: Mapping[str, np.ndarray[Any, Any]] | None = None
    relower: Relower | None = None
    admission: Admission = dataclasses.field(default_factory=EverythingAdmitted)
    version_of: VersionOf = installed_version
    again: dict[str, LoweredAgain] = dataclasses.field(default_factory=dict)
    placed: dict[tuple[str, str], Buffer] = dataclasses.field(default_factory=dict)
    converted: weakref.WeakValueDictionary[str, np.ndarray[Any, Any]] = dataclasses.field(
        default_factory=weakref.WeakValueDictionary
    )

    def apart(self) -> Loader:
        """Return the loader for a clone: other streams of the same devices, sharing their weights."""
        self.devices.synchronise()  # another stream must not read weights that are still on their way
        return dataclasses.replace(self, devices=self.devices.apart())

    def __call__(self, site: CallSite, target: Target, artifact: Artifact) -> Loaded:
        """Load one kernel.

        Raises:
            KernelLoadError: If the toolchain does not offer the target here. If the machine lacks what the artifact
                needs, the artifact may not be loaded or the toolchain refuses, and lowering again is not possible or
                does not help.
        """
        made = self.again.get(site.name)
        if made is not None:
            answer = self._attempt(site, target, made.artifact)
        elif admitted := self._admitted(site, target, artifact):
            answer = self._attempt(site, target, artifact)
        else:
            answer = admitted
        if isinstance(answer, Loaded):
            return answer
        if self.relower is None:
            raise _error(site, target, answer.reason)
        try:
            again = self.relower(site)
        except Exception as error:
            why = error.reason if isinstance(error, KernelLoadError) else error
            raise _error(site, target, f"{answer.reason}; lowering it again failed: {why}") from error
        second = self._attempt(site, target, again)
        if isinstance(second, Loaded):
            self.again[site.name] = LoweredAgain(
                site=site.name, target=target.name, nodes=site.nodes, reason=answer.reason, artifact=again
            )
            return second
        raise _error(site, target, f"{answer.reason}; lowered again: {second.reason}")

    def _admitted(self, site: CallSite, target: Target, artifact: Artifact) -> Supported | Unsupported:
        """Check that an artifact may be loaded, before any code of its toolchain sees it otherwise.

        Raises:
            KernelLoadError: If the toolchain does not offer the target here; lowering again would not help.
        """
        try:
            admitted = self.admission.check_artifact(target, artifact)
            offered = self.admission.check_target(target, self.host) if admitted else admitted
        except PluginError as error:
            raise _error(site, target, error.reason) from error
        if admitted and isinstance(offered, Unsupported):
            raise _error(site, target, offered.reason)
        return admitted

    def _attempt(self, site: CallSite, target: Target, artifact: Artifact) -> Loaded | Unsupported:
        met = check_requirements(artifact.requires, self.host, self.version_of, device=target.device)
        if isinstance(met, Unsupported):
            return met
        constants: dict[str, np.ndarray[Any, Any]] = {}
        weights = Weights({})
        if artifact.constants:
            weights = Weights(_weights_of(site) if self.weights is None else self.weights, self.converted)
            missing = [name for name, key in artifact.constants.items() if key not in weights]
            if missing:
                return Unsupported(f"its weights {', '.join(missing)} are not at hand")
            # looked up here, not in the plugin: a damaged package must not be blamed on a toolchain
            constants = {
                key: weights[key]
                for key in artifact.constants.values()
                if target.device == "cpu" or weight_named(key)[1] is None
            }
        stream, placed = None, {}
        if target.device != "cpu":
            try:
                device = self.devices[target.device]
                device.activate()
                stream, placed = device.handle, self._place(device, artifact.constants.values(), weights)
            except DeviceError as error:  # lowering it again would give it neither a device nor memory
                raise _error(site, target, str(error)) from error
        scratch = Path(tempfile.mkdtemp(dir=self.scratch.path))
        context = RunContext(
            threads=self.threads,
            host=self.host,
            device=target.device,
            constants=constants,
            placed=placed,
            stream=stream,
            capture=target.launch == "graph",
            scratch=scratch,
        )
        kernel: Kernel | Unsupported | None = None
        try:
            kernel = self.load(target, artifact, context)
        except PluginError as error:
            raise _error(site, target, error.reason) from error
        finally:
            if kernel is None or isinstance(kernel, Unsupported):
                shutil.rmtree(scratch, ignore_errors=True)
        if isinstance(kernel, Unsupported):
            return kernel
        loaded = Loaded(
            kernel=kernel,
            workspace_bytes=workspace_of(artifact, kernel),
            not_captured=why_not_captured(target, artifact),
        )
        removed_with(loaded, scratch)
        return loaded

    def _place(self, device: DeviceStream, wanted: Iterable[str], weights: Weights) -> dict[str, Buffer]:
        """Return the weights on a device, converted and copied there when the first kernel needs them."""
        for key in wanted:
            if (device.name, key) not in self.placed:
                self.placed[device.name, key] = placed_on(device, key, weights[key])
        return {key: self.placed[device.name, key] for key in wanted}


def why_not_captured(target: Target, artifact: Artifact) -> str:
    """Return why a kernel's calls cannot be captured in a device's graph; empty if they can."""
    if target.device == "cpu":
        return "it runs on the CPU"
    if target.launch != "graph":
        return f"its target asks for launch={target.launch}"
    return "" if artifact.capturable else "its artifact is not capturable"


def _weights_of(site: CallSite) -> dict[str, np.ndarray[Any, Any]]:
    """Return the weights of one call site by content hash, taken from the model; read-only."""
    function = site.kernel_function()
    weights = {}
    for name, key in function.constants.items():
        weights[key] = function.constant(name).view()
        weights[key].flags.writeable = False
    return weights


def _error(site: CallSite, target: Target, reason: str) -> KernelLoadError:
    return KernelLoadError(site.name, target.name, site.nodes, reason)
