"""What a candidate is built and held to, and what building or measuring it comes to."""

from __future__ import annotations

import dataclasses
import enum
from typing import TypeAlias

from collage_core.measure.wire_values import WireArtifact, WireValue


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BuildSettings:
    """The part of a `BuildContext` that is a value.

    Attributes:
        threads: CPU threads the kernel may use.
        effort: 0 (quick) to 2 (extensive).
        workspace_limit_bytes: Most scratch memory a variant may ask for.
        seed: For anything random.
        max_variants: How many of a candidate's variants are tried.
    """

    threads: int
    effort: int = 0
    workspace_limit_bytes: int = 1 << 30
    seed: int = 0
    max_variants: int = 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How far a kernel's outputs may be from the reference's.

    Attributes:
        relative: Largest difference of floating-point tensors, relative to the tensor's largest magnitude.
        mismatched: Largest share of differing elements of integer and boolean tensors; two correct
            implementations disagree where scores tie within rounding.
    """

    relative: float = 1e-3
    mismatched: float = 1e-3


class Stage(enum.Enum):
    """What a worker was doing."""

    START = "start"
    TARGETS = "targets"
    QUERY = "query"
    LOWER = "lower"
    LOAD = "load"
    BIND = "bind"
    RUN = "run"
    CHECK = "check"
    MEASURE = "measure"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The fastest variant whose outputs are right.

    Attributes:
        samples_us: As in `contract.Measurement`.
        warmup_runs: As there.
        calls_per_sample: As there.
        variant: Its name.
        error: Largest error of its floating-point outputs, relative to the scale of each; 0.0 without such. Those in
            which rounding to few bits has a say do not count.
        build_s: Seconds the building of all variants took.
        repeatable: Whether two runs gave the same bits.
        discarded: Why other variants were not considered.
    """

    samples_us: tuple[float, ...]
    warmup_runs: int
    calls_per_sample: int
    variant: str = ""
    error: float = 0.0
    build_s: float = 0.0
    repeatable: bool = True
    discarded: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A variant that lowered and loaded, and whose outputs are right if they were checked.

    Attributes:
        artifact: The variant.
        error: As in `Measured`; 0.0 if it was not checked.
        build_s: As there.
        discarded: As there.
    """

    artifact: WireArtifact
    error: float = 0.0
    build_s: float = 0.0
    discarded: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """Outputs of a function run once, in the order of its outputs."""

    outputs: tuple[WireValue, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The toolchain does not take the function, or is unusable here."""

    reason: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The toolchain took the function and did not deliver.

    Attributes:
        stage: Where it failed.
        reason: How: an exception, a crash, a hang, wrong numbers.
    """

    stage: Stage
    reason: str


Outcome: TypeAlias = Measured | Refused | Failed
