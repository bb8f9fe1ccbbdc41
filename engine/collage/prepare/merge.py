"""Merge nodes: equal ones with each other, normalisation and padding into convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from collage.prepare.fold import NEVER_MERGED, fresh_name, rename_through
from collage.prepare.noop import constant_of, known_tensor
from collage_core.ir.graph.walk import bodies
from collage_core.ir.operators.quantised import is_dequantize
from collage_core.ir.values.content import tensor_content_hash

_KEY_LIMIT = 1024
"""Largest number of elements of an attribute tensor that is compared; larger tensors count as different."""


def merge_equal_nodes(graph: ir.Graph, functions: Any) -> bool:
    """Merge nodes of equal operator, inputs and attributes, sub-graphs each on their own.

    Only operators of the standard domains, which are known to be functions of their inputs. Random ones and those
    with sub-graphs (which may hold random ones) stay.
    """
    changed = False
    seen: dict[object, ir.Node] = {}
    for node in graph:
        held = list(bodies(node))
        for body in held:
            changed |= merge_equal_nodes(body, functions)
        if held or node.op_identifier() in functions:
            continue
        key = _key(node)
        if key is None:
            continue
        first = seen.setdefault(key, node)
        if first is node or any(value.is_graph_output() for value in node.outputs):
            continue
        for mine, theirs in zip(node.outputs, first.outputs, strict=True):
            mine.replace_all_uses_with(theirs)
        graph.remove(node, safe=True)
        changed = True
    return changed


def fuse_batch_normalization(graph: ir.Graph) -> bool:
    """Fold BatchNormalization (inference) into the Conv, ConvTranspose or Gemm that feeds only it.

    As ONNX Runtime and OpenVINO do when they load a model. The new weights are computed in float64 and rounded
    once.
    """
    changed = False
    for node in list(graph):
        if node.op_type != "BatchNormalization" or node.domain != "":
            continue
        maker = node.inputs[0].producer() if node.inputs[0] is not None else None
        if maker is None or not _feeds_only(maker, node, graph):
            continue
        if _fuse_one_normalization(graph, maker, node):
            changed = True
    return changed


def fuse_padding(graph: ir.Graph) -> bool:
    """Fold a Pad with zeros, of the spatial axes only, into the convolutions it feeds.

    The padded tensor is then never written. TensorFlow-style exports put one in front of each convolution.
    """
    changed = False
    for node in list(graph):
        if node.op_type != "Conv" or node.domain != "" or node.inputs[0] is None:
            continue
        pad = node.inputs[0].producer()
        if pad is None or pad.op_type != "Pad" or pad.domain != "" or pad.graph is not graph:
            continue
        amounts = _zero_padding(pad)
        if amounts is None or node.attributes.get_string("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
            continue
        rank = len(amounts) // 2
        added = amounts[2:rank] + amounts[rank + 2 :]
        own = node.attributes.get_ints("pads", [0] * len(added))
        node.attributes.pop("auto_pad", None)
        pads = [int(a + b) for a, b in zip(added, own, strict=True)]
        node.attributes["pads"] = ir.AttrInt64s("pads", pads)
        node.replace_input_with(0, pad.inputs[0])
        changed = True
    return changed


def _key(node: ir.Node) -> object:
    if node.domain not in ("", "ai.onnx.ml") or node.op_type in NEVER_MERGED or not node.inputs:
        return None
    if is_dequantize(node):  # each reader has one of its own: `prepare_quantised`
        return None
    if node.op_type == "Dropout" and len(node.inputs) > 2:
        return None
    attributes = []
    for name, attribute in sorted(node.attributes.items()):
        if attribute.is_ref():
            return None
        value: Any = attribute.value
        if attribute.type == ir.AttributeType.TENSOR:
            if value.size > _KEY_LIMIT:
                return None
            value = (tuple(value.shape), value.dtype, tensor_content_hash(value))
        elif attribute.type in (ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS):
            value = tuple(value)
        elif attribute.type not in (ir.AttributeType.INT, ir.AttributeType.FLOAT, ir.AttributeType.STRING):
            return None
        attributes.append((name, value))
    # an output that is present has a meaning of its own in some operators (LSTM, Dropout's mask)
    present = tuple(bool(value.name) for value in node.outputs)
    return (node.op_identifier(), tuple(map(id, node.inputs)), tuple(attributes), present)


def _feeds_only(maker: ir.Node, node: ir.Node, graph: ir.Graph) -> bool:
    value = maker.outputs[0]
    return (
        maker.domain == ""
        and maker.graph is graph
        and not value.is_graph_output()
        and all(user is node for user, _ in value.uses())
    )


def _fuse_one_normalization(graph: ir.Graph, maker: ir.Node, node: ir.Node) -> bool:
    if node.attributes.get_int("training_mode", 0):
        return False
    if any(value.uses() or value.is_graph_output() for value in node.outputs[1:]):
        return False
    weight = _weights(maker.inputs[1])
    parameters = [_weights(value) for value in node.inputs[1:5]]
    if weight is None or any(each is None for each in parameters):
        return False
    gamma, beta, mean, variance = (np.asarray(each, np.float64) for each in parameters)
    epsilon = node.attributes.get_float("epsilon", 1e-5)
    bias_value = maker.inputs[2] if len(maker.inputs) > 2 else None
    bias = np.float64(0) if bias_value is None else _weights(bias_value)
    if bias is None or not np.isfinite(gamma / np.sqrt(variance + epsilon)).all():
        return False
    factor = gamma / np.sqrt(variance + epsilon)
    scaled = _scaled_weight(maker, np.asarray(weight, np.float64), factor)
    if scaled is None:
        return False
    if maker.op_type == "Gemm" and "beta" in maker.attributes:
        bias = np.asarray(bias, np.float64) * maker.attributes.pop("beta").as_float()
    shifted = (np.asarray(bias, np.float64) - mean) * factor + beta
    output = node.outputs[0]
    new_weight = _initializer(graph, f"weight_{output.name}", scaled, weight.dtype)
    new_bias = _initializer(graph, f"bias_{output.name}", shifted, weight.dtype)
    maker.resize_inputs(3)
    maker.replace_input_with(1, new_weight)
    maker.replace_input_with(2, new_bias)
    source = maker.outputs[0]
    source.type, source.shape = output.type or source.type, output.shape or source.shape
    return rename_through(graph, node, source)


def _scaled_weight(maker: ir.Node, weight: Any, factor: Any) -> Any:
    if maker.op_type == "Conv":
        return weight * factor.reshape(-1, *[1] * (weight.ndim - 1))
    if maker.op_type == "ConvTranspose":
        group = maker.attributes.get_int("group", 1)
        split = weight.reshape(group, weight.shape[0] // group, *weight.shape[1:])
        per_group = factor.reshape(group, 1, weight.shape[1], *[1] * (weight.ndim - 2))
        return (split * per_group).reshape(weight.shape)
    if maker.op_type == "Gemm":
        return weight * (factor[:, None] if maker.attributes.get_int("transB", 0) else factor[None, :])
    return None


def _weights(value: ir.Value | None) -> Any:
    tensor = known_tensor(value)
    return None if tensor is None else tensor.numpy()


def _initializer(graph: ir.Graph, name: str, array: Any, dtype: Any) -> ir.Value:
    name = fresh_name(graph, name)
    value = ir.val(name, const_value=ir.Tensor(np.ascontiguousarray(array, dtype=dtype), name=name))
    graph.register_initializer(value)
    return value


def _zero_padding(pad: ir.Node) -> list[int] | None:
    """Return a Pad's amounts in the order of all axes, or None unless a Conv can do it."""
    if pad.attributes.get_string("mode", "constant") != "constant":
        return None
    source = pad.inputs[0]
    given = constant_of(pad.inputs[1]) if len(pad.inputs) > 1 else None
    if given is None or source is None or source.shape is None:
        return None
    fill = pad.inputs[2] if len(pad.inputs) > 2 else None
    if fill is not None and ((value := constant_of(fill)) is None or value.any()):
        return None
    rank = len(source.shape)
    axes = list(range(rank))
    if len(pad.inputs) > 3 and pad.inputs[3] is not None:
        chosen = constant_of(pad.inputs[3])
        if chosen is None:
            return None
        axes = [int(axis) % rank for axis in chosen]
    amounts = [0] * (2 * rank)
    for position, axis in enumerate(axes):
        amounts[axis] = int(given[position])
        amounts[axis + rank] = int(given[position + len(axes)])
    outside = amounts[:2] + amounts[rank : rank + 2]
    return None if any(outside) or min(amounts) < 0 or rank < 3 else amounts
