"""The steps of one candidate in its toolchain's worker: lower, load, bind, run, check."""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir

from collage.devices.opening import Devices, is_lost, placed_on
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.function_codec import decode_function
from collage.measure.wire.messages import AskBuild, AskEvaluate, AskMeasure, Progress
from collage.measure.wire.outcomes import Failed, Refused, Stage
from collage.measure.wire.values import decode_value
from collage.measure.wire.wire_values import WireValue
from collage.measure.worker.check_outputs import Bound, check_outputs
from collage.measure.worker.clock import time_call
from collage.measure.worker.device_clock import time_on_device
from collage.measure.worker.failing import Stopped, failing_as, text_of
from collage.measure.worker.rotation import rotated, weights_bytes_of
from collage.measure.worker.staged import Staged
from collage.measure.worker.verdicts import aligned_buffer
from collage_core.contract import (
    Artifact,
    BlobCache,
    BoundCall,
    Buffer,
    BuildContext,
    DeviceStream,
    Host,
    Kernel,
    KernelFunction,
    Measurement,
    Protocol,
    RunContext,
    TensorSpec,
    Unsupported,
    ValueKind,
    Weights,
    weight_named,
    workspace_of,
)
from collage_core.errors import CollageError
from collage_core.ir.operators.quantised import roundings
from collage_core.registry import Toolchain

_NOT_DETERMINISTIC = "equal inputs may give other bits each time, and --deterministic asks for the same"

_SHARE_FOR_VARIANTS = 0.5
"""Part of the deadline after which no further variant is begun: one that hangs should not cost the others."""


class Trial:
    """The steps of one candidate; each raises `Stopped` where it ends.

    Args:
        toolchain: Whose.
        store: Where models, values and artifacts are.
        scratch: A directory of this worker's own.
        cache: The toolchain's blob cache for the target.
        report: Told what is being done.
        ask: What is asked: the function, its inputs, target and limits.
        devices: Those of the toolchain's targets.
        lost: Told why when a device is lost.
    """

    def __init__(
        self,
        toolchain: Toolchain,
        store: BlobStore,
        scratch: Path,
        cache: BlobCache,
        report: Callable[[Progress], None],
        ask: AskMeasure | AskBuild | AskEvaluate,
        host: Host,
        devices: Devices,
        lost: Callable[[str], None],
    ) -> None:
        self._host = host
        self._devices = devices
        self._lost = lost
        self._toolchain = toolchain
        self._target = ask.target
        self._report = report
        self._owner = os.getpid()
        self._scratch = Path(tempfile.mkdtemp(prefix="trial-", dir=scratch))
        self._settings = ask.build
        self._cache = cache
        began = time.monotonic()
        self._soft_deadline = began + ask.deadline_s * _SHARE_FOR_VARIANTS
        self._deadline = began + ask.deadline_s
        self._function = decode_function(ask.function, store)
        self._rounded = {str(value.name): count for value, count in roundings(self._function.model.graph).items()}
        self._values = [decode_value(value, store) for value in ask.inputs]
        self._store = store
        self.build_s = 0.0
        self.outcome: Refused | Failed | None = None
        self.discarded: tuple[str, ...] = ()

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *exception: object) -> None:
        if os.getpid() == self._owner:  # not in a process that a library forked and that came back here
            shutil.rmtree(self._scratch, ignore_errors=True)

    def variants(self, limit: int, wanted: str | None = None) -> Iterator[Artifact]:
        """Lowers, one variant at a time; a failure to lower is noted like a variant's.

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

    def load(self, artifact: Artifact) -> Any:
        """The kernel."""
        self._check_specs()
        self._check_workspace(artifact.workspace_bytes)
        self._report(Progress(stage=Stage.LOAD, variant=artifact.variant))
        with self.failing_as(Stage.LOAD):
            kernel = self._loaded(artifact)
        if isinstance(kernel, Unsupported):
            raise Stopped(Refused(reason=f"it cannot load what it built: {kernel.reason}"))
        self._check_workspace(workspace_of(artifact, kernel))
        return kernel

    def _loaded(self, artifact: Artifact) -> Kernel | Unsupported:
        """The kernel, with a copy of its weights of its own where they are on a device."""
        device, constants = self._opened(), _constants(self._function, artifact)
        run = RunContext(
            threads=self._settings.threads,
            host=self._host,
            device=self._target.device,
            constants=constants,
            placed={} if device is None else {key: placed_on(device, key, each) for key, each in constants.items()},
            stream=None if device is None else device.handle,
            capture=self._target.launch == "graph",
            scratch=Path(tempfile.mkdtemp(dir=self._scratch)),
        )
        return self._toolchain.load(self._target, artifact, run)

    def _check_workspace(self, nbytes: int) -> None:
        limit = self._settings.workspace_limit_bytes
        if nbytes > limit:
            raise Stopped(Refused(reason=f"it needs {nbytes} bytes of workspace, {limit} are allowed"))

    def bind(self, artifact: Artifact) -> Bound:
        """The kernel over buffers that hold the inputs."""
        kernel = self.load(artifact)
        self._report(Progress(stage=Stage.BIND, variant=artifact.variant))
        with self.failing_as(Stage.BIND):
            inputs = tuple(aligned_buffer(spec) for spec in self._function.inputs)
            for buffer, value in zip(inputs, self._values, strict=True):
                buffer.put(value)
            outputs = tuple(aligned_buffer(spec) for spec in self._function.outputs)
            if (device := self._opened()) is not None:
                staged = Staged(device, inputs, outputs)
                return Bound(staged.bind(kernel, workspace_of(artifact, kernel)), inputs, outputs, staged)
            workspace = _workspace(workspace_of(artifact, kernel))
            call = kernel.bind(inputs, outputs, workspace)
            if not callable(call):
                raise TypeError(f"bind answered with {type(call).__name__}, which cannot be called")
            return Bound(call, inputs, outputs, workspace=workspace)

    def run(self, bound: Bound) -> None:
        """One call."""
        self._report(Progress(stage=Stage.RUN))
        with self.failing_as(Stage.RUN):
            if bound.staged is None:
                bound.call()
            else:
                bound.staged.run(bound.call)

    def clock(self, bound: Bound, artifact: Artifact, protocol: Protocol, *, cold: bool) -> Callable[[], Measurement]:
        """Core's clock for a call: the host's, or the device's over graphs of it where a plan would capture it.

        Args:
            bound: The call, after it was checked.
            artifact: What it was made of.
            protocol: How long and how often to time it.
            cold: Whether a plan finds the device's cache without its weights; then copies of them are read in turn.
        """
        device = self._opened()
        if device is None:
            return functools.partial(time_call, bound.call, protocol)
        graph = self._target.launch == "graph"
        why_not = "" if artifact.capturable or not graph else "its artifact is not capturable"

        def timed() -> Measurement:
            calls = self._rotated(bound, artifact, device) if cold else [bound.call]
            return time_on_device(device, calls, protocol, graph=graph, why_not=why_not)

        return timed

    def _rotated(self, bound: Bound, artifact: Artifact, device: DeviceStream) -> list[BoundCall]:
        """The call, and others of the same kernel on copies of its weights of their own."""
        staged = bound.staged
        assert staged is not None

        def another() -> BoundCall | None:
            kernel = self._loaded(artifact)
            return None if isinstance(kernel, Unsupported) else staged.bind(kernel, workspace_of(artifact, kernel))

        return rotated(bound.call, another, weights_bytes_of(self._function, artifact), device)

    def failing_as(self, stage: Stage) -> failing_as:
        """Turns an exception in its block into the failure of a stage; notes that a device was lost."""
        return failing_as(stage, self._lost)

    def _opened(self) -> DeviceStream | None:
        """The target's device; None for the CPU."""
        if self._target.device == "cpu":
            return None
        device = self._devices[self._target.device]
        device.activate()
        return device

    def _check_specs(self) -> None:
        for spec in (*self._function.inputs, *self._function.outputs):
            if self._target.device != "cpu" and spec.kind is not ValueKind.PLANNED:
                reason = f"{spec.name!r} is {spec.kind.value}; on {self._target.device} are values of static shape only"
                raise Stopped(Refused(reason=reason))

    def check(
        self, bound: Bound, expected: Sequence[WireValue | None], ask: AskMeasure | AskBuild
    ) -> tuple[float, bool]:
        """Runs twice; returns the larger error and whether both gave the same bits."""
        rights = [None if value is None else decode_value(value, self._store) for value in expected]
        return check_outputs(
            bound,
            functools.partial(self.run, bound),
            self._values,
            rights,
            tolerance=ask.tolerance,
            rounded=self._rounded,
            deterministic=self._settings.deterministic,
        )

    def discard(self, artifact: Artifact | None, outcome: Refused | Failed) -> None:
        """Notes why a variant is out; the first such reason is the candidate's if none is in."""
        self.outcome = self.outcome or outcome
        variant = "" if artifact is None else artifact.variant
        self.discarded += (f"{variant}: {outcome.reason}" if variant else outcome.reason,)
        self._probe()

    def _probe(self) -> None:
        """Sees whether the device still answers: a library may have met its loss first, and said it in its own words.

        All that is tried afterwards in this process would fail, too, and be blamed for it. A device that fails twice
        where nothing was asked of it in between is as good as lost, whatever it calls that.
        """
        for device in self._devices:
            if device.name != self._target.device or not (first := _failure(device.synchronise)):
                continue
            # if not lost, it may say once what the variant is out for
            if error := first if is_lost(first) else _failure(device.synchronise):
                self._lost(text_of(error))

    def why_none(self) -> Refused | Failed:
        """The outcome when no variant is usable."""
        return self.outcome or Refused(reason="it yielded no variant")


def _failure(call: Callable[[], None]) -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    return None


def _constants(function: KernelFunction, artifact: Artifact) -> Mapping[str, np.ndarray[Any, Any]]:
    names = {content: name for name, content in function.constants.items()}
    wanted = {weight_named(key)[0] for key in artifact.constants.values()}
    weights = Weights({content: function.constant(names[content]) for content in wanted})
    return {key: weights[key] for key in artifact.constants.values()}


def _workspace(size: int) -> Buffer | None:
    if size == 0:
        return None
    return aligned_buffer(TensorSpec(name="workspace", dtype=onnx_ir.DataType.UINT8, shape=(size,)))
