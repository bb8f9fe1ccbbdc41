"""What a distribution brings that makes one kind of device usable: the group `collage.devices` of entry points.

The entry point's name is the kind, which the names of its devices begin with: `cuda` for `"cuda:0"`. It refers to an
object that is a `DeviceProvider`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from collage_core.contract.device import Device
from collage_core.contract.device_stream import DeviceStream

DEVICE_ENTRY_POINT_GROUP = "collage.devices"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LibraryFamily:
    """Shared libraries that belong together, and of which a process has room for one version.

    Attributes:
        stem: What their files' names begin with, behind `lib`: `"cudnn"` for `libcudnn_ops.so.9`.
        title: What people call them: `"cuDNN"`.
        distributions: What the names of Python distributions begin with that bring them.
        opens_parts: Whether a library opens others of the family by name, and does without those it does not find.
    """

    stem: str
    title: str
    distributions: tuple[str, ...] = ()
    opens_parts: bool = False


@runtime_checkable
class DeviceProvider(Protocol):
    """Devices of one kind on this machine. Called in the driver, in workers and in the user's process.

    Attributes:
        library_families: Libraries that kernels of such devices load.
    """

    @property
    def library_families(self) -> Sequence[LibraryFamily]:
        """Size in bytes."""

    def devices(self) -> Sequence[Device]:
        """Find the machine's devices of this kind, starting nothing on them; none where there is no driver."""

    def open(self, name: str) -> DeviceStream:
        """Open a new stream of a device.

        Args:
            name: As targets name it.

        Raises:
            DeviceError: If the device cannot be used; it says why and what to do.
        """

    def why_unusable(self, name: str) -> str:
        """Say why a device could not be opened, as far as that is known without starting it; empty if nothing is.

        Args:
            name: Of one of `devices`.
        """
