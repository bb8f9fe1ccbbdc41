"""What one run of a package gave."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from collage.report.facts.device_facts import DeviceWorkFacts
from collage.report.facts.record import SCHEMA_VERSION

if TYPE_CHECKING:
    from collage.runtime import Profile


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OutputFacts:
    """One output in a few numbers.

    Attributes:
        name: Its name.
        dtype: Element type, or what it is instead of a tensor.
        shape: Its shape; empty if it has none.
        range: Smallest and largest element; None for what has no order, or for no elements.
        mean: Mean of the elements; None likewise.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] = ()
    range: tuple[float, float] | None = None
    mean: float | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """Time of one kernel in place.

    Attributes:
        name: Call site, or what the host did.
        target: Target that ran it.
        nodes: Number of nodes it computes.
        median_us: Median over the profiled runs.
    """

    name: str
    target: str
    nodes: int
    median_us: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What `run` shows.

    Attributes:
        package: Name of the package.
        seed: What inputs were drawn with; None if they were given.
        outputs: In the model's order.
        steps: In execution order; empty if nothing was profiled.
        device_work: What each run has devices do.
        notes: What else the reader should know.
    """

    schema_version: int = SCHEMA_VERSION
    package: str
    seed: int | None
    outputs: tuple[OutputFacts, ...]
    steps: tuple[StepFacts, ...] = ()
    device_work: DeviceWorkFacts = dataclasses.field(default_factory=DeviceWorkFacts)
    notes: tuple[str, ...] = ()


def describe_outputs(outputs: Mapping[str, Any]) -> tuple[OutputFacts, ...]:
    """Outputs by name, arrays or whatever a model returns, as facts."""
    return tuple(_describe(name, value) for name, value in outputs.items())


def describe_profile(profile: Profile) -> tuple[StepFacts, ...]:
    """A profile's steps as facts."""
    return tuple(
        StepFacts(name=step.name, target=step.target, nodes=len(step.nodes), median_us=step.median_us)
        for step in profile.steps
    )


def _describe(name: str, value: Any) -> OutputFacts:
    if not hasattr(value, "dtype"):
        count = f" of {len(value)}" if isinstance(value, Sequence) else ""
        return OutputFacts(name=name, dtype=f"{type(value).__name__}{count}")
    dtype, shape = str(value.dtype), tuple(value.shape)
    if value.size == 0 or value.dtype.kind in "OUSc":
        return OutputFacts(name=name, dtype=dtype, shape=shape)
    # also ml_dtypes' bfloat16 and float8 (kind V), of which double is a superset
    wide = value.astype("float64")
    return OutputFacts(
        name=name,
        dtype=dtype,
        shape=shape,
        range=(float(wide.min()), float(wide.max())),
        mean=float(wide.mean()),
    )
