"""What driver and worker say to each other: one frozen dataclass per kind of frame.

Structuring is strict: an unknown key, a missing key or another type is a `WireError`, never a guess. Bulk data
(models, weights, activations, artifact files) is named by blob; the bytes are in a store both sides share, or
are asked for with `Need` and sent with `Blobs`.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from collage_core.contract import Host, Protocol, Requirement, Target, TensorSpec

Message: TypeAlias = Any
"""An instance of one of the dataclasses in `MESSAGES`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WireValue:
    """A value of a model: a tensor, strings, a sequence, or an optional that is absent.

    Attributes:
        kind: Which of these.
        dtype: ONNX name of the element type, for tensors.
        shape: Shape, for tensors and strings.
        blob: The elements, row-major, for tensors.
        strings: The elements, row-major, for strings.
        items: The members, for sequences.
    """

    kind: Literal["tensor", "strings", "sequence", "absent"]
    dtype: str = ""
    shape: tuple[int, ...] = ()
    blob: str = ""
    strings: tuple[str, ...] = ()
    items: tuple[WireValue, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WireFunction:
    """A `KernelFunction`.

    Attributes:
        name: Its global symbol.
        model: Blob of the serialized model; its large initializers are external data in the files `weights`.
        weights: Blobs of those initializers.
        inputs: Its inputs.
        outputs: Its outputs.
        composite: Label of the composite it is.
        constants: Content hash of each initializer, by name.
    """

    name: str
    model: str
    weights: tuple[str, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    composite: str
    constants: dict[str, str]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WireArtifact:
    """An `Artifact`; its files are blobs by file name."""

    files: dict[str, str]
    metadata: dict[str, Any]
    requires: tuple[Requirement, ...]
    constants: dict[str, str]
    workspace_bytes: int
    variant: str
    capturable: bool
    deterministic: bool
    dynamic: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BuildSettings:
    """The part of a `BuildContext` that is a value.

    Attributes:
        threads: CPU threads the kernel may use.
        effort: 0 (quick) to 2 (extensive).
        workspace_limit_bytes: Most scratch memory a variant may ask for.
        seed: For anything random.
        launch: How kernels are launched when deployed.
        max_variants: How many of a candidate's variants are tried.
    """

    threads: int
    effort: int = 0
    workspace_limit_bytes: int = 1 << 30
    seed: int = 0
    launch: str = "eager"
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


# --- what a candidate's build or measurement comes to ---------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The fastest variant whose outputs are right.

    Attributes:
        samples_us: As in `contract.Measurement`.
        warmup_runs: As there.
        calls_per_sample: As there.
        variant: Its name.
        error: Largest error of its floating-point outputs, relative to the scale of each; 0.0 without such.
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
    """The toolchain's targets, the default one first."""

    targets: tuple[Target, ...]


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
    "hello": Hello,
    "pong": Pong,
    "targets": Targets,
    "opinion": Opinion,
    "measured": Measured,
    "built": Built,
    "evaluated": Evaluated,
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
