"""What machines of a runner are asked, and what they answer: frames of JSON, one per job.

A job names toolchains that are installed there, and brings models, values and options. It brings no code, no paths, no
place to write to and no credentials: tuning databases are those of the machine.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from collage.errors import WireError
from collage.measure.wire.codec import Codec
from collage.measure.wire.frames import FrameParser
from collage.measure.wire.messages import AskMeasure
from collage.measure.wire.outcomes import Failed, Measured, Refused
from collage_core.contract import Host, Target
from collage_core.ir.values.size_range import Shape


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AskDescription:
    """Requests `Description`.

    Attributes:
        toolchains: Toolchains whose targets to list; all that are installed if None.
    """

    toolchains: tuple[str, ...] | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A machine and what is installed there.

    Attributes:
        host: The machine, all of its cores.
        leased: The machine as processes of this lease see it: with the cores that they may use.
        boot: What two parts of one machine have in common, and no two machines have.
        judge: Version of what calls kernels right or wrong; see `judge_version`.
        targets: Targets of each toolchain that has some.
        plugins: Version of each toolchain's plugin.
        unusable: Why a toolchain has none.
    """

    host: Host
    leased: Host
    boot: str
    judge: int
    targets: Mapping[str, tuple[Target, ...]]
    plugins: Mapping[str, str]
    unusable: Mapping[str, str]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AskInterference:
    """Requests `Interference`: fixed work, run over and over.

    Attributes:
        threads: Threads that work at once.
        duration_s: For how long, in seconds.
    """

    threads: int
    duration_s: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Interference:
    """When fixed work began, and how long it took.

    Attributes:
        runs: Beginning and duration of each run, in seconds of the machine's monotonic clock.
    """

    runs: tuple[tuple[float, float], ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AskOptimize:
    """Requests `OptimizeDone` or `Failed`.

    Attributes:
        name: Name of the model, for reports.
        model: Blob of the model.
        files: Blobs of the files beside it that have its weights, by relative path.
        toolchains: See `OptimizeOptions`; so the others.
        exclude: See `OptimizeOptions`.
        input_shapes: See `OptimizeOptions`.
        preset: See `OptimizeOptions`.
        search: See `OptimizeOptions`.
        budget_s: See `OptimizeOptions`.
        max_error: See `OptimizeOptions`.
        threads: See `OptimizeOptions`.
        seed: See `OptimizeOptions`.
        deadline_s: Seconds after which it is ended.
    """

    name: str
    model: str
    files: Mapping[str, str]
    toolchains: str | None
    exclude: tuple[str, ...]
    input_shapes: Mapping[str, Shape]
    preset: str
    search: str
    budget_s: float | None
    max_error: float | None
    threads: int | None
    seed: int
    deadline_s: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeDone:
    """A package.

    Attributes:
        package: Its blob.
    """

    package: str


JOBS: Final[Mapping[str, type]] = {
    "ask_description": AskDescription,
    "description": Description,
    "ask_measure": AskMeasure,
    "measured": Measured,
    "refused": Refused,
    "failed": Failed,
    "ask_interference": AskInterference,
    "interference": Interference,
    "ask_optimize": AskOptimize,
    "optimize_done": OptimizeDone,
}
"""The class of each kind of job and answer."""

CODEC: Final = Codec(JOBS)
"""Reads and writes them."""


def is_inside(name: str) -> bool:
    """Return whether a relative path names a file in a folder or below it, whatever is there.

    Examples:
        >>> is_inside("my model.onnx"), is_inside("data/w.bin"), is_inside("../w.bin"), is_inside("/etc/passwd")
        (True, True, False, False)
    """
    parts = name.split("/")
    return "\0" not in name and not any(part in ("", ".", "..") for part in parts)


def to_bytes(message: Any) -> bytes:
    """Return a job or an answer as bytes.

    Args:
        message: An instance of a class in `JOBS`.
    """
    return CODEC.encode(message, 0).encode()


def from_bytes(data: bytes) -> Any:
    """Return the job or the answer that bytes are.

    Raises:
        WireError: If they are none.
    """
    parser = FrameParser()
    parser.feed(data)
    frames = list(parser.frames())
    if len(frames) != 1 or frames[0].attachments or parser.mid_frame:
        raise WireError("a job is one frame without attachments")
    return CODEC.decode(frames[0])
