"""Load artifacts as kernels: check requirements, call the toolchain's loader, lower again if allowed."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
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
class Lowered:
    """A call site lowered on this machine.

    Attributes:
        target: Target it was lowered for: the packaged one, or another.
        artifact: The artifact.
    """

    target: Target
    artifact: Artifact = dataclasses.field(repr=False)


Relower = Callable[[CallSite, Target], Iterator[Lowered | Unsupported]]
"""Lowers a call site again whose artifact does not load for its target, in one way after the other.

Each way is attempted only if those before it did not load; a way that is not possible yields its reason.
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Substitute:
    """A kernel that was lowered here because the packaged one was not loaded.

    Attributes:
        lowered: What runs instead.
        reason: Why the packaged kernel was not loaded.
    """

    lowered: Lowered
    reason: str


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
        relower: Lowers a call site again whose artifact does not load; None to give up.
        admission: Decides what may be loaded.
        version_of: Looks up installed distributions.
        substitutes: By call site, what was lowered again; clones load that.
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
    substitutes: dict[str, Substitute] = dataclasses.field(default_factory=dict)
    placed: dict[tuple[str, str], Buffer] = dataclasses.field(default_factory=dict)
    converted: weakref.WeakValueDictionary[str, np.ndarray[Any, Any]] = dataclasses.field(
        default_factory=weakref.WeakValueDictionary
    )

    def apart(self) -> Loader:
        """Return the loader for a clone: other streams of the same devices, sharing their weights."""
        self.devices.synchronise()  # another stream must not read weights that are still on their way
        return dataclasses.replace(self, devices=self.devices.apart(), substitutes=dict(self.substitutes))

    def __call__(self, site: CallSite, target: Target, artifact: Artifact) -> Loaded:
        """Load one kernel, or a substitute.

        Raises:
            KernelLoadError: If neither loads; it has the reason of each.
        """
        known = self.substitutes.get(site.name)
        answer: Loaded | Supported | Unsupported
        try:
            if known is not None:
                answer = self._attempt(site, known.lowered.target, known.lowered.artifact)
            elif answer := self._admitted(target, artifact):
                answer = self._attempt(site, target, artifact)
        except DeviceError as error:  # of memory that others hold: a plan without the device is not what is missing
            raise _error(site, target, str(error)) from error
        if isinstance(answer, Loaded):
            return answer
        if self.relower is None or known is not None:
            raise _error(site, target, answer.reason)
        refusals = [answer.reason]
        for lowered in _ways(self.relower, site, target):
            if isinstance(lowered, Unsupported):
                refusals.append(lowered.reason)
                continue
            try:
                second = self._attempt(site, lowered.target, lowered.artifact)
            except DeviceError as error:
                second = Unsupported(str(error))
            if isinstance(second, Loaded):
                self.substitutes[site.name] = Substitute(lowered=lowered, reason=answer.reason)
                return second
            whose = "" if lowered.target.name == target.name else f" for {lowered.target.name}"
            refusals.append(f"lowered again{whose}: {second.reason}")
        raise _error(site, target, "; ".join(refusals))

    def _admitted(self, target: Target, artifact: Artifact) -> Supported | Unsupported:
        """Check that an artifact may be loaded, before any code of its toolchain sees it otherwise."""
        try:
            admitted = self.admission.check_artifact(target, artifact)
            return self.admission.check_target(target, self.host) if admitted else admitted
        except PluginError as error:
            return Unsupported(error.reason)

    def _attempt(self, site: CallSite, target: Target, artifact: Artifact) -> Loaded | Unsupported:
        """Load an artifact for a target.

        Raises:
            DeviceError: If the device has not the memory for the weights.
        """
        met = check_requirements(artifact.requires, self.host, self.version_of, device=target.device)
        if isinstance(met, Unsupported):
            return met
        constants: dict[str, np.ndarray[Any, Any]] = {}
        weights = Weights({})
        if artifact.constants:
            weights = Weights(self._weights(site, artifact), self.converted)
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
            except DeviceError as error:
                return Unsupported(str(error))
            stream, placed = device.handle, self._place(device, artifact.constants.values(), weights)
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
            return Unsupported(error.reason)
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

    def _weights(self, site: CallSite, artifact: Artifact) -> Mapping[str, np.ndarray[Any, Any]]:
        """Return the weights of an artifact: those shared by all, and what only the call site's function holds."""
        held = self.weights
        if held is None:
            return _weights_of(site)
        if all(key in held for key in self._asked(artifact)):
            return held
        return {**_weights_of(site), **{key: held[key] for key in self._asked(artifact) if key in held}}

    @staticmethod
    def _asked(artifact: Artifact) -> set[str]:
        """Return the content hashes of the weights that an artifact asks for."""
        return {weight_named(key)[0] for key in artifact.constants.values()}

    def _place(self, device: DeviceStream, wanted: Iterable[str], weights: Weights) -> dict[str, Buffer]:
        """Return the weights on a device, converted and copied there when the first kernel needs them."""
        for key in wanted:
            if (device.name, key) not in self.placed:
                self.placed[device.name, key] = placed_on(device, key, weights[key])
        return {key: self.placed[device.name, key] for key in wanted}


def _ways(relower: Relower, site: CallSite, target: Target) -> Iterator[Lowered | Unsupported]:
    """Yield what a relower yields, and as the last refusal what it raises."""
    try:
        yield from relower(site, target)
    except Exception as error:
        yield Unsupported(f"lowering it again failed: {error}")


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
