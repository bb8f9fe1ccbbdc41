"""Places are told by the object below `IOBinding`, or by `IOBinding` itself in versions that have no such object.

Outputs of unknown size are what a run allocated, and no later run writes them.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest

from collage_core.contract import Buffer, Unsupported, ValueKind, buffer_over
from collage_onnxruntime import kernel
from collage_onnxruntime.kernel import _Places
from collage_onnxruntime.plugin import plugin
from collage_testing.kit.host_kernels import HostKernels
from collage_testing.kit.written import written


class Told:
    """An `IOBinding` of which nothing is known but its public methods."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def bind_input(self, *arguments: Any) -> None:
        self.told.append(("in", *arguments))

    def bind_output(self, *arguments: Any) -> None:
        self.told.append(("out", *arguments))

    def get_outputs(self) -> list[Any]:
        return self.told


def test_without_the_object_below_the_binding_is_told() -> None:
    x, y, binding = np.zeros((2, 3), np.float32), np.zeros(4, np.int64), Told()
    places = _Places.of(binding)

    places.read("x", buffer_over("x", x))
    places.write("y", buffer_over("y", y))
    places.allocate("z")

    assert binding.told == [
        ("in", "x", "cpu", 0, onnx.TensorProto.FLOAT, (2, 3), x.ctypes.data),
        ("out", "y", "cpu", 0, onnx.TensorProto.INT64, (4,), y.ctypes.data),
        ("out", "z", "cpu", 0),
    ]
    assert places.values() is binding.told


@pytest.mark.parametrize("known", [True, False], ids=["below", "public"])
def test_both_ways_run(known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    if not known:
        monkeypatch.setattr(kernel, "_cpu", lambda: None)
    graph = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[2, 3] x) => (float[2, 3] y) { y = Neg(x) }'
    )
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((2, 3), np.float32)
    binding = session.io_binding()
    places = _Places.of(binding)
    places.read("x", buffer_over("x", x))
    places.write("y", buffer_over("y", y))

    session.run_with_iobinding(binding)

    assert (places.device == ("cpu", 0)) is not known
    np.testing.assert_array_equal(y, -x)


@pytest.mark.parametrize("known", [True, False], ids=["below", "public"])
@pytest.mark.parametrize("dtype", ["FLOAT", "FLOAT16", "BFLOAT16", "INT64", "BOOL"])
def test_what_a_run_allocated_stays_as_it_is(
    dtype: str, known: bool, kernels: HostKernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not known:
        monkeypatch.setattr(kernel, "_cpu", lambda: None)
    what = written(
        f"g (float[6] x, bool[6] wanted) => (float[2,3] twice, {dtype.lower()}[N] some) {{"
        f" few = Compress(x, wanted) some = Cast<to={onnx.TensorProto.DataType.Value(dtype)}>(few)"
        " twice = Reshape(x, shape) }",
        {"shape": np.array([2, 3])},
    )
    [artifact] = kernels.lowered(what)
    loaded = plugin.collage_load(kernels.target, artifact, kernels.run_context(what))
    assert not isinstance(loaded, Unsupported), loaded.reason
    inputs, outputs = ([Buffer(spec) for spec in specs] for specs in (what.function.inputs, what.function.outputs))
    assert [each.spec.kind for each in outputs] == [ValueKind.PLANNED, ValueKind.FOREIGN]
    call = loaded.bind(inputs, outputs, None)
    x = np.array([1, 0, 3, 4, 0, 6], np.float32)
    held = []
    for wanted in ([1, 1, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0], [0, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 1]):
        inputs[0].put(x)
        inputs[1].put(np.array(wanted, bool))
        call()
        np.testing.assert_array_equal(outputs[0].array, x.reshape(2, 3))
        held.append((outputs[1].array, x[np.array(wanted, bool)].astype(outputs[1].spec.numpy_dtype)))
    for found, right in held:
        assert (found.dtype, found.dtype.num) == (right.dtype, right.dtype.num)
        np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("dtype", ["FLOAT", "INT64", "UINT64"])
def test_what_is_passed_by_value_has_the_types_of_numpy(dtype: str, kernels: HostKernels) -> None:
    """NumPy has two types of 64-bit integers, which compare as equal."""
    what = written(
        f"g ({dtype.lower()}[N] x, bool[N] wanted) => ({dtype.lower()}[M] some) {{ some = Compress(x, wanted) }}"
    )
    [artifact] = kernels.lowered(what)
    x = np.arange(3).astype(onnx_ir.DataType[dtype].numpy())
    [some] = kernels.run(what, artifact, {"x": x, "wanted": np.array([1, 0, 1], bool)})

    assert some.dtype.num == x.dtype.num
    np.testing.assert_array_equal(some, x[[0, 2]])


def test_a_call_by_value_keeps_the_weights_that_it_reads(kernels: HostKernels) -> None:
    what = written(
        "g (int64[K] i) => (float[M,40] y) { t = Transpose<perm=[1,0]>(w) y = Gather(t, i) }",
        {"w": np.random.default_rng(0).standard_normal((40, 40)).astype(np.float32)},
    )
    [artifact] = kernels.lowered(what)
    assert artifact.metadata["made"], "the weight is transposed beforehand"
    loaded = plugin.collage_load(kernels.target, artifact, kernels.run_context(what))
    assert not isinstance(loaded, Unsupported), loaded.reason
    inputs, outputs = ([Buffer(spec) for spec in specs] for specs in (what.function.inputs, what.function.outputs))
    assert not any(each.spec.kind is ValueKind.PLANNED for each in (*inputs, *outputs))
    call = loaded.bind(inputs, outputs, None)
    alive = weakref.ref(loaded)
    del loaded

    assert alive() is not None
    inputs[0].put(np.array([3, 39]))
    call()
    np.testing.assert_array_equal(outputs[0].array, what.arrays["w"].T[[3, 39]])


def test_a_binding_keeps_nothing_that_a_run_allocated(kernels: HostKernels, monkeypatch: pytest.MonkeyPatch) -> None:
    what = written(
        "g (float[6] x, bool[6] wanted) => (float[6] y, float[N] some) { y = Neg(x) some = Compress(x, wanted) }"
    )
    [artifact] = kernels.lowered(what)
    loaded = plugin.collage_load(kernels.target, artifact, kernels.run_context(what))
    assert isinstance(loaded, kernel.OnnxRuntimeKernel), loaded
    made: list[Any] = []
    new = loaded._session.io_binding

    def noted() -> Any:
        made.append(new())
        return made[-1]

    monkeypatch.setattr(loaded._session, "io_binding", noted)
    inputs, outputs = ([Buffer(spec) for spec in specs] for specs in (what.function.inputs, what.function.outputs))
    call = loaded.bind(inputs, outputs, None)
    inputs[0].put(np.arange(6, dtype=np.float32))
    inputs[1].put(np.ones(6, bool))
    call()

    [binding] = made
    assert [value.has_value() for value in binding._iobinding.get_outputs()] == [True, False]
    np.testing.assert_array_equal(outputs[1].array, inputs[0].array)
