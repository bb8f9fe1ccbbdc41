"""The variants of one candidate, lowered one at a time in its toolchain's worker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from collage.devices.opening import Devices, is_lost
from collage.measure.wire.messages import AskBuild, AskEvaluate, AskMeasure, Progress
from collage.measure.wire.outcomes import Failed, Refused, Stage
from collage.measure.worker.failing import text_of
from collage_core.contract import Artifact, BlobCache, BuildContext, Host, KernelFunction, Unsupported
from collage_core.errors import CollageError
from collage_core.registry import Toolchain

_NOT_DETERMINISTIC = "equal inputs may give other bits each time, and --deterministic asks for the same"

_SHARE_FOR_VARIANTS = 0.5
"""Share of the deadline after which no further variant is begun, so that a hang does not cost the others."""


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

    Attributes:
        build_s: Seconds spent lowering.
        outcome: Why the first variant that is out is out; None if none is.
        discarded: Why each is.
    """

    def __init__(
        self,
        toolchain: Toolchain,
        function: KernelFunction,
        ask: AskMeasure | AskBuild | AskEvaluate,
        cache: BlobCache,
        scratch: Path,
        *,
        report: Callable[[Progress], None],
        host: Host,
        devices: Devices,
        lost: Callable[[str], None],
    ) -> None:
        self._toolchain = toolchain
        self._function = function
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
                self.build_s += time.monotonic() - began
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


def _failure(call: Callable[[], None]) -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    return None
