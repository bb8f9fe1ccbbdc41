"""One candidate, from lowering to numbers, with everything the contract forbids looked for on the way."""

from __future__ import annotations

import dataclasses
import itertools
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from collage.measure.wire.outcomes import Tolerance
from collage.measure.worker.verdicts import judge, spoil
from collage_core.contract import (
    Artifact,
    DeviceStream,
    Host,
    Kernel,
    KernelFunction,
    Requirement,
    Target,
    TensorSpec,
    Unsupported,
    ValueKind,
    weight_named,
)
from collage_core.errors import CollageError, DeviceCaptureError, KernelError
from collage_core.fusion import SubGraph, kernel_function
from collage_core.ir.graph.canonical import canonical_form
from collage_core.ir.io.model_io import model_to_bytes
from collage_core.registry import Toolchain
from collage_testing.kit.bound_kernel import BoundKernel
from collage_testing.kit.contexts import MemoryBlobs, build_context, run_context

_WORKSPACE_LIMIT_BYTES = 1 << 30
_DEADLINE_S = 120.0


class KernelCheck:
    """Tries candidates of one target.

    Args:
        toolchain: Whose.
        target: One of its targets.
        folder: For scratch directories.
        threads: CPU threads kernels may use.
        tolerance: Largest error relative to a tensor's scale.
        max_variants: Variants of a candidate that are tried.
        host: The machine kernels are built for.
        device: The target's device, where kernels find their values and enqueue; None for the CPU.
        runs: Whether this machine can run what it builds.
    """

    def __init__(
        self,
        toolchain: Toolchain,
        target: Target,
        folder: Path,
        threads: int,
        tolerance: float,
        max_variants: int,
        host: Host,
        device: DeviceStream | None = None,
        runs: bool = True,
    ) -> None:
        self._host = host
        self._device = device
        self._runs = runs
        self.toolchain = toolchain
        self.target = target
        self._folder = folder
        self._threads = threads
        self._tolerance = Tolerance(relative=tolerance, mismatched=tolerance)
        self._max_variants = max_variants
        self._blobs = MemoryBlobs()

    def run(self, sub_graph: SubGraph, values: Mapping[str, Any]) -> list[str] | Unsupported:
        """Checks one candidate.

        Args:
            sub_graph: The candidate.
            values: Every value of a reference run of its model, by name.

        Returns:
            What breaks the contract, a sentence each, none if nothing does; or the toolchain's refusal.
        """
        function = kernel_function(sub_graph, "kernel")
        form = canonical_form(sub_graph.graph, sub_graph.nodes, sub_graph.composites)
        given = [values[str(value.name)] for value in form.inputs]
        expected = [values.get(str(value.name)) for value in form.outputs]
        if (spec := self._never_there(function)) is not None:
            return Unsupported(f"{spec.name!r} is {spec.kind.value}; on a device are values of static shape only")
        before = model_to_bytes(function.model)
        try:
            variants = self._lowered(function)
        except CollageError as error:
            return [str(error)]
        problems = []
        if model_to_bytes(function.model) != before:
            problems.append("collage_lower changes the function it is given")
        if isinstance(variants, Unsupported):
            return problems or variants
        if not variants:
            problems.append("collage_lower yields no variant and gives no reason")
        names = [artifact.variant for artifact in variants]
        if len(set(names)) < len(names):
            problems.append(f"variants have the same name: {names}")
        elif len(names) > 1 and (missed := self._missed(function, names[-1])):
            problems.append(missed)
        refusals: list[Unsupported] = []
        for artifact in variants:
            outcome = self._variant(function, artifact, given, expected)
            if isinstance(outcome, Unsupported):
                refusals.append(outcome)
                continue
            problems.extend(f"variant {artifact.variant!r}: {each}" if len(names) > 1 else each for each in outcome)
        if refusals and len(refusals) == len(names) and self._runs and not problems:
            return [f"collage_load refuses what collage_lower has just made: {refusals[0].reason}"]
        return problems

    def _never_there(self, function: KernelFunction) -> TensorSpec | None:
        """A value that core does not place on the target's device, if there is one."""
        specs = () if self.target.device == "cpu" else (*function.inputs, *function.outputs)
        return next((spec for spec in specs if spec.kind is not ValueKind.PLANNED), None)

    def _lowered(self, function: KernelFunction, variant: str | None = None) -> tuple[Artifact, ...] | Unsupported:
        build = build_context(
            Path(tempfile.mkdtemp(dir=self._folder)),
            threads=self._threads,
            effort=2,
            deadline_s=_DEADLINE_S,
            tuning_s=_DEADLINE_S / 2,
            max_variants=self._max_variants,
            variant=variant,
            host=self._host,
            workspace_limit_bytes=_WORKSPACE_LIMIT_BYTES,
            blobs=self._blobs,
            launch=self.target.launch,
        )
        answer = self.toolchain.lower(self.target, function, build)
        return answer if isinstance(answer, Unsupported) else tuple(itertools.islice(answer, self._max_variants))

    def _missed(self, function: KernelFunction, variant: str) -> str:
        """What is wrong when a variant is asked for by name, as core does once it has chosen; empty if nothing."""
        try:
            again = self._lowered(function, variant)
        except CollageError as error:
            return f"asked for variant {variant!r} alone, it fails: {error}"
        if isinstance(again, Unsupported):
            return f"asked for variant {variant!r} alone, it refuses: {again.reason}"
        names = [artifact.variant for artifact in again]
        return "" if variant in names else f"asked for variant {variant!r} alone, it yields {names}"

    def _variant(
        self, function: KernelFunction, artifact: Artifact, given: Sequence[Any], expected: Sequence[Any]
    ) -> list[str] | Unsupported:
        try:
            sent = _sent(artifact)
        except (TypeError, ValueError, AttributeError) as error:
            return [f"its artifact is not JSON and bytes: {error}"]
        problems = [f"file {name!r} is in a directory" for name in sent.files if Path(name).name != name]
        known = set(function.constants.values())
        unknown = [name for name, key in sent.constants.items() if weight_named(key)[0] not in known]
        if unknown:
            return [*problems, f"asks for constants that are not the function's: {', '.join(unknown)}"]
        device, scratch = self._device, Path(tempfile.mkdtemp(dir=self._folder))
        try:
            if device is not None:
                device.activate()
            run = run_context(
                sent, function, self.target, device, host=self._host, threads=self._threads, scratch=scratch
            )
            kernel = self.toolchain.load(self.target, sent, run)
            if isinstance(kernel, Unsupported):
                return kernel
            return problems + self._calls(kernel, function, sent, given, expected)
        except Exception as error:
            return [*problems, f"{type(error).__name__}: {error}"]

    def _calls(
        self,
        kernel: Kernel,
        function: KernelFunction,
        artifact: Artifact,
        given: Sequence[Any],
        expected: Sequence[Any],
    ) -> list[str]:
        """Binds three times and calls the first, the second, the first again, one less well aligned, and a graph.

        The graph is of calls on a device that may be captured. A kernel of a device may refuse to be bound to places
        that are less aligned than core's own, since that is an error its user sees; it may not go wrong there.
        """
        device = self._device
        first, second = (BoundKernel(kernel, artifact, function, given, device) for _ in range(2))
        bound = {"": first, " when bound again": second, " when run after another binding": first}
        try:
            unaligned = BoundKernel(kernel, artifact, function, given, device, aligned=False)
            bound[" when bound to a caller's own arrays"] = unaligned
        except KernelError:
            if device is None:
                raise
        problems: list[str] = []
        seen = []
        graph = " when captured in a graph"
        if device is not None and artifact.capturable:
            bound[graph] = first
        for when, each in bound.items():
            for buffer, right in zip(each.outputs, expected, strict=True):
                spoil(buffer, right)
            try:
                each.replay() if when == graph else each.call()
            except DeviceCaptureError as error:
                problems.append(f"the artifact says it is capturable, and it is not: {error.reason}")
                continue
            verdict = judge(each.outputs, expected, self._tolerance)
            if isinstance(verdict, str):
                problems.append(f"wrong numbers{when}: {verdict}")
            for buffer, value in zip(each.inputs, given, strict=True):
                if buffer.spec.kind is not ValueKind.FOREIGN and _bits(buffer.array) != _bits(np.asarray(value)):
                    problems.append(f"it writes its input {buffer.spec.name!r}{when}")
            seen.append([_bits(b.array) for b in each.outputs if b.spec.kind is not ValueKind.FOREIGN])
        if not problems and artifact.deterministic and not seen[0] == seen[1] == seen[2]:
            problems.append("equal inputs give other bits when run again, yet the artifact says it is deterministic")
        return problems


def _sent(artifact: Artifact) -> Artifact:
    """The artifact as it arrives in another process: only JSON and bytes of it.

    Raises:
        TypeError: If something in it is neither.
        ValueError: If a number in it is not finite.
    """
    for name, data in artifact.files.items():
        if not isinstance(data, bytes):
            raise TypeError(f"file {name!r} is {type(data).__name__}, not bytes")
    fields = {field.name: getattr(artifact, field.name) for field in dataclasses.fields(artifact)}
    files = fields.pop("files")
    fields["requires"] = [dataclasses.asdict(requirement) for requirement in artifact.requires]
    fields["metadata"], fields["constants"] = dict(artifact.metadata), dict(artifact.constants)
    arrived = json.loads(json.dumps(fields, allow_nan=False))
    arrived["requires"] = tuple(Requirement(**requirement) for requirement in arrived["requires"])
    return Artifact(files={name: bytes(data) for name, data in files.items()}, **arrived)


def _bits(array: np.ndarray[Any, Any]) -> bytes:
    return np.ascontiguousarray(array).tobytes()
