"""Decide what of a package may be loaded: targets that are offered here, and code of this machine's own packages."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Protocol

from collage_core.contract import Artifact, Host, Supported, Target, Unsupported
from collage_core.registry import Toolchain


class Admission(Protocol):
    """What may be loaded."""

    def check_target(self, target: Target, host: Host) -> Supported | Unsupported:
        """Check that a target's toolchain is here and may have it on this machine.

        Raises:
            PluginError: If the plugin fails.
        """

    def check_artifact(self, target: Target, artifact: Artifact) -> Supported | Unsupported:
        """Check that an artifact may be loaded; if not, its call site may still be lowered again.

        Raises:
            PluginError: If the plugin fails.
        """


class EverythingAdmitted:
    """Admits what this process has built, or what somebody vouches for who calls the runtime directly."""

    def check_target(self, target: Target, host: Host) -> Supported | Unsupported:
        """See `Admission.check_target`."""
        return Supported()

    def check_artifact(self, target: Target, artifact: Artifact) -> Supported | Unsupported:
        """See `Admission.check_artifact`."""
        return Supported()


class PackageAdmission:
    """Admits kernels of a package (`docs/design/0029-code-is-loaded-from-own-packages-only.md`).

    Args:
        toolchains: Returns a toolchain by name, or why it is missing.
        path: Path of the package, for messages.
        trusted: Whether it was written on this machine, or accepted by the user.
    """

    def __init__(self, toolchains: Callable[[str], Toolchain | Unsupported], path: str, *, trusted: bool) -> None:
        self._toolchains = toolchains
        self._path = path
        self._trusted = trusted

    def check_target(self, target: Target, host: Host) -> Supported | Unsupported:
        """Ask the plugin: about the machine only if the package is trusted, for its targets otherwise.

        A trusted package may be deployed where its plugin offers no targets because a compiler is missing.
        """
        toolchain = self._toolchains(target.toolchain)
        if isinstance(toolchain, Unsupported):
            return toolchain
        offered = toolchain.check_host(host) if self._trusted else _offered(toolchain, target, host)
        if isinstance(offered, Unsupported):
            return Unsupported(f"its toolchain does not offer that target here: {offered.reason}", offered.obstacle)
        return offered

    def check_artifact(self, target: Target, artifact: Artifact) -> Supported | Unsupported:
        """Admit data, and the code of trusted packages."""
        if self._trusted:
            return Supported()
        toolchain = self._toolchains(target.toolchain)
        if isinstance(toolchain, Unsupported):
            return toolchain
        data = toolchain.check_data(target, artifact)
        if isinstance(data, Supported):
            return data
        return Unsupported(
            f"{data.reason}, of a package that was neither written on this machine nor accepted: if you would run its "
            f"author's programs, accept it with `collage trust {shlex.quote(self._path)}`"
        )


def _offered(toolchain: Toolchain, target: Target, host: Host) -> Supported | Unsupported:
    targets = toolchain.targets(host)
    if isinstance(targets, Unsupported):
        return targets
    wanted = (target.device, target.options)
    if any((each.device, each.options) == wanted for each in targets):
        return Supported()
    return Unsupported(f"it offers {', '.join(each.name for each in targets)}")
