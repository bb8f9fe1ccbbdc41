"""What driver and worker say to each other: one frozen dataclass per kind of frame.

Structuring is strict: an unknown key, a missing key or another type is a `WireError`, never a guess. Bulk data
(models, weights, activations, artifact files) is named by blob; the bytes are in a store both sides share, or
are asked for with `Need` and sent with `Blobs`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from collage.measure.wire.outcomes import (
    BuildSettings,
    Built,
    DeviceTimes,
    Evaluated,
    Failed,
    Measured,
    Refused,
    Stage,
    Tolerance,
)
from collage.measure.wire.wire_values import WireFunction, WireValue
from collage_core.contract import Host, Protocol, Target

Message: TypeAlias = Any
"""An instance of one of the dataclasses in `MESSAGES`."""

# --- requests, driver to worker -------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ping:
    """Asks for a `Pong`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AskTargets:
    """Asks for `Targets` or `Refused`."""

    host: Host


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AskQuery:
    """Asks for `Opinion`."""

    target: Target
    function: WireFunction


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AskMeasure:
    """Asks for `Measured`, `Refused` or `Failed`.

    Attributes:
        target: Whose kernel.
        function: What to build.
        inputs: Values to run it on, in the order of its inputs.
        expected: What it should give, in the order of its outputs; None where that cannot be said (random numbers).
        build: How to build it.
        protocol: How to time it.
        tolerance: How exact it must be.
        deadline_s: When the driver kills the worker; the worker stops trying variants well before.
        variant: Name of the only variant to try; None for as many as `build.max_variants`.
        cold: Whether a plan finds its weights in the device's memory only: between two runs of this kernel other
            weights went through the device's cache. Otherwise the cache still has them.
    """

    target: Target
    function: WireFunction
    inputs: tuple[WireValue, ...]
    expected: tuple[WireValue | None, ...]
    build: BuildSettings
    protocol: Protocol
    tolerance: Tolerance
    deadline_s: float
    variant: str | None = None
    cold: bool = True


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AskBuild:
    """Asks for `Built`, `Refused` or `Failed`.

    Attributes:
        target: Whose kernel.
        function: What to build.
        variant: Name of the only variant wanted; None for the first that is right.
        inputs: Values to check it on; empty to load it only.
        expected: What it should give, as in `AskMeasure`.
        build: How to build it.
        tolerance: How exact it must be.
        deadline_s: When the driver kills the worker.
    """

    target: Target
    function: WireFunction
    variant: str | None
    inputs: tuple[WireValue, ...]
    expected: tuple[WireValue | None, ...]
    build: BuildSettings
    tolerance: Tolerance
    deadline_s: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AskEvaluate:
    """Asks for `Evaluated`, `Refused` or `Failed`."""

    target: Target
    function: WireFunction
    inputs: tuple[WireValue, ...]
    build: BuildSettings
    deadline_s: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AskDevice:
    """Asks what a device takes for copies, launches and waits: for `DeviceTimes` or `Failed`."""

    device: str


# --- answers and the rest of the conversation -----------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The worker's first words, with id 0.

    Attributes:
        toolchain: What it loaded.
        failure: Why it could not; empty if it could.
    """

    toolchain: str
    failure: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pong:
    """Answers `Ping`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The toolchain's targets, the default one first.

    Attributes:
        targets: The targets.
        libraries: Files of NVIDIA's libraries that were loaded to find out.
    """

    targets: tuple[Target, ...]
    libraries: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """Refused nodes with reasons; None when the library has no opinion."""

    refusals: dict[str, str] | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Sent while a request is worked on, so that a crash or a hang loses neither the stage nor the best so far."""

    stage: Stage
    variant: str = ""
    best: Measured | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Asks the other side for blobs this side lacks."""

    blobs: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Blobs:
    """Answers `Need`: the frame's attachments are the blobs, by name."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CacheGet:
    """The plugin asks the toolchain's blob cache in the tuning database; answered by `CacheValue`."""

    target: Target
    key: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CachePut:
    """The plugin keeps the attachment `value` there; answered by `CacheValue` once it is durable."""

    target: Target
    key: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CacheValue:
    """Answers `CacheGet` and `CachePut`: the attachment `value`, absent if there is none."""


# --- contenders: whole models, end to end ---------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AskPrepare:
    """Asks for `Prepared` or `Failed`.

    Attributes:
        call: `module:attribute` of a function that returns a call without arguments.
        arguments: The function's keyword arguments.
        paths: Folders to find the module in, besides the installed ones.
    """

    call: str
    arguments: dict[str, Any]
    paths: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The call is there and ran once.

    Attributes:
        first_us: How long that took.
    """

    first_us: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AskBurst:
    """Asks for `Burst` or `Failed`.

    Attributes:
        duration_s: How long to take samples, at least.
        min_runs: How many samples to take, at least.
        warmup_s: How long to run before, at least once: other contenders had the caches.
    """

    duration_s: float
    min_runs: int
    warmup_s: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """Time of each run, in the order taken."""

    samples_us: tuple[float, ...]


MESSAGES: Final[Mapping[str, type]] = {
    "ping": Ping,
    "ask_targets": AskTargets,
    "ask_query": AskQuery,
    "ask_measure": AskMeasure,
    "ask_build": AskBuild,
    "ask_evaluate": AskEvaluate,
    "ask_device": AskDevice,
    "hello": Hello,
    "pong": Pong,
    "targets": Targets,
    "opinion": Opinion,
    "measured": Measured,
    "built": Built,
    "evaluated": Evaluated,
    "device_times": DeviceTimes,
    "refused": Refused,
    "failed": Failed,
    "progress": Progress,
    "need": Need,
    "blobs": Blobs,
    "cache_get": CacheGet,
    "cache_put": CachePut,
    "cache_value": CacheValue,
    "ask_prepare": AskPrepare,
    "prepared": Prepared,
    "ask_burst": AskBurst,
    "burst": Burst,
}
