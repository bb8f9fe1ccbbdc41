"""Kernel functions written as ONNX text, and one way to lower, load and run them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import onnx_ir
import pytest
from onnx.reference import ReferenceEvaluator

from collage.devices.this_host import this_host
from collage_core.contract import (
    Artifact,
    Buffer,
    BuildContext,
    KernelFunction,
    RunContext,
    Target,
    TensorSpec,
    Unsupported,
    ValueKind,
    content_hash,
)
from collage_onnxruntime.plugin import plugin

Array = np.ndarray[Any, Any]

DEFAULT = Target(toolchain="onnxruntime", fingerprint="test")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject:
    """A kernel function and what the reference makes of it."""

    proto: onnx.ModelProto
    function: KernelFunction
    arrays: Mapping[str, Array]

    def expected(self, feeds: Mapping[str, Any]) -> list[Any]:
        return list(ReferenceEvaluator(self.proto).run(None, dict(feeds)))


def subject(
    text: str,
    constants: Mapping[str, Array] | None = None,
    *,
    bounds: Mapping[str, tuple[int, ...]] | None = None,
    opset: int = 20,
) -> Subject:
    """A kernel function from the ONNX text of a graph; values in `bounds` are bounded, other open shapes foreign."""
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": {opset}, "com.microsoft": 1, "local": 1]> {text}'
    )
    arrays = dict(constants or {})
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    model = onnx_ir.from_proto(proto)
    function = KernelFunction(
        name="kernel",
        model=model,
        inputs=tuple(_spec(value, bounds or {}) for value in model.graph.inputs),
        outputs=tuple(_spec(value, bounds or {}) for value in model.graph.outputs),
        constants={name: content_hash(array) for name, array in arrays.items()},
    )
    return Subject(proto=proto, function=function, arrays=arrays)


def _spec(value: onnx_ir.Value, bounds: Mapping[str, tuple[int, ...]]) -> TensorSpec:
    name = str(value.name)
    dtype = value.dtype if isinstance(value.type, onnx_ir.TensorType) else None
    shape = None
    if dtype is not None and value.shape is not None:
        shape = tuple(extent if isinstance(extent, int) else None for extent in value.shape)
    if name in bounds:
        return TensorSpec(name=name, kind=ValueKind.BOUNDED, dtype=dtype, shape=shape, bound=bounds[name])
    planned = shape is not None and None not in shape and dtype != onnx_ir.DataType.STRING
    return TensorSpec(name=name, kind=ValueKind.PLANNED if planned else ValueKind.FOREIGN, dtype=dtype, shape=shape)


class NoBlobs:
    """A blob cache that forgets."""

    def get(self, key: str) -> bytes | None:
        return None

    def put(self, key: str, data: bytes) -> None:
        pass


def artifacts(subject: Subject, scratch: Path, *, effort: int = 0) -> list[Artifact]:
    """Everything lowering yields; fails the test if it refuses."""
    build = BuildContext(
        threads=1,
        host=this_host(),
        effort=effort,
        deadline_s=60.0,
        workspace_limit_bytes=1 << 30,
        seed=0,
        blobs=NoBlobs(),
        scratch=scratch,
    )
    answer = plugin.collage_lower(DEFAULT, subject.function, build)
    assert not isinstance(answer, Unsupported), answer.reason
    return [dataclasses.replace(each, metadata=json.loads(json.dumps(each.metadata))) for each in answer]


def run_context(subject: Subject, *, threads: int = 1) -> RunContext:
    return RunContext(
        threads=threads, host=this_host(), constants={content_hash(a): a for a in subject.arrays.values()}
    )


def run(
    subject: Subject, artifact: Artifact, feeds: Mapping[str, Any], *, target: Target = DEFAULT, threads: int = 1
) -> list[Any]:
    """Loads, binds once, calls twice, and checks on the way that inputs stay what they were."""
    kernel = plugin.collage_load(target, artifact, run_context(subject, threads=threads))
    assert not isinstance(kernel, Unsupported), kernel.reason
    inputs = [Buffer(spec) for spec in subject.function.inputs]
    outputs = [Buffer(spec) for spec in subject.function.outputs]
    _fill(inputs, feeds)
    call = kernel.bind(inputs, outputs, None)
    del kernel  # a bound call keeps alive all it needs
    call()
    for buffer in outputs:
        if buffer.spec.kind is ValueKind.PLANNED and buffer.array.size:
            buffer.array.reshape(-1).view(np.uint8).fill(1)
    call()
    for buffer in inputs:
        np.testing.assert_array_equal(buffer.value, feeds[buffer.spec.name])
    return [buffer.value for buffer in outputs]


def _fill(buffers: Sequence[Buffer], feeds: Mapping[str, Any]) -> None:
    for buffer in buffers:
        buffer.put(feeds[buffer.spec.name])


@pytest.fixture
def make() -> Callable[..., Subject]:
    return subject


@pytest.fixture
def lowered(tmp_path: Path) -> Callable[..., list[Artifact]]:
    return lambda subject, **options: artifacts(subject, tmp_path, **options)


@pytest.fixture
def ran() -> Callable[..., list[Any]]:
    return run


@pytest.fixture
def context() -> Callable[..., RunContext]:
    return run_context


Checker = Callable[..., list[Any]]


@pytest.fixture
def check(tmp_path: Path) -> Checker:
    """Runs every variant of a subject and compares it with the reference."""

    def checked(subject: Subject, feeds: Mapping[str, Any], *, tolerance: float = 1e-4, effort: int = 2) -> list[Any]:
        expected = subject.expected(feeds)
        found: list[Any] = []
        for artifact in artifacts(subject, tmp_path, effort=effort):
            found = run(subject, artifact, feeds)
            for spec, one, other in zip(subject.function.outputs, found, expected, strict=True):
                other = np.asarray(other)
                assert np.asarray(one).shape == other.shape, spec.name
                if other.dtype.kind in "fV":
                    np.testing.assert_allclose(
                        np.asarray(one, np.float64), other.astype(np.float64), atol=tolerance, rtol=tolerance
                    )
                else:
                    np.testing.assert_array_equal(one, other)
        return found

    return checked
