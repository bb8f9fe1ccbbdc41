"""What PyTorch exports goes straight into `collage.optimize`: a real `ONNXProgram`, not a stand-in.

PyTorch is 200 MB and more, so the default environment has it not, and these tests are skipped there; `tox -e torch` has
it.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import collage

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("onnxscript", reason="PyTorch's exporter needs onnxscript")

pytestmark = pytest.mark.plugins
OPTIONS: dict[str, Any] = {"toolchains": "onnxruntime", "preset": "quick", "tuning_db": "memory:"}


class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A convolution, a reduction and a product, with weights of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        return self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3))).softmax(-1)


@pytest.fixture(scope="module")
def net() -> Any:
    torch.manual_seed(0)
    return Net().eval()


def program(net: Any, x: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyTorch about itself
        found = torch.onnx.export(net, (x,), dynamo=True, verbose=False, **options)
    assert type(found).__name__ == "ONNXProgram"
    return found


def test_an_exported_program_is_optimized_as_it_is(net: Any) -> None:
    x = torch.randn(2, 3, 16, 16)
    exported = program(net, x)
    before = exported.model_proto.SerializeToString()

    session = collage.optimize(exported, **OPTIONS).session()
    [y] = session.run(None, {session.get_inputs()[0].name: x.numpy()})

    np.testing.assert_allclose(y, net(x).detach().numpy(), rtol=1e-4, atol=1e-6)
    assert exported.model_proto.SerializeToString() == before, "the caller's program is left alone"


def test_a_program_with_a_free_dimension_gets_its_shapes(net: Any) -> None:
    exported = program(net, torch.randn(2, 3, 16, 16), dynamic_shapes=[{0: torch.export.Dim("batch", min=1, max=64)}])
    name = exported.model.graph.inputs[0].name
    shapes = [{name: (batch, 3, 16, 16)} for batch in (1, 4)]

    session = collage.optimize(exported, input_shapes=shapes, **OPTIONS).session()

    for batch in (1, 4):
        x = torch.randn(batch, 3, 16, 16)
        [y] = session.run(None, {name: x.numpy()})
        np.testing.assert_allclose(y, net(x).detach().numpy(), rtol=1e-4, atol=1e-6)


def test_tensors_are_bound_where_they_are(net: Any) -> None:
    x = torch.randn(2, 3, 16, 16)
    session = collage.optimize(program(net, x), **OPTIONS).session()
    name, result = session.get_inputs()[0].name, session.get_outputs()[0].name
    y = torch.full((2, 5), float("nan"))

    bound = session.bind({name: x}, {result: y})
    bound.run()

    np.testing.assert_allclose(y.numpy(), net(x).detach().numpy(), rtol=1e-4, atol=1e-6)
