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
import onnx_ir

from collage_core.contract import (
    Artifact,
    BoundCall,
    Buffer,
    BuildContext,
    Kernel,
    KernelFunction,
    Requirement,
    RunContext,
    Target,
    TensorSpec,
    Unsupported,
    ValueKind,
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


class KernelCheck:
    """Tries candidates of one target.

    Args:
        toolchain: Whose.
        target: One of its targets.
        folder: For scratch directories.
        threads: CPU threads kernels may use.
        tolerance: Largest error relative to a tensor's scale.
        max_variants: Variants of a candidate that are tried.
    """

    def __init__(
        self, toolchain: Toolchain, target: Target, folder: Path, threads: int, tolerance: float, max_variants: int
    ) -> None:
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
            answer = self.toolchain.lower(self.target, function, self._build_context())
            variants = (
                answer if isinstance(answer, Unsupported) else tuple(itertools.islice(answer, self._max_variants))
            )
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
        refusal = None
        for artifact in variants:
            outcome = self._variant(function, artifact, given, expected)
            if isinstance(outcome, Unsupported):
                refusal = outcome
                continue
            problems.extend(f"variant {artifact.variant!r}: {each}" if len(names) > 1 else each for each in outcome)
        if refusal is not None and len(names) == 1 and not problems:
            return [f"collage_load refuses what collage_lower has just made: {refusal.reason}"]
        return problems

    def _build_context(self) -> BuildContext:
        return BuildContext(
            threads=self._threads,
            effort=2,
            deadline_s=_DEADLINE_S,
            workspace_limit_bytes=_WORKSPACE_LIMIT_BYTES,
            seed=0,
            blobs=self._blobs,
            scratch=Path(tempfile.mkdtemp(dir=self._folder)),
        )

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
        run = RunContext(
            threads=self._threads,
            device=self.target.device,
            constants=constants,
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
        """Binds twice and calls the first, the second, and the first again."""
        bound = [_Bound.of(kernel, function, artifact.workspace_bytes, given) for _ in range(2)]
        problems: list[str] = []
        seen = []
        for when, each in zip(
            ("", " when bound again", " when run after another binding"), (*bound, bound[0]), strict=True
        ):
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
    def of(cls, kernel: Kernel, function: KernelFunction, workspace_bytes: int, given: Sequence[Any]) -> _Bound:
        inputs = tuple(aligned_buffer(spec) for spec in function.inputs)
        for buffer, value in zip(inputs, given, strict=True):
            buffer.put(value)
        outputs = tuple(aligned_buffer(spec) for spec in function.outputs)
        workspace = None
        if workspace_bytes:
            spec = TensorSpec(name="workspace", dtype=onnx_ir.DataType.UINT8, shape=(workspace_bytes,))
            workspace = aligned_buffer(spec)
        return cls(kernel.bind(inputs, outputs, workspace), inputs, outputs)


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
