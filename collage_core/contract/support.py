"""Support decisions as values, with the reason in case of refusal."""

from __future__ import annotations

import dataclasses
import enum
from typing import Literal


class Obstacle(enum.StrEnum):
    """Machine-readable cause of a refusal; the advice to the user is in the reason.

    Attributes:
        OTHER: None of the following, or unspecified.
        NO_DEVICE: There is no such device here, or its driver is not installed, so that the device cannot be
            detected.
        DRIVER_TOO_OLD: The driver is older than the library, or every available build of it, requires.
        COMPUTE_CAPABILITY: The device is present but lacks a required capability.
        NO_LIBRARY: The library is not installed, or cannot be loaded.
        LIBRARY_VERSION: The library is installed in an unsuitable version.
    """

    OTHER = "other"
    NO_DEVICE = "no device"
    DRIVER_TOO_OLD = "driver too old"
    COMPUTE_CAPABILITY = "compute capability"
    NO_LIBRARY = "no library"
    LIBRARY_VERSION = "library version"


@dataclasses.dataclass(frozen=True, slots=True)
class Supported:
    """The toolchain accepts. True in a boolean context."""

    def __bool__(self) -> Literal[True]:
        return True


@dataclasses.dataclass(frozen=True, slots=True)
class Unsupported:
    """The toolchain refuses. False in a boolean context.

    Attributes:
        reason: Reason that a user can act on: `"k=30 is not a multiple of 8"`.
        obstacle: Category of the reason, if it concerns the machine.

    Examples:
        >>> bool(Unsupported("needs AVX512_BF16"))
        False
    """

    reason: str
    obstacle: Obstacle = Obstacle.OTHER

    def __post_init__(self) -> None:
        if not self.reason:
            raise ValueError("a refusal needs a reason")

    def __bool__(self) -> Literal[False]:
        return False
