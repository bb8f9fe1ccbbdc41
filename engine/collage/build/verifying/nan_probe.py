"""What a plan makes of NaN: one more run, with a NaN in each input, beside the reference's.

Kernels may turn NaN into numbers: a maximum with zero that compares the other way around, fused into a convolution,
gives zero. No plan is refused for that; the report says it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from collage.reference.discrepancy import is_floating
from collage.report.facts.record import NAN_AS_EXPECTED

ENDED = "a NaN in each input makes the plan fail"
"""What is said of a plan that does not run on NaN."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NanProbe:
    """A run with NaN.

    Attributes:
        inputs: Inputs of the model, by name; those of floating-point numbers hold one NaN.
        expected: The reference's outputs, by name; at least one holds NaN.
    """

    inputs: Mapping[str, Any]
    expected: Mapping[str, Any]

    @classmethod
    def of(
        cls, inputs: Mapping[str, Any], reference: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    ) -> NanProbe | None:
        """Return the probe of a model; None if it takes no floating-point numbers, or lets no NaN through.

        Args:
            inputs: Inputs, by name.
            reference: Returns the reference's outputs for other inputs.
        """
        spoilt = {name: _with_nan(value) if _is_numbers(value) else value for name, value in inputs.items()}
        if not any(map(_is_numbers, inputs.values())):
            return None
        expected = {name: value for name, value in reference(spoilt).items() if _is_numbers(value)}
        return cls(inputs=spoilt, expected=expected) if any(map(_count, expected.values())) else None

    def found(self, made: Mapping[str, Any]) -> str:
        """Return a sentence on what a plan made of the inputs.

        Args:
            made: Its outputs, by name.
        """
        unlike = []
        for name, right in self.expected.items():
            value = np.asarray(made[name])
            if value.shape != right.shape or not np.array_equal(np.isnan(value), np.isnan(right)):
                unlike.append(f"{_count(value)} elements of output {name!r} are NaN instead of {_count(right)}")
        return f"with a NaN in each input, {'; '.join(unlike)}" if unlike else NAN_AS_EXPECTED


def _is_numbers(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.size > 0 and value.dtype.kind != "c" and is_floating(value)


def _with_nan(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return numbers with NaN in the middle."""
    spoilt = value.copy()
    spoilt.reshape(-1)[value.size // 2] = np.nan
    return spoilt


def _count(value: Any) -> int:
    return int(np.count_nonzero(np.isnan(np.asarray(value))))
