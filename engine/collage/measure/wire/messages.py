"""Messages between driver and worker: one frozen dataclass per kind of frame.

Structuring is strict: an unknown key, a missing key or a wrong type is a `WireError`. Bulk data (models, weights,
activations, artifact files) is named by blob; the bytes are in a store both sides share, or are requested with `Need`
and sent with `Blobs`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from collage.measure.wire.model_messages import (
    AskNode,
    AskPrepareModel,
    AskReference,
    ModelFailed,
    ModelPrepared,
    NodeValues,
    ReferenceValues,
)
from collage.measure.wire.outcomes import (
    BuildSettings,
    Built,
    DeviceTimes,
    Evaluated,
    Failed,
    Measured,
    Profiled,
    Refused,
    Series,
    Stage,
    Tolerance,
)
from collage.measure.wire.wire_values import WireFunction, WireValue
from collage_core.contract import Host, Protocol, Target

Message: TypeAlias = Any
"""An instance of one of the dataclasses in `MESSAGES`."""

# --- requests, driver to worker -------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AskTargets:
    """Requests `Targets` or `Refused`."""

    host: Host


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AskQuery:
    """Requests an `Opinion`."""

    target: Target
    function: WireFunction


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AskMeasure:
    """Requests `Measured`, `Refused` or `Failed`.

    Attributes:
        target: Target of the kernel.
        function: The function to build.
        inputs: Input values, in the order of its inputs.
        expected: Expected values, in the order of its outputs; None where they are undefined (random numbers).
        behind: Values inside the function that its choices are between, by name; see `reference.choices`.
        build: Build settings.
        protocol: Timing protocol.
        tolerance: Required accuracy.
        deadline_s: Seconds after which the driver kills the worker; the worker stops trying variants well before.
        variant: Name of the only variant to try; None for as many as `build.max_variants`.
        cold: Whether a plan finds its weights in device memory only, because other weights pass through the device's
            cache between two runs of this kernel. Otherwise they are still in the cache.
        bytes_beside: Memory that a plan's other kernels touch on the host between two runs of this kernel; 0 if there
            are none.
        as_used: Whether to run it twice to judge it, and to judge it again after it was timed, as plans use it.
        load_wait_s: Seconds that other load is waited for at most while it is timed; 0 for not at all.
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
    bytes_beside: int = 0
    as_used: bool = True
    load_wait_s: float = 0.0
    behind: Mapping[str, WireValue] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AskBuild:
    """Requests `Built`, `Refused` or `Failed`.

    Attributes:
        target: Target of the kernel.
        function: The function to build.
        variant: Name of the only variant wanted; None for the first correct one.
        inputs: Values to check it on; empty to load it only.
        expected: Expected values, as in `AskMeasure`.
        behind: As in `AskMeasure`.
        build: Build settings.
        tolerance: Required accuracy.
        deadline_s: Seconds after which the driver kills the worker.
    """

    target: Target
    function: WireFunction
    variant: str | None
    inputs: tuple[WireValue, ...]
    expected: tuple[WireValue | None, ...]
    build: BuildSettings
    tolerance: Tolerance
    deadline_s: float
    behind: Mapping[str, WireValue] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AskEvaluate:
    """Requests `Evaluated`, `Refused` or `Failed`."""

    target: Target
    function: WireFunction
    inputs: tuple[WireValue, ...]
    build: BuildSettings
    deadline_s: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AskSeries(AskEvaluate):
    """Requests `Series`, `Refused` or `Failed`: a function built once and run several times.

    Attributes:
        further: Inputs of each run after the first, in the order of the function's inputs.
    """

    further: tuple[tuple[WireValue, ...], ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AskHistograms(AskSeries):
    """Requests `Evaluated`, `Refused` or `Failed`: a series of which only histograms of the outputs are returned.

    The answer has the counts of each output over all runs, as `collage.values.histogram.count_elements` returns them.

    Attributes:
        largest: Largest magnitude of each output, above zero.
        bins: Number of bins, which is even.
    """

    largest: tuple[float, ...]
    bins: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AskProfile(AskEvaluate):
    """Requests `Profiled`, `Refused` or `Failed`: an evaluation of which the toolchain says where its time goes.

    Attributes:
        variant: Name of the variant to profile; None for the first that works.
        runs: Number of runs to take the times from.
    """

    variant: str | None
    runs: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AskDevice:
    """Requests `DeviceTimes` or `Failed`: a device's times for copies, launches and waits."""

    device: str


# --- answers and the rest of the conversation -----------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The worker's first message, with id 0.

    Attributes:
        toolchain: The toolchain it loaded.
        failure: Why loading failed; empty if it succeeded.
    """

    toolchain: str
    failure: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The toolchain's targets, the default one first.

    Attributes:
        targets: The targets.
        libraries: Files of NVIDIA's libraries that were loaded to list the targets.
    """

    targets: tuple[Target, ...]
    libraries: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """Refused nodes with reasons; None when the library has no opinion."""

    refusals: dict[str, str] | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Sent during a request, so that a crash or a hang loses neither the stage nor the best variant so far."""

    stage: Stage
    variant: str = ""
    best: Measured | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Requests blobs that the sender lacks."""

    blobs: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Blobs:
    """Answers `Need`: the frame's attachments are the blobs, by name."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CacheGet:
    """Reads from the toolchain's blob cache in the tuning database, for the plugin; answered by `CacheValue`."""

    target: Target
    key: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CachePut:
    """Stores the attachment `value` in that cache, for the plugin; answered by `CacheValue` once it is durable."""

    target: Target
    key: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CacheValue:
    """Answers `CacheGet` and `CachePut`: the attachment `value`, absent if there is none."""


# --- contenders: whole models, end to end ---------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AskPrepare:
    """Requests `Prepared` or `Failed`.

    Attributes:
        call: `module:attribute` of a function that returns a call without arguments.
        arguments: The function's keyword arguments.
        paths: Extra folders on the module search path.
    """

    call: str
    arguments: dict[str, Any]
    paths: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The call is ready and ran once."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AskBurst:
    """Requests `Burst` or `Failed`.

    Attributes:
        duration_s: Least time to take samples for, in seconds; half for each kind of runs if there are both.
        min_runs: Least number of samples.
        warmup_s: Seconds of warm-up, at least one run: other contenders have used the caches.
        as_called: Whether runs as users call them are timed, too.
        in_parts: Whether runs are also made with a clock between their steps, for as long as the call's samples.
        calibration_threads: Threads of the calibration kernel, which runs before and after; 0 to run none.
        streams: Runs that are made side by side, each in a thread and a session of its own, for `duration_s` besides;
            1 for none such.
    """

    duration_s: float
    min_runs: int
    warmup_s: float
    as_called: bool = False
    in_parts: bool = False
    calibration_threads: int = 0
    streams: int = 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """Time of each run, in the order taken.

    Attributes:
        samples_us: Of the call.
        called_us: Of runs as users call them; empty if they were not asked for, or the contender has no such call.
        parts_us: Median time of each step of a run in its place, by name; empty if they were not asked for, or the
            contender has no steps.
        calibration_us: Time of the calibration kernel, on average; 0 if it did not run.
        per_s: Runs per second of all streams together; 0 if they were not asked for, or the contender has one only.
        others_had: Processors that others had, on average, while the contender wanted them.
    """

    samples_us: tuple[float, ...]
    called_us: tuple[float, ...] = ()
    parts_us: Mapping[str, float] = dataclasses.field(default_factory=dict)
    calibration_us: float = 0.0
    per_s: float = 0.0
    others_had: float = 0.0


MESSAGES: Final[Mapping[str, type]] = {
    "ask_targets": AskTargets,
    "ask_query": AskQuery,
    "ask_measure": AskMeasure,
    "ask_build": AskBuild,
    "ask_evaluate": AskEvaluate,
    "ask_series": AskSeries,
    "ask_histograms": AskHistograms,
    "ask_profile": AskProfile,
    "ask_device": AskDevice,
    "hello": Hello,
    "targets": Targets,
    "opinion": Opinion,
    "measured": Measured,
    "built": Built,
    "evaluated": Evaluated,
    "series": Series,
    "profiled": Profiled,
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
    "ask_prepare_model": AskPrepareModel,
    "model_prepared": ModelPrepared,
    "ask_reference": AskReference,
    "reference_values": ReferenceValues,
    "ask_node": AskNode,
    "node_values": NodeValues,
    "model_failed": ModelFailed,
}
