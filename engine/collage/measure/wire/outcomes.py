"""Settings and requirements of a candidate, and the outcomes of building or measuring it."""

from __future__ import annotations

import dataclasses
import enum
import statistics
from typing import TypeAlias

from collage.documents.artifact_manifest import ArtifactManifest
from collage.measure.wire.wire_values import WireValue
from collage.reference.judge import USUAL_ERROR
from collage.store import block_times_us
from collage_core.contract import Block, KernelProfile, Obstacle


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BuildSettings:
    """The serialisable part of a `BuildContext`.

    Attributes:
        threads: CPU threads the kernel may use.
        effort: 0 (quick) to 2 (extensive).
        workspace_limit_bytes: Most scratch memory a variant may request.
        seed: Seed for anything random.
        max_variants: Number of a candidate's variants that are tried.
        deterministic: Whether variants that may give different bits from run to run are skipped.
    """

    threads: int
    effort: int = 0
    workspace_limit_bytes: int = 1 << 30
    seed: int = 0
    max_variants: int = 1
    deterministic: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How far a kernel's outputs may be from the reference's.

    Attributes:
        relative: Largest error of floating-point tensors; see `Discrepancy`.
        mismatched: Largest share of differing elements of integer and boolean tensors of which it is not known what
            decides them.
    """

    relative: float = USUAL_ERROR
    mismatched: float = USUAL_ERROR

    @property
    def is_of_correct_kernels(self) -> bool:
        """Whether each element has to be correct, as `Judge` defines it: nobody asked for a larger error than usual."""
        return self.relative <= USUAL_ERROR


class Stage(enum.Enum):
    """Stage of a worker's task."""

    START = "start"
    TARGETS = "targets"
    QUERY = "query"
    LOWER = "lower"
    LOAD = "load"
    BIND = "bind"
    RUN = "run"
    CHECK = "check"
    MEASURE = "measure"
    PROFILE = "profile"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The fastest variant with correct outputs.

    Attributes:
        samples_us: As in `contract.Measurement`.
        blocks: As in `contract.Measurement`.
        warmup_runs: As in `contract.Measurement`.
        calls_per_sample: As in `contract.Measurement`.
        variant: Name of the variant.
        error: Largest error of its floating-point outputs, relative to the scale of each; 0.0 if it has none. Outputs
            that depend on quantisation rounding are excluded.
        build_s: Seconds spent building all variants.
        timed_s: Seconds spent timing all variants.
        waited_s: Those of them spent waiting for other load to go.
        repeatable: Whether two runs gave the same bits.
        deterministic: Whether two runs gave the same bits and the artifact declares that they always do.
        discarded: Why other variants were not considered.
        launch: As in `contract.Measurement`.
        launch_reason: As in `contract.Measurement`.
        weight_copies: As in `contract.Measurement`.
    """

    samples_us: tuple[float, ...]
    warmup_runs: int
    calls_per_sample: int
    variant: str = ""
    error: float = 0.0
    build_s: float = 0.0
    timed_s: float = 0.0
    waited_s: float = 0.0
    repeatable: bool = True
    deterministic: bool = False
    discarded: tuple[str, ...] = ()
    launch: str = ""
    launch_reason: str = ""
    weight_copies: int = 1
    blocks: tuple[Block, ...] = ()

    def is_faster_than(self, best: Measured) -> bool:
        """Compare with a variant that was timed before it, both at the speed that the machine has now."""
        speed_us = self.blocks[-1].calibration_us if self.blocks else None
        mine, other = (
            statistics.median(block_times_us(each.samples_us, each.blocks, speed_us)) for each in (self, best)
        )
        return mine < other


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A variant that lowered and loaded, and whose outputs are correct if they were checked.

    Attributes:
        artifact: The variant.
        error: As in `Measured`; 0.0 if it was not checked.
        build_s: As in `Measured`.
        discarded: As in `Measured`.
    """

    artifact: ArtifactManifest
    error: float = 0.0
    build_s: float = 0.0
    discarded: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """Outputs of a function run once, in the order of its outputs."""

    outputs: tuple[WireValue, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Outputs of a function in each of several runs, in the order of its outputs."""

    runs: tuple[tuple[WireValue, ...], ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """Where the time of a kernel goes.

    Attributes:
        profile: The toolchain's own profile, by the names of the function's nodes.
        variant: Name of the variant that was profiled.
    """

    profile: KernelProfile
    variant: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTimes:
    """Measured times of a device's work beside kernels: medians, from which figures are derived.

    Attributes:
        to_device: Bytes and microseconds of copies from pinned host memory, by the device's clock, each alone.
        from_device: Bytes and microseconds of copies into pinned host memory.
        within: Bytes and microseconds of copies within the device.
        graphs: Number of small copies within the device in a graph, and microseconds of a copy to the device of the
            smallest size in `to_device` followed directly by a launch of that graph; empty where the device captures
            nothing.
        wait_us: Time for the host to wait for an idle stream, by the host's clock.
        cache_bytes: As `DeviceStream.cache_bytes`.
    """

    to_device: tuple[tuple[int, float], ...]
    from_device: tuple[tuple[int, float], ...]
    within: tuple[tuple[int, float], ...]
    graphs: tuple[tuple[int, float], ...]
    wait_us: float
    cache_bytes: int

    def __post_init__(self) -> None:
        lines = [self.to_device, self.from_device, self.within, *([self.graphs] if self.graphs else [])]
        for points in lines:
            if len({size for size, _ in points}) < 2 or not all(us >= 0 for _, us in points):
                raise ValueError(f"no line goes through {points}")
        if self.wait_us < 0 or self.cache_bytes < 0:
            raise ValueError(f"neither time nor size is negative: {self}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The toolchain does not take the function, or is unusable here.

    Attributes:
        reason: Reason for the refusal.
        obstacle: Category of the reason.
    """

    reason: str
    obstacle: Obstacle = Obstacle.OTHER


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The toolchain took the function and failed.

    Attributes:
        stage: Stage of the failure.
        reason: Description: an exception, a crash, a hang, wrong values.
    """

    stage: Stage
    reason: str


Outcome: TypeAlias = Measured | Refused | Failed
