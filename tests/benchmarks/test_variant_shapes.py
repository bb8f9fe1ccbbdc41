"""The thirty layers: they are layers of the models they name, and what is right is what ONNX's reference says."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import onnx_ir
import pytest

from benchmarks.models import MODELS
from benchmarks.models.torch_zoo import ZOO
from benchmarks.variant_shapes import DTYPES, SHAPES, Shape, layer_of, slid
from collage.prepare.steps import prepare
from collage.reference import discrepancy_of, evaluate
from collage_core.ir.graph.dataflow import DataflowGraph

SMALL = {
    "product": Shape(model="m", layer="l", operator="MatMul", reads=(2, 5, 8), weight=(8, 6)),
    "stride": Shape(
        model="m",
        layer="l",
        operator="Conv",
        reads=(2, 3, 9, 8),
        weight=(4, 3, 3, 2),
        strides=(2, 3),
        pads=(1, 0),
    ),
    "groups": Shape(
        model="m",
        layer="l",
        operator="Conv",
        reads=(1, 6, 5, 5),
        weight=(4, 3, 3, 3),
        strides=(1, 1),
        pads=(1, 1),
        group=2,
        relu=True,
    ),
    "video": Shape(
        model="m",
        layer="l",
        operator="Conv",
        reads=(1, 2, 4, 5, 4),
        weight=(3, 2, 3, 3, 3),
        strides=(1, 2, 1),
        pads=(1, 1, 1),
    ),
    "transposed": Shape(
        model="m",
        layer="l",
        operator="ConvTranspose",
        reads=(2, 4, 3, 4),
        weight=(4, 2, 4, 3),
        strides=(2, 1),
        pads=(1, 0),
    ),
    "transposed in groups": Shape(
        model="m",
        layer="l",
        operator="ConvTranspose",
        reads=(1, 4, 3, 3),
        weight=(4, 2, 2, 2),
        strides=(2, 2),
        pads=(0, 0),
        group=2,
    ),
}


@pytest.mark.parametrize("name", SMALL)
def test_what_is_right_is_what_the_reference_says(name: str) -> None:
    shape = SMALL[name]
    layer = layer_of(shape, "float32")

    [right] = [evaluate(layer.model, {"x": layer.read}).values[str(value.name)] for value in layer.model.graph.outputs]

    assert right.shape == layer.right.shape == shape.gives
    assert discrepancy_of(layer.right, right).error < 1e-5
    assert 0.3 < float(np.std(right)) < 3  # of sums that are about one, and of biases, of which there are few


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_are_the_models_own_whatever_its_type(dtype: str) -> None:
    element, numpy_dtype = DTYPES[dtype]
    layer = layer_of(SMALL["groups"], dtype)

    assert {value.dtype for value in layer.model.graph.initializers.values()} == {element}
    assert layer.read.dtype == layer.right.dtype == numpy_dtype
    weight = layer.model.graph.initializers["weight"].const_value
    assert weight is not None
    wide = slid(SMALL["groups"], layer.read.astype(np.float32), weight.numpy().astype(np.float32))
    bias = layer.model.graph.initializers["bias"].const_value
    assert bias is not None
    sums = np.maximum(wide + bias.numpy().astype(np.float32).reshape(-1, 1, 1), 0)
    np.testing.assert_array_equal(layer.right, sums.astype(numpy_dtype))


def test_work_is_two_operations_for_each_product() -> None:
    counted = {"product": 2 * 5 * 6 * 8, "stride": 2 * 4 * 5 * 3 * (3 * 3 * 2), "groups": 4 * 5 * 5 * (3 * 9)}

    assert {name: SMALL[name].gflop * 1e9 / 2 for name in counted} == pytest.approx(counted)


def test_there_are_thirty_of_which_half_are_convolutions_and_each_has_its_name() -> None:
    assert len({shape.key for shape in SHAPES}) == len(SHAPES) == 30
    kinds = collections.Counter(shape.operator for shape in SHAPES)
    assert kinds["MatMul"] == 15
    assert kinds["ConvTranspose"] > 0
    assert {shape.model for shape in SHAPES} >= {"resnet50", "bert", "gpt2", "vit", "resnext50"}
    assert all(0.005 < shape.gflop < 50 for shape in SHAPES)


@pytest.mark.parametrize("name", sorted({shape.model for shape in SHAPES} - set(ZOO)))
def test_layers_of_the_suite_are_nodes_of_their_model(name: str) -> None:
    graph = DataflowGraph(prepare(onnx_ir.from_proto(MODELS[name].skeleton())))

    for shape in (each for each in SHAPES if each.model == name):
        node = graph.nodes[graph.index_of(shape.layer)]
        image, weight = (value.shape.numpy() for value in node.inputs[:2] if value is not None and value.shape)
        assert node.op_type == shape.operator
        assert (image, weight) == (shape.reads, shape.weight)
        assert tuple(node.attributes["strides"].as_ints()) == shape.strides
        assert tuple(node.attributes["pads"].as_ints()) == shape.pads * 2
        readers = [reader.op_type for reader, _ in node.outputs[0].uses()]
        assert (readers == ["Relu"]) is shape.relu


ZOO_LAYERS = [shape for shape in SHAPES if shape.model in ZOO]


@pytest.mark.parametrize("shape", ZOO_LAYERS, ids=[shape.key for shape in ZOO_LAYERS])
def test_layers_of_the_zoo_are_modules_of_their_model(shape: Shape) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch, which makes these models, is not installed")
    with torch.device("meta"):  # shapes alone
        whole = ZOO[shape.model].module()
        feeds = [torch.from_numpy(each).to("meta") for each in ZOO[shape.model].make_inputs(shape.reads[0]).values()]
        module = whole.get_submodule(shape.layer)
        seen: list[tuple[Any, Any]] = []
        module.register_forward_hook(lambda _, given, got: seen.append((tuple(given[0].shape), tuple(got.shape))))
        whole(*feeds)

    assert seen == [(shape.reads, shape.gives)]
    product = shape.operator == "MatMul"
    weight = tuple(module.weight.shape)
    assert (weight[::-1] if product else weight) == shape.weight  # torch has a product's the other way round
    if not product:
        assert (module.stride, module.padding, module.groups) == (shape.strides, shape.pads, shape.group)
        kinds = {"Conv": (torch.nn.Conv2d, torch.nn.Conv3d), "ConvTranspose": (torch.nn.ConvTranspose2d,)}
        assert isinstance(module, kinds[shape.operator])


def test_every_model_of_the_list_is_known() -> None:
    assert {shape.model for shape in SHAPES} <= {*ZOO, *MODELS}
