"""The architectures that the onnx package ships, with meaningful weights.

They ship with every weight 0.02, so that all channels of a layer are equal and outputs cannot distinguish a
correct model from a wrong one. Graphs are unchanged (IR version 3, opset 9, weights listed as inputs),
except that initializers replace the nodes that make the constant weights.
"""

from __future__ import annotations

import functools
from pathlib import Path

import onnx
from onnx import helper, numpy_helper

from benchmarks.models.entry import Entry, images
from benchmarks.models.graph import declare
from benchmarks.models.weights import strip

FOLDER = Path(onnx.__file__).resolve().parent / "backend" / "test" / "data" / "light"


def reweighted(name: str) -> onnx.ModelProto:
    """Load the skeleton of a light model and declare weights in place of its constants."""
    model = onnx.load(FOLDER / f"light_{name}.onnx")
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    made = [node for node in graph.node if node.op_type == "ConstantOfShape"]
    for node in made:
        shape = [int(size) for size in numpy_helper.to_array(constants[node.input[0]])]
        graph.initializer.append(declare(node.output[0], shape))
        graph.input.append(helper.make_tensor_value_info(node.output[0], onnx.TensorProto.FLOAT, shape))
        graph.node.remove(node)
    used = {name for node in graph.node for name in node.input}
    for listed in (graph.input, graph.initializer):
        kept = [item for item in listed if item.name in used]
        del listed[:]
        listed.extend(kept)
    return strip(model)


def entry(name: str, data: str, title: str, *, large: bool = False) -> Entry:
    """Create the registry entry for `light_<name>.onnx`, whose image is its input `data`."""
    return Entry(
        name=name,
        about=f"{title} of the onnx package, re-weighted",
        skeleton=functools.partial(reweighted, name),
        inputs=images(data, 1, 3, 224, 224),
        large=large,
    )


ENTRIES = (
    entry("bvlc_alexnet", "data_0", "AlexNet", large=True),
    entry("densenet121", "data_0", "DenseNet-121", large=True),
    entry("inception_v1", "data_0", "Inception v1"),
    entry("inception_v2", "data_0", "Inception v2", large=True),
    entry("resnet50", "gpu_0/data_0", "ResNet-50", large=True),
    entry("shufflenet", "gpu_0/data_0", "ShuffleNet"),
    entry("squeezenet", "data_0", "SqueezeNet"),
    entry("vgg19", "data_0", "VGG-19", large=True),
    entry("zfnet512", "gpu_0/data_0", "ZFNet-512", large=True),
)
