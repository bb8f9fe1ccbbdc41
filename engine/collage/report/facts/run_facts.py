"""Facts about one run of a package."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from collage.report.facts.device_facts import DeviceWorkFacts
from collage.report.facts.record import SCHEMA_VERSION
from collage.runtime.kernels.reports import KernelReport

if TYPE_CHECKING:
    from collage.runtime import Profile


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OutputFacts:
    """Summary of one output.

    Attributes:
        name: Name of the output.
        dtype: Element type, or the kind of value if it is not a tensor.
        shape: Its shape; empty if it has none.
        range: Smallest and largest element; None for unordered types, or for no elements.
        mean: Mean of the elements; None in the same cases.
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
        name: Call site, or a description of the host's work.
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
    """Results of `run`.

    Attributes:
        package: Name of the package.
        seed: Seed of the random inputs; None if inputs were given.
        outputs: In the model's order.
        steps: In execution order; empty if nothing was profiled.
        device_work: Device work of each run.
        notes: Other information for the reader.
        substitutes: Kernels that run in place of packaged ones that do not load here.
    """

    schema_version: int = SCHEMA_VERSION
    package: str
    seed: int | None
    outputs: tuple[OutputFacts, ...]
    steps: tuple[StepFacts, ...] = ()
    device_work: DeviceWorkFacts = dataclasses.field(default_factory=DeviceWorkFacts)
    notes: tuple[str, ...] = ()
    substitutes: tuple[KernelReport, ...] = ()


def describe_outputs(outputs: Mapping[str, Any]) -> tuple[OutputFacts, ...]:
    """Describe outputs by name as facts; values are arrays or any other values that a model returns."""
    return tuple(_describe(name, value) for name, value in outputs.items())


def describe_profile(profile: Profile) -> tuple[StepFacts, ...]:
    """Convert a profile's steps into facts."""
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
