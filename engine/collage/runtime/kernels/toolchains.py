"""Toolchains by name, imported when they are needed."""

from __future__ import annotations

from collage.runtime.kernels.loading import Load
from collage_core.contract import Artifact, Kernel, RunContext, Target, Unsupported
from collage_core.errors import PluginError
from collage_core.registry import Registry, Toolchain, load_toolchain


def loader(registry: Registry | None) -> Load:
    """Return a loader of artifacts that this process has built; those of packages are for `packaged_kernels`.

    Args:
        registry: Source of toolchains; None to import each when it is first needed.
    """
    return InstalledToolchains(registry).load


class InstalledToolchains:
    """Toolchains by name, or the reason why one is missing.

    Args:
        registry: Source of toolchains; None to import each when it is first needed.
    """

    def __init__(self, registry: Registry | None) -> None:
        self._registry = registry
        self._known: dict[str, Toolchain] = {}

    def __call__(self, name: str) -> Toolchain | Unsupported:
        """Return a toolchain, or why it is missing."""
        if name in self._known:
            return self._known[name]
        if self._registry is None:
            try:
                self._known[name] = load_toolchain(name)
            except PluginError as error:
                return Unsupported(f"toolchain {name!r} is not usable: {error.reason}")
        elif name in self._registry.toolchains:
            self._known[name] = self._registry.toolchains[name]
        else:
            failed = [failure.reason for failure in self._registry.failures if failure.name == name]
            return Unsupported(f"toolchain {name!r} is not installed{f': {failed[0]}' if failed else ''}")
        return self._known[name]

    def load(self, target: Target, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
        """Call the `load` of the toolchain that a target belongs to."""
        toolchain = self(target.toolchain)
        return toolchain if isinstance(toolchain, Unsupported) else toolchain.load(target, artifact, run)
