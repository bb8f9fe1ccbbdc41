"""Kernels of an executable and its clones: loaded when wanted, gone with the last of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from collage.devices.libraries import Libraries
from collage.devices.opening import Devices
from collage.devices.providers import Providers
from collage.devices.this_host import this_host
from collage.runtime.kernels.admission import Admission
from collage.runtime.kernels.clashes import LibraryWatch
from collage.runtime.kernels.loading import Load, Loaded, Loader, Relower
from collage.runtime.kernels.reports import KernelReport
from collage.temporary_folders import TemporaryFolder
from collage_core.contract import Artifact, Host, ReentrantKernel, Target
from collage_core.errors import KernelError
from collage_core.passes.call_sites import CallSite

Array = np.ndarray[Any, Any]


class KernelSource:
    """Loads kernels for an executable and its clones, and removes what they left on disk with the last of them.

    Args:
        loader: Loads one kernel.
        sites: The call sites, by id.
        artifacts: Artifact of each call site.
        targets: Target of each call site.
        libraries: Those of which a process has room for one.
    """

    def __init__(
        self,
        loader: Loader,
        sites: Mapping[str, CallSite],
        artifacts: Mapping[str, Artifact],
        targets: Mapping[str, Target],
        libraries: Libraries,
    ) -> None:
        self._loader = loader
        self._sites = sites
        self._artifacts = artifacts
        self._targets = targets
        self._libraries = libraries
        self._keeps: KernelSource | None = None

    @classmethod
    def open(
        cls,
        sites: Mapping[str, CallSite],
        artifacts: Mapping[str, Artifact],
        targets: Mapping[str, Target],
        load: Load,
        *,
        threads: int,
        relower: Relower | None,
        weights: Mapping[str, Array] | None,
        host: Host | None,
        providers: Providers,
        admission: Admission,
    ) -> KernelSource:
        """Return the source of a new executable; see `Executable.build`."""
        loader = Loader(
            load=load,
            threads=threads,
            scratch=TemporaryFolder(),
            host=host or this_host(providers),
            weights=weights,
            relower=relower,
            admission=admission,
            devices=Devices(providers.open),
        )
        return cls(loader, sites, artifacts, targets, providers.libraries)

    @property
    def devices(self) -> Devices:
        """Devices of the executable, each with its own stream."""
        return self._loader.devices

    @property
    def places(self) -> dict[str, str]:
        """Device of each call site."""
        return {name: self._target(name).device for name in self._targets}

    @property
    def reports(self) -> tuple[KernelReport, ...]:
        """What runs at each call site, in order."""
        substitutes = self._loader.substitutes
        return tuple(
            KernelReport(
                site=name,
                packaged=self._targets[name].name,
                target=self._target(name).name,
                nodes=site.nodes,
                reason=substitutes[name].reason if name in substitutes else "",
            )
            for name, site in self._sites.items()
        )

    def _target(self, name: str) -> Target:
        """Return the target that runs a call site: the packaged one, or that of its substitute."""
        substitute = self._loader.substitutes.get(name)
        return self._targets[name] if substitute is None else substitute.lowered.target

    def all(self) -> dict[str, Loaded]:
        """Load the kernel of every call site, and look after each for libraries that get into each other's way.

        Raises:
            KernelLoadError: If a kernel cannot be loaded.
            LibraryClashError: If two toolchains have loaded two of a library of which there is room for one.
        """
        watch = LibraryWatch(self._libraries)
        kernels: dict[str, Loaded] = {}
        for name in self._sites:
            kernels[name] = self.load(name)
            watch.look(self._target(name).toolchain)
        watch.look_again()
        # what lowers kernels again lives as long as loading; clones load what was loaded now
        self._loader = dataclasses.replace(self._loader, relower=None)
        return kernels

    def load(self, name: str) -> Loaded:
        """Load the kernel of a call site."""
        site = self._sites[name]
        if name not in self._artifacts or name not in self._targets:
            raise KernelError(f"call site {name!r} of {site.target} has no artifact or no target")
        return self._loader(site, self._targets[name], self._artifacts[name])

    def apart(self) -> KernelSource:
        """Return the source of a clone: with streams of its own where devices take part, what they hold shared."""
        if not any(True for _ in self.devices):
            return self
        apart = KernelSource(self._loader.apart(), self._sites, self._artifacts, self._targets, self._libraries)
        apart._keeps = self
        return apart

    def for_clone(self, name: str, loaded: Loaded) -> Loaded:
        """Return a clone's kernel of a call site: the same if it is reentrant and on the CPU, else one of its own."""
        shared = isinstance(loaded.kernel, ReentrantKernel) and self._target(name).device == "cpu"
        return loaded if shared else self.load(name)
