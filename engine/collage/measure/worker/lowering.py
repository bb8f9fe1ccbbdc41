"""The variants of one candidate, lowered one at a time in its toolchain's worker; what took long is kept."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from collage.devices.opening import Devices, is_lost
from collage.measure.wire.messages import AskBuild, AskEvaluate, AskMeasure, Progress
from collage.measure.wire.outcomes import BuildSettings, Failed, Refused, Stage
from collage.measure.wire.wire_values import WireFunction
from collage.measure.worker.failing import text_of
from collage_core.contract import Artifact, BlobCache, BuildContext, Host, KernelFunction, Target, Unsupported
from collage_core.errors import CollageError
from collage_core.registry import Toolchain

Ask: TypeAlias = AskMeasure | AskBuild | AskEvaluate

_NOT_DETERMINISTIC = "equal inputs may give other bits each time, and --deterministic asks for the same"

_SHARE_FOR_VARIANTS = 0.5
"""Share of the deadline after which no further variant is begun, so that a hang does not cost the others."""

_MOST_BYTES: Final = 256 << 20
_MEMORY_SHARE: Final = 32
"""A worker keeps at most the machine's memory divided by this."""
_LEAST_S: Final = 0.05
"""Seconds of lowering from which an artifact is kept."""


class Lowering:
    """Lowers one candidate, and notes why variants are out.

    Args:
        toolchain: Lowers.
        function: The candidate.
        ask: What is asked: target, build settings and deadline, which counts from now on.
        cache: The toolchain's blob cache for the target.
        scratch: A directory of this trial's own.
        report: Receives what is being done.
        host: The machine kernels are built for.
        devices: Those of the toolchain's targets.
        lost: Receives why a device is lost.
        kept: What was lowered for earlier requests.

    Attributes:
        build_s: Seconds spent lowering.
        outcome: Why the first variant that is out is out; None if none is.
        discarded: Why each is.
    """

    def __init__(
        self,
        toolchain: Toolchain,
        function: KernelFunction,
        ask: Ask,
        cache: BlobCache,
        scratch: Path,
        *,
        report: Callable[[Progress], None],
        host: Host,
        devices: Devices,
        lost: Callable[[str], None],
        kept: KeptArtifacts,
    ) -> None:
        self._toolchain = toolchain
        self._function = function
        self._ask = ask
        self._kept = kept
        self._target = ask.target
        self._settings = ask.build
        self._cache = cache
        self._scratch = scratch
        self._report = report
        self._host = host
        self._devices = devices
        self._lost = lost
        began = time.monotonic()
        self._soft_deadline = began + ask.deadline_s * _SHARE_FOR_VARIANTS
        self._deadline = began + ask.deadline_s
        self.build_s = 0.0
        self.outcome: Refused | Failed | None = None
        self.discarded: tuple[str, ...] = ()

    def variants(self, limit: int, wanted: str | None = None) -> Iterator[Artifact]:
        """Lower, one variant at a time; a failure to lower is noted like a variant's.

        A variant that is wanted by name is not lowered again where an earlier request's is kept.

        Args:
            limit: Most variants to make, unless one is wanted by name.
            wanted: Name of the only one to give.
        """
        self._report(Progress(stage=Stage.LOWER))
        made = 0
        for artifact in self._lowered(limit, wanted):
            if self._settings.deterministic and not artifact.deterministic:
                self.discard(artifact, Refused(reason=_NOT_DETERMINISTIC))
            else:
                made += 1
                if wanted in (None, artifact.variant):
                    yield artifact
            if wanted == artifact.variant or (wanted is None and made == limit):
                return
            if time.monotonic() > self._soft_deadline:
                return
        if wanted is not None and self.outcome is None:
            self.discard(None, Failed(stage=Stage.LOWER, reason=f"it no longer yields variant {wanted!r}"))

    def discard(self, artifact: Artifact | None, outcome: Refused | Failed) -> None:
        """Record why a variant is rejected; the first reason is the candidate's if all are."""
        self.outcome = self.outcome or outcome
        variant = "" if artifact is None else artifact.variant
        self.discarded += (f"{variant}: {outcome.reason}" if variant else outcome.reason,)
        self._probe()

    def why_none(self) -> Refused | Failed:
        """Return the outcome when no variant is usable."""
        return self.outcome or Refused(reason="it yielded no variant")

    def _lowered(self, limit: int, wanted: str | None) -> Iterator[Artifact]:
        kept = None if wanted is None else self._kept.artifact(self._ask, wanted)
        if kept is not None:
            yield kept
            return
        began = time.monotonic()
        build = BuildContext(
            threads=self._settings.threads,
            effort=self._settings.effort,
            deadline_s=self._deadline - began,
            tuning_s=self._soft_deadline - began,
            max_variants=limit,
            variant=wanted,
            host=self._host,
            workspace_limit_bytes=self._settings.workspace_limit_bytes,
            seed=self._settings.seed,
            blobs=self._cache,
            scratch=self._scratch,
            launch=self._target.launch,
            deterministic=self._settings.deterministic,
        )
        try:
            answer = self._toolchain.lower(self._target, self._function, build)
            if isinstance(answer, Unsupported):
                self.outcome = Refused(reason=answer.reason)
                return
            for artifact in answer:
                took_s = time.monotonic() - began
                self.build_s += took_s
                self._kept.keep(self._ask, artifact, took_s)
                yield artifact
                began = time.monotonic()
        except CollageError as error:
            self.build_s += time.monotonic() - began
            if is_lost(error):
                self._lost(str(error))
            self.discard(None, Failed(stage=Stage.LOWER, reason=str(error)))

    def _probe(self) -> None:
        """See whether the device still answers: a library may have met its loss first, and said it in its own words.

        All that is tried afterwards in this process would fail, too, and be blamed for it. A device that fails twice
        where nothing was asked of it in between is as good as lost, whatever it calls that.
        """
        for device in self._devices:
            if device.name != self._target.device or not (first := _failure(device.synchronise)):
                continue
            # if not lost, it may say once what the variant is out for
            if error := first if is_lost(first) else _failure(device.synchronise):
                self._lost(text_of(error))


@dataclasses.dataclass(frozen=True, slots=True)
class _Kept:
    """An artifact, and what it was lowered from and how; a function's weights are named by their content."""

    function: WireFunction
    target: Target
    build: BuildSettings
    artifact: Artifact

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.artifact.files.values()))

    def answers(self, ask: Ask, variant: str) -> bool:
        wanted = (ask.function, ask.target, ask.build, variant)
        return wanted == (self.function, self.target, self.build, self.artifact.variant)


class KeptArtifacts:
    """Artifacts that took long to lower: kernels are timed, profiled, confirmed and built. Those asked for last stay.

    Args:
        memory_bytes: The machine's memory.
    """

    def __init__(self, memory_bytes: int) -> None:
        self._most_bytes = min(_MOST_BYTES, memory_bytes // _MEMORY_SHARE)
        self._kept: list[_Kept] = []  # the last one was asked for last

    def artifact(self, ask: Ask, variant: str) -> Artifact | None:
        """Return the variant of a name, lowered for an equal request; None if it is not kept."""
        for kept in reversed(self._kept):
            if kept.answers(ask, variant):
                self._kept.remove(kept)
                self._kept.append(kept)
                return kept.artifact
        return None

    def keep(self, ask: Ask, artifact: Artifact, seconds: float) -> None:
        """Keep an artifact, unless it was lowered quickly or is too large.

        Args:
            ask: What it was lowered for.
            artifact: What it is.
            seconds: How long lowering took.
        """
        new = _Kept(ask.function, ask.target, ask.build, artifact)
        if seconds < _LEAST_S or new.nbytes > self._most_bytes:
            return
        self._kept = [kept for kept in self._kept if not kept.answers(ask, artifact.variant)] + [new]
        while sum(kept.nbytes for kept in self._kept) > self._most_bytes:
            self._kept.pop(0)


def _failure(call: Callable[[], None]) -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    return None
