"""Places are told by the object below `IOBinding`, or by `IOBinding` itself in versions that have no such object."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from collage_core.contract import buffer_over
from collage_onnxruntime import kernel
from collage_onnxruntime.kernel import _Places


class Told:
    """An `IOBinding` of which nothing is known but its public methods."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def bind_input(self, *arguments: Any) -> None:
        self.told.append(("in", *arguments))

    def bind_output(self, *arguments: Any) -> None:
        self.told.append(("out", *arguments))


def test_without_the_object_below_the_binding_is_told() -> None:
    x, y, binding = np.zeros((2, 3), np.float32), np.zeros(4, np.int64), Told()
    places = _Places.of(binding)

    places.read("x", buffer_over("x", x))
    places.write("y", buffer_over("y", y))

    assert binding.told == [
        ("in", "x", "cpu", 0, onnx.TensorProto.FLOAT, (2, 3), x.ctypes.data),
        ("out", "y", "cpu", 0, onnx.TensorProto.INT64, (4,), y.ctypes.data),
    ]


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
