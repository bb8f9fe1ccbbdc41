"""Answers to "can you take this?": a value, with the reason when the answer is no."""

from __future__ import annotations

import dataclasses
import enum
from typing import Literal


class Obstacle(enum.StrEnum):
    """What stands in the way, for programs: what a person does about it is in the reason.

    Attributes:
        OTHER: Nothing of what follows, or it was not said.
        NO_DEVICE: There is no such device here, or its driver is not installed, so that it cannot be seen.
        DRIVER_TOO_OLD: Older than the library, or all it comes in, needs.
        COMPUTE_CAPABILITY: The device is there and cannot do what is asked of it.
        NO_LIBRARY: It is not installed, or cannot be loaded.
        LIBRARY_VERSION: It is there in a version that will not do.
    """

    OTHER = "other"
    NO_DEVICE = "no device"
    DRIVER_TOO_OLD = "driver too old"
    COMPUTE_CAPABILITY = "compute capability"
    NO_LIBRARY = "no library"
    LIBRARY_VERSION = "library version"


@dataclasses.dataclass(frozen=True, slots=True)
class Supported:
    """The toolchain takes it. True in a boolean context."""

    def __bool__(self) -> Literal[True]:
        return True


@dataclasses.dataclass(frozen=True, slots=True)
class Unsupported:
    """The toolchain refuses. False in a boolean context.

    Attributes:
        reason: Why, in words a user can act on: `"k=30 is not a multiple of 8"`.
        obstacle: What sort of reason it is, where it is about the machine.

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
