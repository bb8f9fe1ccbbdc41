"""Bodies: the first blocks of models of the suite, so few that all their candidates can be measured."""

from __future__ import annotations

import functools
import random

from onnx import helper

from benchmarks.models import detector, efficientnet, segmenter, super_resolution, video
from benchmarks.models.graph import GraphWriter
from benchmarks.models.light import reweighted
from benchmarks.regret.feature import Body, Feature, shaped


def mobilenet(g: GraphWriter, x: Feature, draw: random.Random) -> Feature:
    """Append the segmenter's stem and one of its inverted residuals."""
    stem = g.op("HardSwish", g.conv(x.tensor, 16, 3, stride=2))
    block = draw.choice([each for each in segmenter.BLOCKS if each.expanded <= 240 and each.stride == 2])
    return shaped(g, "image", segmenter.inverted_residual(g, stem, block))


def separable(g: GraphWriter, x: Feature, draw: random.Random) -> Feature:
    """Append the detector's stem and one separable convolution."""
    stem = g.op("HardSwish", g.conv(x.tensor, draw.choice([24, 32]), 3, stride=2))
    return shaped(g, "image", detector.separable(g, stem, draw.choice([64, 96]), 2))


def squeeze_excite(g: GraphWriter, x: Feature, draw: random.Random) -> Feature:
    """Append EfficientNet's stem and one weighting of its channels."""
    stem = g.conv(x.tensor, draw.choice([48, 64]), 3, stride=2)
    return shaped(g, "image", efficientnet.squeeze_excite(g, stem, 8))


def attention_map(g: GraphWriter, x: Feature, draw: random.Random) -> Feature:
    """Append a convolution and the spatial attention of the super-resolution model."""
    stem = g.conv(x.tensor, draw.choice([48, 64]), 3, stride=2)
    return shaped(g, "image", super_resolution.spatial_attention(g, stem))


def plain(layers: int, g: GraphWriter, x: Feature, draw: random.Random) -> Feature:
    """Append convolutions with Relu, as in VGG-19."""
    y, width = x.tensor, draw.choice([32, 48])
    for layer in range(layers):
        y = g.op("Relu", g.conv(y, width, 3, stride=2 if layer == 0 else 1))
    return shaped(g, "image", y)


def transposed_mlp(g: GraphWriter, x: Feature, draw: random.Random) -> Feature:
    """Append ConvNeXt's patches, a depthwise convolution, and normalisation with channels last."""
    width = draw.choice([64, 96])
    y = g.conv(x.tensor, width, 4, stride=4, pad=False)
    y = g.op("Transpose", g.conv(y, width, 7, group=width), perm=[0, 2, 3, 1])
    y = g.op("LayerNormalization", y, g.weight("norm_scale", width), g.weight("norm_bias", width), axis=-1)
    y = g.op("Relu", g.op("MatMul", y, g.weight("matmul_weight", width, width * 4)))
    y = g.op("MatMul", y, g.weight("matmul_weight", width * 4, width))
    return shaped(g, "image", g.op("Transpose", y, perm=[0, 3, 1, 2], channels=width))


def light(name: str, nodes: int, g: GraphWriter, x: Feature, draw: random.Random) -> Feature:
    """Append the first nodes of a model that the onnx package ships.

    Args:
        name: Model, as `light.reweighted` takes it.
        nodes: How many nodes; the output of the last is the feature.
        g: The graph.
        x: An image of three channels.
        draw: Not used: nothing is left to chance.
    """
    model = reweighted(name)
    weights = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    [data] = [value.name for value in model.graph.input if value.name not in weights]
    known = {data: x.tensor}
    for node in model.graph.node[:nodes]:
        attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        channels = None
        for each in node.input:
            if each not in known:
                known[each] = g.weight(f"{node.op_type.lower()}_weight", *weights[each])
        if node.op_type == "Conv":
            channels = weights[node.input[1]][0]
        elif node.op_type == "Concat":
            channels = sum(g.channels(known[each]) for each in node.input)
        y = g.op(node.op_type, *(known[each] for each in node.input), channels=channels, **attributes)
        known[node.output[0]] = y
    return shaped(g, "image", y)


def patches(g: GraphWriter, x: Feature, draw: random.Random) -> Feature:
    """Append ViT's patch embedding, with the normalisation of its first layer."""
    width, patch = draw.choice([256, 384]), 16
    y = g.conv(x.tensor, width, patch, stride=patch, pad=False)
    cells = (x.shape[2] // patch) * (x.shape[3] // patch)
    y = g.op("Transpose", g.op("Reshape", y, g.ints(1, width, cells)), perm=[0, 2, 1])
    y = g.op("Add", y, g.weight("positions", 1, cells, width))
    y = g.op("LayerNormalization", y, g.weight("norm_scale", width), g.weight("norm_bias", width), axis=-1)
    return shaped(g, "tokens", y)


def mlp(g: GraphWriter, x: Feature, draw: random.Random) -> Feature:
    """Append the second half of a transformer's layer: two dense layers beside a residual."""
    width, wide = x.channels, x.channels * draw.choice([2, 4])
    y = g.op("Relu", g.op("MatMul", x.tensor, g.weight("matmul_weight", width, wide)))
    y = g.op("MatMul", y, g.weight("matmul_weight", wide, width))
    return shaped(g, "tokens", g.op("Add", x.tensor, y))


def temporal(g: GraphWriter, x: Feature, draw: random.Random) -> Feature:
    """Append dilated convolutions over time, as of a speech front end."""
    width = draw.choice([128, 192, 256])
    y = g.op("Transpose", x.tensor, perm=[0, 2, 1], channels=x.channels)
    for dilation in (1, 2):
        y = g.op("Relu", g.conv(y, width, [3], dilation=dilation))
    return shaped(g, "tokens", g.op("Transpose", y, perm=[0, 2, 1]))


def conv3d(layers: int, g: GraphWriter, x: Feature, draw: random.Random) -> Feature:
    """Append the first layer of the lip-reading model, or the first two."""
    y = g.op("Relu", g.conv(x.tensor, draw.choice([16, 24]), (3, 5, 5), stride=(1, 2, 2)))
    y = g.op("MaxPool", y, kernel_shape=[1, 2, 2], strides=[1, 2, 2])
    if layers > 1:
        y = g.op("Relu", g.conv(y, draw.choice([32, 48]), (3, 3, 3)))
    return shaped(g, "clip", y)


def resnet3d(g: GraphWriter, x: Feature, draw: random.Random) -> Feature:
    """Append the stem of 3D-ResNet-18 and a second convolution like it."""
    y = video.conv_bn_relu(g, x.tensor, draw.choice([16, 32]), (3, 7, 7), (1, 2, 2))
    return shaped(g, "clip", video.conv_bn_relu(g, y, 32, (3, 3, 3), (2, 2, 2)))


def _light(name: str, model: str, operators: int) -> Body:
    """Return the body of the first nodes of a model that the onnx package ships."""
    build = functools.partial(light, model, operators)
    return Body(name=name, takes="image", makes="image", operators=operators, build=build, needs_pixels=True)


BODIES = (
    Body(name="mobilenet", takes="image", makes="image", operators=7, build=mobilenet),
    Body(name="separable", takes="image", makes="image", operators=6, build=separable),
    Body(name="efficientnet", takes="image", makes="image", operators=8, build=squeeze_excite),
    Body(name="attention-map", takes="image", makes="image", operators=7, build=attention_map),
    Body(name="vgg", takes="image", makes="image", operators=4, build=functools.partial(plain, 2)),
    Body(name="vgg-stem", takes="image", makes="image", operators=2, build=functools.partial(plain, 1)),
    Body(name="convnext", takes="image", makes="image", operators=8, build=transposed_mlp),
    _light("squeezenet", "squeezenet", 5),
    _light("squeezenet-stem", "squeezenet", 3),
    _light("resnet", "resnet50", 7),
    _light("inception", "inception_v1", 6),
    Body(name="vit", takes="image", makes="tokens", operators=4, build=patches),
    Body(name="transformer", takes="tokens", makes="tokens", operators=4, build=mlp),
    Body(name="temporal", takes="tokens", makes="tokens", operators=6, build=temporal),
    Body(name="conv3d-stem", takes="clip", makes="clip", operators=3, build=functools.partial(conv3d, 1)),
    Body(name="conv3d", takes="clip", makes="clip", operators=5, build=functools.partial(conv3d, 2)),
    Body(name="resnet3d", takes="clip", makes="clip", operators=6, build=resnet3d),
)
