"""The steps of one candidate in its toolchain's worker: lower, load, bind, run, check."""

from __future__ import annotations

import functools
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from collage.devices.opening import Devices
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.function_codec import decode_function
from collage.measure.wire.messages import AskBuild, AskMeasure, Progress
from collage.measure.wire.outcomes import Evaluated, Failed, Refused, Stage
from collage.measure.wire.values import decode_value, encode_value
from collage.measure.worker.binding import bound_to, called
from collage.measure.worker.check_outputs import Another, Bound, OutputCheck
from collage.measure.worker.kernel_loading import KernelLoading
from collage.measure.worker.lowering import Ask, KeptArtifacts, Lowering
from collage.measure.worker.timing import clock_of, load_wait_of
from collage_core.contract import Artifact, BlobCache, Host, Kernel, Measurement
from collage_core.registry import Toolchain

_CALLS = 128
"""Calls after which a short kernel is checked again, those that timed it included."""
_SHORT_US = 1000.0
"""Longest that a kernel may take for that, in microseconds."""


class Trial:
    """The steps of one candidate; each raises `Stopped` where it ends.

    Args:
        toolchain: Toolchain under test.
        store: Where models, values and artifacts are.
        scratch: A directory of this worker's own.
        cache: The toolchain's blob cache for the target.
        report: Receives what is being done.
        ask: What is asked: the function, its inputs, target and limits.
        host: The machine kernels are built for and run on.
        devices: Those of the toolchain's targets.
        lost: Receives why a device is lost.
        kept: What was lowered for earlier requests.
    """

    def __init__(
        self,
        toolchain: Toolchain,
        store: BlobStore,
        scratch: Path,
        cache: BlobCache,
        report: Callable[[Progress], None],
        ask: Ask,
        host: Host,
        devices: Devices,
        lost: Callable[[str], None],
        kept: KeptArtifacts,
    ) -> None:
        self._target = ask.target
        self._store = store
        self._report = report
        self._lost = lost
        self._owner = os.getpid()
        self._scratch = Path(tempfile.mkdtemp(prefix="trial-", dir=scratch))
        self._function = decode_function(ask.function, store)
        self._lowering = Lowering(
            toolchain,
            self._function,
            ask,
            cache,
            self._scratch,
            report=report,
            host=host,
            devices=devices,
            lost=lost,
            kept=kept,
        )
        self._loading = KernelLoading(
            toolchain, ask.target, self._function, ask.build, self._scratch, host, devices, lost
        )
        self._values = [decode_value(value, store) for value in ask.inputs]
        self._output_check: OutputCheck | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if os.getpid() == self._owner:  # not in a process that a library forked and that came back here
            shutil.rmtree(self._scratch, ignore_errors=True)

    @property
    def build_s(self) -> float:
        """Seconds spent lowering so far."""
        return self._lowering.build_s

    @property
    def discarded(self) -> tuple[str, ...]:
        """Why variants are out."""
        return self._lowering.discarded

    def variants(self, limit: int, wanted: str | None = None) -> Iterator[Artifact]:
        """Lower, one variant at a time; see `Lowering.variants`."""
        return self._lowering.variants(limit, wanted)

    def load(self, artifact: Artifact) -> Kernel:
        """Load a kernel.

        Raises:
            Stopped: If it is refused, or fails.
        """
        self._loading.check(artifact)
        self._report(Progress(stage=Stage.LOAD, variant=artifact.variant))
        return self._loading.load(artifact)

    def bind(self, artifact: Artifact) -> Bound:
        """Load a kernel and bind it to buffers that hold the inputs.

        Raises:
            Stopped: If it is refused, or fails.
        """
        kernel = self.load(artifact)
        self._report(Progress(stage=Stage.BIND, variant=artifact.variant))
        return bound_to(kernel, artifact, self._function, self._values, self._loading.device, self._lost)

    def run(self, bound: Bound) -> None:
        """Call a kernel once.

        Raises:
            Stopped: If it fails.
        """
        self._report(Progress(stage=Stage.RUN))
        called(bound, self._lost)

    def evaluate(self, bound: Bound) -> Evaluated:
        """Call a kernel once and return its outputs.

        Raises:
            Stopped: If it fails.
        """
        self.run(bound)
        return self.evaluated(bound)

    def evaluated(self, bound: Bound) -> Evaluated:
        """Return what the outputs of a kernel hold after a call."""
        return Evaluated(outputs=tuple(encode_value(buffer.value, self._store) for buffer in bound.outputs))

    def clock(
        self, bound: Bound, artifact: Artifact, ask: AskMeasure, *, observed: bool = True
    ) -> Callable[[], Measurement]:
        """Return core's clock for a call, after it was checked; see `clock_of`."""
        return clock_of(bound, artifact, self._function, self._loading, ask, observed=observed)

    def waited_s(self, ask: AskMeasure) -> float:
        """Return the seconds for which candidates of this process waited for other load to go so far."""
        return load_wait_of(ask.build.threads, ask.load_wait_s).spent_s

    def check(self, bound: Bound, ask: AskMeasure | AskBuild) -> tuple[float, bool]:
        """Run twice, or once briefly; return the larger error and whether no run gave other bits.

        Raises:
            Stopped: If it is wrong.
        """
        check, run = self._judge(ask), functools.partial(self.run, bound)
        return (check.once(bound, run), True) if _is_brief(ask) else check.twice(bound, run)

    def check_as_used(self, bound: Bound, artifact: Artifact, ask: AskMeasure, taken: Measurement) -> float:
        """Check a kernel again after it was timed, and a short one after at least `_CALLS` calls.

        Args:
            bound: The kernel.
            artifact: What it was made of.
            ask: What its outputs should be.
            taken: How it was timed.

        Returns:
            The largest error.

        Raises:
            Stopped: If it is wrong.
        """
        if statistics.median(taken.samples_us) <= _SHORT_US:
            for _ in range(_CALLS - taken.warmup_runs - len(taken.samples_us) * taken.calls_per_sample):
                self.run(bound)

        def another(values: Sequence[Any]) -> Another:
            second = bound_to(bound.kernel, artifact, self._function, values, self._loading.device, self._lost)
            return second, functools.partial(self.run, second)

        run = functools.partial(self.run, bound)
        return self._judge(ask).as_used(bound, run, another)

    def _judge(self, ask: AskMeasure | AskBuild) -> OutputCheck:
        """Return what judges all variants of the candidate, which often write the same bits."""
        if self._output_check is None:
            self._output_check = OutputCheck(
                self._values,
                ask.expected,
                self._store,
                self._function,
                correct=ask.target.exact and ask.tolerance.is_of_correct_kernels,
                quanta=not ask.target.quantises,
                tolerance=ask.tolerance,
                behind=ask.behind,
                deterministic=ask.build.deterministic,
                is_brief=_is_brief(ask),
            )
        return self._output_check

    def discard(self, artifact: Artifact | None, outcome: Refused | Failed) -> None:
        """Record why a variant is rejected; see `Lowering.discard`."""
        self._lowering.discard(artifact, outcome)

    def why_none(self) -> Refused | Failed:
        """Return the outcome when no variant is usable."""
        return self._lowering.why_none()


def _is_brief(ask: AskMeasure | AskBuild) -> bool:
    """Return whether a kernel is only looked at: if it is chosen, it is asked for in full, which judges it again.

    Where all runs have to give the same bits it runs twice all the same: what does not is no candidate.
    """
    return isinstance(ask, AskMeasure) and not ask.as_used and not ask.build.deterministic
