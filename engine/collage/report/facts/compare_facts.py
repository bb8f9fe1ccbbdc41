"""Facts about the differences between a package's values and the reference's."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from collage.report.facts.record import SCHEMA_VERSION


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ValueComparison:
    """One tensor compared with its expected value.

    Attributes:
        name: Name of the value.
        place: `"output"` of the model, or `"boundary"` between kernels.
        region: Kernel that produces it; empty if none does.
        target: Target of that kernel.
        error: Largest difference relative to the tensor's scale; for integers, booleans and strings the share of
            elements that differ.
        passed: Whether the error is within the tolerance.
        reason: Why the error is infinite (another shape, a NaN), or another remark; usually empty.
    """

    name: str
    place: str
    region: str = ""
    target: str = ""
    error: float
    passed: bool
    reason: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CompareReport:
    """A package against the reference on one set of inputs.

    Attributes:
        model: Name of the model file.
        package: Name of the package.
        rtol: Largest error allowed, relative to a tensor's scale.
        atol: Largest absolute difference allowed whatever the scale.
        seed: Seed of the random inputs; None if inputs were given.
        values: Boundaries in execution order, then outputs.
        unchecked: Reason for each node the reference could not compute itself, by node name.
    """

    schema_version: int = SCHEMA_VERSION
    model: str
    package: str
    rtol: float
    atol: float
    seed: int | None = None
    values: tuple[ValueComparison, ...]
    unchecked: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether every value is within the tolerance; False if there are no values."""
        return bool(self.values) and all(value.passed for value in self.values)

    @property
    def max_error(self) -> float:
        """Largest error of any value."""
        return max((value.error for value in self.values), default=0.0)
