"""Facts that `collage doctor` found on this machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from collage.report.facts.record import SCHEMA_VERSION, HostFacts, ToolchainFacts
from collage_core.entry_points import PluginFailure


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClashFacts:
    """Two copies of a library of which a process can hold only one.

    Attributes:
        library: Display name: `"cuDNN"`.
        between: The toolchains that load them, or the distributions that provide them.
        files: Their files.
        apart: Whether two toolchains share no plan because of it.
        reason: What is wrong.
        remedy: What to do.
    """

    library: str
    between: tuple[str, ...]
    files: tuple[str, ...]
    apart: bool = False
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"two of {self.library}: {self.reason}. {self.remedy}."


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DoctorReport:
    """Devices, toolchains and versions.

    Attributes:
        collage_version: Version of collage-core.
        host: The machine.
        devices: Devices that any target runs on, e.g. `"cpu"`, `"cuda:0"`.
        unusable_devices: Devices of the machine that no plan can use, each with the reason: `"cuda:0: ..."`.
        toolchains: Every toolchain that loads, usable or not, by name.
        failures: Entry points that do not load.
        obstacles: Category of the reason why a toolchain offers no target, by its name, where it gives one:
            `"driver too old"`; see `contract.Obstacle`.
        clashes: Libraries that conflict with each other.
        tuning_db: Default location of the tuning database.
    """

    schema_version: int = SCHEMA_VERSION
    collage_version: str
    host: HostFacts
    devices: tuple[str, ...] = ()
    unusable_devices: tuple[str, ...] = ()
    toolchains: tuple[ToolchainFacts, ...] = ()
    failures: tuple[PluginFailure, ...] = ()
    obstacles: Mapping[str, str] = dataclasses.field(default_factory=dict)
    clashes: tuple[ClashFacts, ...] = ()
    tuning_db: str = ""

    @property
    def usable(self) -> bool:
        """Whether any toolchain offers a target."""
        return any(toolchain.targets for toolchain in self.toolchains)
