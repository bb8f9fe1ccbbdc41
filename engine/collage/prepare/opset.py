"""Convert a model to one version of the default opset."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from collage.prepare.validity import large_weights, serialized_without
from collage_core.ir.io.inference import all_graphs

TARGET_OPSET = 21
"""Opset that older models are converted to; newer ones keep theirs.

21 belongs to IR version 10 and is supported by every toolchain measured: ONNX Runtime 1.31 (which refuses 27),
OpenVINO 2026.4, TVM's importer. From 18 to 26 ONNX Runtime fuses the same nodes of BERT, ConvNeXt and Segformer,
so a higher version would gain nothing; 22 and later add element types and new operators.
"""
_COORDINATES = "coordinate_transformation_mode"


def upgrade_opset(model: ir.Model) -> ir.Model:
    """Return the model at `TARGET_OPSET` if it is older and ONNX's converter can do it; else as it is.

    A model with functions of its own stays as it is: their bodies have their own version, which a converted
    model would contradict.
    """
    version = model.opset_imports.get("", model.opset_imports.get("ai.onnx"))
    if version is None or version >= TARGET_OPSET or model.functions or _is_misconverted(model, version):
        return model
    weights = large_weights(model)  # what conversion moves (axes, pads, scales) is far smaller
    proto = serialized_without(model, weights)
    try:
        converted = onnx.version_converter.convert_version(proto, TARGET_OPSET)
        if _is_valid(proto) and not _is_valid(converted):
            return model
    except Exception:  # no adapter for some operator: every toolchain still reads the old version
        return model
    result = ir.serde.deserialize_model(converted)
    if version < 11:
        _keep_coordinates(result)
    _restore(result, model, weights)
    return result


def _is_misconverted(model: ir.Model, version: int) -> bool:
    """Return whether ONNX's version converter would convert a node incorrectly (onnx 1.23, `convert.h`).

    Scan lost its batch axis in opset 9; the converter drops the lengths and leaves the axis. Hardmax flattened its
    operand up to opset 12. GroupNormalization had a scale for each group up to opset 20, and has one for each channel.
    Resize lost a kind of coordinates in opset 13. The converter leaves these as they are.
    """
    until = {"Scan": 9, "Hardmax": 13, "GroupNormalization": 21}
    nodes = list(model.graph.all_nodes())
    lost = any(node.attributes.get_string(_COORDINATES) == "tf_half_pixel_for_nn" for node in nodes)
    return (version < 13 and lost) or any(version < until.get(node.op_type, 0) for node in nodes)


def _keep_coordinates(model: ir.Model) -> None:
    """Give each Resize the coordinates that it had before opset 11, as Upsample; the converter leaves other defaults.

    The text of these versions names none. ONNX Runtime has `asymmetric` ones, as its maintainers say
    (microsoft/onnxruntime issue 4419), and OpenVINO has them, too.
    """
    for node in model.graph.all_nodes():
        if node.op_type == "Resize" and node.domain in ("", "ai.onnx"):
            node.attributes[_COORDINATES] = ir.AttrString(_COORDINATES, "asymmetric")
            node.attributes["nearest_mode"] = ir.AttrString("nearest_mode", "floor")


def _is_valid(proto: onnx.ModelProto) -> bool:
    try:
        onnx.checker.check_model(proto)
    except onnx.checker.ValidationError:
        return False
    return True


def _restore(result: ir.Model, model: ir.Model, weights: dict[str, ir.Value]) -> None:
    """Put back what ONNX's converter does not carry: weights, types that nobody can infer, metadata."""
    graph = result.graph
    values = list(graph.inputs)
    graph.inputs.clear()
    graph.inputs.extend(values[: len(model.graph.inputs)])
    for value in values[len(model.graph.inputs) :]:
        value.const_value = weights[str(value.name)].const_value
        graph.register_initializer(value)
    result.ir_version = model.ir_version
    result.producer_name, result.producer_version = model.producer_name, model.producer_version
    result.domain, result.model_version = model.domain, model.model_version
    result.doc_string = model.doc_string
    result.metadata_props.update(model.metadata_props)
    graph.metadata_props.update(model.graph.metadata_props)
    before = {value.name: value for value in _outputs(model)}
    for value in _outputs(result):
        old = before.get(value.name)
        if old is None:
            continue
        value.type = value.type or old.type
        value.shape = value.shape or old.shape
        value.metadata_props.update(old.metadata_props)
        node, old_node = value.producer(), old.producer()
        if node is not None and old_node is not None:
            node.metadata_props.update(old_node.metadata_props)
            node.name = node.name or old_node.name


def _outputs(model: ir.Model) -> list[ir.Value]:
    return [value for graph in all_graphs(model.graph) for node in graph for value in node.outputs]
