"""Answer a worker's candidate requests: measure one, build one, run one once."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self, TypeVar

from collage.devices.opening import Devices
from collage.devices.providers import Providers
from collage.devices.this_host import this_host
from collage.measure.clocks.device_times import time_device
from collage.measure.wire.artifact_codec import encode_artifact
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.messages import AskBuild, AskDevice, AskEvaluate, AskMeasure, Progress
from collage.measure.wire.outcomes import Built, DeviceTimes, Evaluated, Failed, Measured, Refused, Stage
from collage.measure.worker.failing import Stopped, failing_as
from collage.measure.worker.lowering import Ask, KeptArtifacts
from collage.measure.worker.trial import Trial
from collage_core.contract import BlobCache, Host, Target
from collage_core.registry import Toolchain

_Trial = TypeVar("_Trial", bound=Trial)


class Trials:
    """Tries candidates on one toolchain.

    Args:
        toolchain: Whose.
        store: Where models, values and artifacts are.
        scratch: A directory of this worker's own.
        cache: The toolchain's blob cache for a target.
        report: Told what is being done.
        host: The machine kernels are built for and run on.
        devices: Opened when the first kernel wants them.

    Attributes:
        lost: Why this process is of no more use: a device was lost; empty if none was.
    """

    def __init__(
        self,
        toolchain: Toolchain,
        store: BlobStore,
        scratch: Path,
        cache: Callable[[Target], BlobCache],
        report: Callable[[Progress], None],
        *,
        host: Host,
        devices: Devices,
    ) -> None:
        self._toolchain = toolchain
        self._store = store
        self._scratch = scratch
        self._cache = cache
        self._report = report
        self._host = host
        self._devices = devices
        self._kept = KeptArtifacts(host.memory_bytes)
        self.lost = ""

    @classmethod
    def on_this_machine(
        cls,
        toolchain: Toolchain,
        store: BlobStore,
        scratch: Path,
        cache: Callable[[Target], BlobCache],
        report: Callable[[Progress], None],
        providers: Providers,
    ) -> Self:
        """Return what tries candidates on the devices that this machine has."""
        devices = Devices(providers.open)
        return cls(toolchain, store, scratch, cache, report, host=this_host(providers), devices=devices)

    def measure(self, ask: AskMeasure) -> Measured | Refused | Failed:
        """Build and check variants, time the correct ones and keep the fastest."""
        with self._start(ask) as trial:
            return self._measure(trial, ask)

    def _measure(self, trial: Trial, ask: AskMeasure) -> Measured | Refused | Failed:
        best: Measured | None = None
        timed_s = 0.0
        waited_s = trial.waited_s(ask)
        for artifact in trial.variants(ask.build.max_variants, ask.variant):
            try:
                bound = trial.bind(artifact)
                error, repeatable = trial.check(bound, ask)
                self._report(Progress(stage=Stage.MEASURE, variant=artifact.variant, best=best))
                clock = trial.clock(bound, artifact, ask)
                began = time.monotonic()
                with failing_as(Stage.MEASURE, self._lose_device):
                    taken = self._toolchain.measure(ask.target, bound.call, ask.protocol, clock)
                if ask.as_used:
                    error = max(error, trial.check_as_used(bound, artifact, ask, taken))
            except Stopped as stopped:
                trial.discard(artifact, stopped.outcome)
                continue
            timed_s += time.monotonic() - began
            found = Measured(
                samples_us=taken.samples_us,
                blocks=taken.blocks,
                warmup_runs=taken.warmup_runs,
                calls_per_sample=taken.calls_per_sample,
                variant=artifact.variant,
                error=error,
                build_s=trial.build_s,
                repeatable=repeatable,
                launch=taken.launch,
                launch_reason=taken.launch_reason,
                weight_copies=taken.weight_copies,
                deterministic=artifact.deterministic and repeatable,
            )
            if best is None or found.is_faster_than(best):
                best = found
            self._report(Progress(stage=Stage.LOWER, best=best))
        if best is None:
            return trial.why_none()
        return dataclasses.replace(
            best,
            build_s=trial.build_s,
            timed_s=timed_s,
            waited_s=trial.waited_s(ask) - waited_s,
            discarded=trial.discarded,
        )

    def build(self, ask: AskBuild) -> Built | Refused | Failed:
        """Build the artifact of the requested variant, or of the first correct one."""
        with self._start(ask) as trial:
            return self._build(trial, ask)

    def _build(self, trial: Trial, ask: AskBuild) -> Built | Refused | Failed:
        for artifact in trial.variants(ask.build.max_variants, ask.variant):
            try:
                error = 0.0
                if ask.inputs or ask.expected:
                    error, _ = trial.check(trial.bind(artifact), ask)
                else:
                    trial.load(artifact)
                with failing_as(Stage.LOWER):
                    wire = encode_artifact(artifact, self._store)
            except Stopped as stopped:
                trial.discard(artifact, stopped.outcome)
                continue
            return Built(artifact=wire, error=error, build_s=trial.build_s, discarded=trial.discarded)
        return trial.why_none()

    def evaluate(self, ask: AskEvaluate) -> Evaluated | Refused | Failed:
        """Run a function once."""
        with self._start(ask) as trial:
            for artifact in trial.variants(1):
                try:
                    return trial.evaluate(trial.bind(artifact))
                except Stopped as stopped:
                    trial.discard(artifact, stopped.outcome)
            return trial.why_none()

    def time_device(self, ask: AskDevice) -> DeviceTimes | Failed:
        """Time a device's operations other than kernels; open the device if necessary."""
        try:
            with failing_as(Stage.MEASURE, self._lose_device):
                device = self._devices[ask.device]
                device.activate()
                return time_device(device)
        except Stopped as stopped:
            return Failed(stage=Stage.MEASURE, reason=stopped.outcome.reason)

    def _start(self, ask: Ask) -> Trial:
        return self.trial(Trial, ask)

    def trial(self, kind: type[_Trial], ask: Ask) -> _Trial:
        """Begin a trial of some kind; it is a context."""
        cache = self._cache(ask.target)
        return kind(
            self._toolchain,
            self._store,
            self._scratch,
            cache,
            self._report,
            ask,
            self._host,
            self._devices,
            self._lose_device,
            self._kept,
        )

    def _lose_device(self, reason: str) -> None:
        self.lost = reason
