"""Who provides the devices of this machine: entry points of the group `collage.devices`, each on its own.

A provider that fails to load, or to say which devices there are, costs its own devices only.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Final, Self

from collage.devices.libraries import Libraries
from collage_core.contract import DEVICE_ENTRY_POINT_GROUP, Device, DeviceProvider, DeviceStream
from collage_core.entry_points import PluginFailure, discovered, distribution_of, referred
from collage_core.error_text import one_line
from collage_core.errors import DeviceError, DeviceUnavailableError, PluginError
from collage_core.plugin_calls import in_driver

_KNOWN: Final[Mapping[str, tuple[str, Path]]] = {
    "cuda": ("collage-engine[cuda]", Path("/proc/driver/nvidia/version")),
}
"""By kind of device, what to install for it, and what there is where a driver is."""


@dataclasses.dataclass(frozen=True, slots=True)
class Provided:
    """The devices of one kind.

    Attributes:
        kind: What their names begin with.
        provider: Who provides them.
        distribution: Who brought the provider, with its version; empty for one made in place.
    """

    kind: str
    provider: DeviceProvider
    distribution: str = ""

    @classmethod
    def of(cls, kind: str, found: object, distribution: str) -> Self:
        """Check what an entry point refers to.

        Raises:
            PluginError: If that is no provider.
        """
        if not isinstance(found, DeviceProvider):
            raise PluginError(kind, "import", f"{type(found).__name__} is no DeviceProvider")
        return cls(kind, found, distribution)

    def devices(self) -> tuple[Device, ...] | PluginFailure:
        """Ask for the machine's devices, or say why nobody knows them."""
        try:
            found = tuple(in_driver(self.kind, "devices", self.provider.devices))
            strangers = [device.name for device in found if device.kind != self.kind]
        except PluginError as error:
            reason = error.reason
        except (TypeError, AttributeError) as error:
            reason = f"its answer is none of devices: {one_line(error)}"
        else:
            if not strangers:
                return found
            reason = f"it provides devices of kind {self.kind}, not {', '.join(strangers)}"
        return PluginFailure(name=self.kind, distribution=self.distribution, reason=reason)


@dataclasses.dataclass(frozen=True, slots=True)
class Providers:
    """Those that are installed beside this interpreter.

    Attributes:
        by_kind: The kinds of devices that can be had.
        failures: Entry points that provide none, with the reason.
    """

    by_kind: Mapping[str, Provided]
    failures: tuple[PluginFailure, ...] = ()

    @classmethod
    def discover(cls) -> Self:
        """Load every entry point of the group."""
        return cls(*discovered(DEVICE_ENTRY_POINT_GROUP, _load, "devices of this kind"))

    @classmethod
    def of(cls, providers: Mapping[str, DeviceProvider]) -> Self:
        """Make them of providers made in place, by kind: for tests and notebooks."""
        return cls({kind: Provided(kind, each) for kind, each in providers.items()})

    def replaced(self, references: Iterable[tuple[str, str]]) -> Self:
        """Return the same with other providers, each given as kind and `module:attribute`.

        Raises:
            PluginError: If one cannot be imported.
        """
        others = {kind: Provided.of(kind, referred(each, kind), each) for kind, each in references}
        return dataclasses.replace(self, by_kind={**self.by_kind, **others})

    def devices(self) -> tuple[Device, ...]:
        """Find all devices of this machine, as far as their providers say."""
        answers = [provided.devices() for provided in self.by_kind.values()]
        return tuple(device for answer in answers if not isinstance(answer, PluginFailure) for device in answer)

    def problems(self) -> tuple[PluginFailure, ...]:
        """Say which providers fail, be it only when they are asked for their devices."""
        answers = [provided.devices() for provided in self.by_kind.values()]
        return (*self.failures, *(answer for answer in answers if isinstance(answer, PluginFailure)))

    def open(self, name: str) -> DeviceStream:
        """Open a new stream of a device.

        Args:
            name: As targets name it, `"cuda:0"`.

        Raises:
            DeviceError: If it cannot be used.
        """
        kind = name.partition(":")[0]
        if kind not in self.by_kind:
            raise DeviceUnavailableError(name, self._why_none(kind), _install(kind))
        try:
            stream = self.by_kind[kind].provider.open(name)
        except DeviceError:
            raise
        except (Exception, SystemExit) as error:
            raise DeviceUnavailableError(name, f"its provider failed: {one_line(error)}") from error
        if not isinstance(stream, DeviceStream):
            raise DeviceUnavailableError(name, f"its provider gives {type(stream).__name__}, no DeviceStream")
        return stream

    def why_unusable(self, name: str) -> str:
        """Say why a device could not be opened, as far as can be said without starting it; empty if nothing is known.

        Args:
            name: As targets name it.
        """
        kind = name.partition(":")[0]
        if kind not in self.by_kind:
            return f"{self._why_none(kind)}. {_install(kind)}".strip()
        try:
            return in_driver(kind, "why_unusable", functools.partial(self.by_kind[kind].provider.why_unusable, name))
        except PluginError as error:
            return error.reason

    def unprovided(self) -> tuple[str, ...]:
        """Say of which kinds there is a driver here but no provider, and what to install."""
        kinds = [kind for kind, (_, driver) in _KNOWN.items() if kind not in self.by_kind and driver.exists()]
        return tuple(f"{kind}: {self.why_unusable(kind)}" for kind in kinds)

    @property
    def libraries(self) -> Libraries:
        """Shared libraries of which a process has room for one."""
        return Libraries(tuple(family for each in self.by_kind.values() for family in each.provider.library_families))

    def _why_none(self, kind: str) -> str:
        failed = [failure.reason for failure in self.failures if failure.name == kind]
        return (
            f"what provides devices of kind {kind} cannot be used: {failed[0]}"
            if failed
            else (f"nothing installed provides devices of kind {kind}")
        )


def _install(kind: str) -> str:
    return f"Install `{_KNOWN[kind][0]}`" if kind in _KNOWN else ""


def _load(entry: EntryPoint) -> Provided:
    return Provided.of(entry.name, in_driver(entry.name, "import", entry.load), distribution_of(entry))
