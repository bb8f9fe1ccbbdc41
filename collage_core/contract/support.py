"""Answers to "can you take this?": a value, with the reason when the answer is no."""

from __future__ import annotations

import dataclasses
from typing import Literal


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

    Examples:
        >>> bool(Unsupported("needs AVX512_BF16"))
        False
    """

    reason: str

    def __post_init__(self) -> None:
        if not self.reason:
            raise ValueError("a refusal needs a reason")

    def __bool__(self) -> Literal[False]:
        return False
