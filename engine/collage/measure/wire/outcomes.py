"""What a candidate is built and held to, and what building or measuring it comes to."""

from __future__ import annotations

import dataclasses
import enum
from typing import TypeAlias

from collage.documents.artifact_manifest import ArtifactManifest
from collage.measure.wire.wire_values import WireValue
from collage_core.contract import Obstacle


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BuildSettings:
    """The part of a `BuildContext` that is a value.

    Attributes:
        threads: CPU threads the kernel may use.
        effort: 0 (quick) to 2 (extensive).
        workspace_limit_bytes: Most scratch memory a variant may ask for.
        seed: For anything random.
        max_variants: How many of a candidate's variants are tried.
        deterministic: Whether variants that may give other bits each time are passed over.
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
        deterministic: Whether they did, and its artifact says that they always do.
        discarded: Why other variants were not considered.
        launch: As in `contract.Measurement`.
        launch_reason: As there.
        weight_copies: As there.
    """

    samples_us: tuple[float, ...]
    warmup_runs: int
    calls_per_sample: int
    variant: str = ""
    error: float = 0.0
    build_s: float = 0.0
    repeatable: bool = True
    deterministic: bool = False
    discarded: tuple[str, ...] = ()
    launch: str = ""
    launch_reason: str = ""
    weight_copies: int = 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A variant that lowered and loaded, and whose outputs are right if they were checked.

    Attributes:
        artifact: The variant.
        error: As in `Measured`; 0.0 if it was not checked.
        build_s: As there.
        discarded: As there.
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
class DeviceTimes:
    """What a device does for a plan beside its kernels, as measured: medians, from which figures are derived.

    Attributes:
        to_device: Bytes and microseconds of copies from pinned memory of the host, by the device's clock, each alone.
        from_device: Likewise into pinned memory of the host.
        within: Likewise within the device.
        graphs: Small copies within the device in a graph, and microseconds of a copy to the device of the smallest size
            in `to_device` with a launch of that graph right behind it; none where the device captures nothing.
        wait_us: What it takes the host to wait for a stream that is done, by the host's clock.
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
        reason: Why.
        obstacle: What sort of reason it is.
    """

    reason: str
    obstacle: Obstacle = Obstacle.OTHER


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
