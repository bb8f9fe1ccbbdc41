"""One candidate, from lowering to numbers, with everything the contract forbids looked for on the way."""

from __future__ import annotations

import dataclasses
import itertools
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx_ir

from collage_core.contract import (
    Artifact,
    BoundCall,
    Buffer,
    BuildContext,
    Host,
    Kernel,
    KernelFunction,
    Requirement,
    RunContext,
    Target,
    TensorSpec,
    Unsupported,
    ValueKind,
    buffer_over,
    workspace_of,
)
from collage_core.errors import CollageError
from collage_core.fusion import SubGraph, kernel_function
from collage_core.ir.canonical import canonical_form
from collage_core.ir.model_io import model_to_bytes
from collage_core.measure.outcomes import Tolerance
from collage_core.measure.verify import aligned_buffer, judge, spoil
from collage_core.registry import Toolchain

_WORKSPACE_LIMIT_BYTES = 1 << 30
_DEADLINE_S = 120.0


class MemoryBlobs:
    """A blob cache that lasts as long as the object."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        """See `BlobCache.get`."""
        return self._blobs.get(key)

    def put(self, key: str, data: bytes) -> None:
        """See `BlobCache.put`."""
        self._blobs[key] = data


class DeviceMemory(Protocol):
    """A device's memory and a stream of it, where kernels are checked that do not run on the CPU.

    Attributes:
        stream: Handle of the stream kernels enqueue on.
    """

    stream: int

    def buffer(self, spec: TensorSpec) -> Buffer:
        """A place there."""

    def write(self, buffer: Buffer, array: np.ndarray[Any, Any]) -> None:
        """Copies an array to a place, after what the stream does now."""

    def read(self, buffer: Buffer) -> np.ndarray[Any, Any]:
        """A copy of what a place holds once the stream has come so far."""


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
        memory: Where kernels of another device than the CPU find their values.
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
        memory: DeviceMemory | None = None,
        runs: bool = True,
    ) -> None:
        self._host = host
        self._memory = memory
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

    def _lowered(self, function: KernelFunction, variant: str | None = None) -> tuple[Artifact, ...] | Unsupported:
        build = BuildContext(
            threads=self._threads,
            effort=2,
            deadline_s=_DEADLINE_S,
            tuning_s=_DEADLINE_S / 2,
            max_variants=self._max_variants,
            variant=variant,
            host=self._host,
            workspace_limit_bytes=_WORKSPACE_LIMIT_BYTES,
            seed=0,
            blobs=self._blobs,
            scratch=Path(tempfile.mkdtemp(dir=self._folder)),
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
        names = {content: name for name, content in function.constants.items()}
        unknown = [name for name, content in sent.constants.items() if content not in names]
        if unknown:
            return [*problems, f"asks for constants that are not the function's: {', '.join(unknown)}"]
        constants = {content: _read_only(function.constant(names[content])) for content in sent.constants.values()}
        memory = self._memory
        run = RunContext(
            threads=self._threads,
            device=self.target.device,
            constants=constants,
            placed={} if memory is None else {content: _placed(memory, each) for content, each in constants.items()},
            stream=None if memory is None else memory.stream,
            scratch=Path(tempfile.mkdtemp(dir=self._folder)),
        )
        try:
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
        """Binds three times and calls the first, the second, the first again, and one less well aligned."""
        nbytes = workspace_of(artifact, kernel)
        bound = [_Bound.of(kernel, function, nbytes, given, self._memory) for _ in range(2)]
        bound += [bound[0], _Bound.of(kernel, function, nbytes, given, self._memory, aligned=False)]
        occasions = ("", " when bound again", " when run after another binding", " when bound to a caller's own arrays")
        problems: list[str] = []
        seen = []
        for when, each in zip(occasions, bound, strict=True):
            for buffer, right in zip(each.outputs, expected, strict=True):
                spoil(buffer, right)
            each.call()
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


@dataclasses.dataclass(frozen=True, slots=True)
class _Bound:
    """A bound call with buffers of its own."""

    call: BoundCall
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]

    @classmethod
    def of(
        cls,
        kernel: Kernel,
        function: KernelFunction,
        workspace_bytes: int,
        given: Sequence[Any],
        memory: DeviceMemory | None = None,
        *,
        aligned: bool = True,
    ) -> _Bound:
        inputs = tuple(_buffer(spec, aligned) for spec in function.inputs)
        for buffer, value in zip(inputs, given, strict=True):
            buffer.put(value)
        outputs = tuple(_buffer(spec, aligned) for spec in function.outputs)
        workspace = TensorSpec(name="workspace", dtype=onnx_ir.DataType.UINT8, shape=(workspace_bytes,))
        if memory is None:
            place = aligned_buffer(workspace) if workspace_bytes else None
            return cls(kernel.bind(inputs, outputs, place), inputs, outputs)
        there = [memory.buffer(buffer.spec) for buffer in (*inputs, *outputs)]
        place = memory.buffer(workspace) if workspace_bytes else None
        call = kernel.bind(there[: len(inputs)], there[len(inputs) :], place)

        def call_there() -> None:
            for buffer, far in zip((*inputs, *outputs), there, strict=True):
                memory.write(far, buffer.array)
            call()
            for buffer, far in zip((*inputs, *outputs), there, strict=True):
                buffer.put(memory.read(far))

        return cls(call_there, inputs, outputs)


def _buffer(spec: TensorSpec, aligned: bool) -> Buffer:
    """A place as core makes it, or one that starts where an element may start."""
    beyond = 0 if aligned or spec.kind is not ValueKind.PLANNED else spec.numpy_dtype.itemsize
    return aligned_buffer(spec, beyond=beyond)


def _placed(memory: DeviceMemory, array: np.ndarray[Any, Any]) -> Buffer:
    buffer = memory.buffer(buffer_over("weight", array).spec)
    memory.write(buffer, array)
    return buffer


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


def _read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    view = array.view()
    view.flags.writeable = False
    return view


def _bits(array: np.ndarray[Any, Any]) -> bytes:
    return np.ascontiguousarray(array).tobytes()
