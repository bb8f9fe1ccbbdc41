"""Turn a model as exporters write it into the form that all later steps work on.

`prepare` binds the input shapes, inlines functions, converts the model to one opset, infers every shape, folds
constants and removes no-ops. It changes neither the model's inputs and outputs nor its values (beyond the
rounding of weights into which a normalisation is folded). It preserves the forms that toolchains recognise:
Gelu and LayerNormalization sub-graphs, MatMul and Gemm with their weight layouts, quantised operators, each of
which gets its own conversions (`prepare_quantised`).

No existing library suffices alone. Nodes of TorchScript exports with dynamic axes, before, then left by
onnxscript.optimizer 0.7, by onnxslim 0.1.98, and here:

    MobileNetV2      1093    168    100    100
    BERT, 6 layers    610    287    179    215
    ConvNeXt-T        451    289    307    289
    Swin-T           4097   1391    643    642
    Segformer-B0     1527    416    554    408

onnxslim leaves shape arithmetic where its symbolic inference fails (Swin, Segformer), turns MatMul and Add into
Reshape, Gemm and Reshape (BERT, ConvNeXt), and requires the weights in one protobuf; onnxscript's folding skips
a fixed list of operators and takes half a minute on Swin. With static inputs all shape-dependent values reduce
to constant folding. So this package folds node by node with ONNX's inference and evaluator, combined with
onnx_ir's passes; no weight is serialised. ONNX Runtime's own optimiser makes the same nodes of the prepared
model as of the original, or fewer (Swin 524 instead of 555).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import onnx_ir as ir
import onnx_ir.passes.common as common_passes

from collage.prepare.fold import Folder
from collage.prepare.merge import fuse_batch_normalization, fuse_padding, merge_equal_nodes
from collage.prepare.opset import upgrade_opset
from collage.prepare.reshape_targets import make_targets_constant
from collage.prepare.separate_dequantized import separate_dequantized
from collage.prepare.shapes import bind_input_shapes, bound_shapes, free_symbols
from collage.prepare.symbolic import forget_data, infer_symbolic
from collage.prepare.validity import blamed_on, check_sound
from collage_core.errors import ModelError
from collage_core.ir.io.inference import all_graphs, infer_model
from collage_core.ir.io.model_io import bring_inside
from collage_core.ir.io.quiet import only_errors_of
from collage_core.ir.values.size_range import Extent, Shape

PRIMITIVE_KEY = "collage.primitive"
"""Metadata key of functions that are already kernels: fused earlier, or annotated by hand."""

MINIMUM_IR_VERSION = 10
"""First IR version whose functions and nodes have metadata."""

_MAX_ROUNDS = 10


def prepare(
    model: ir.Model, *, input_shapes: Mapping[str, Sequence[Extent]] | None = None, keep_free: bool = False
) -> ir.Model:
    """Return a prepared copy of a model; the weights that did not change are shared with it.

    Preparing a prepared model gives the same model.

    Args:
        model: Any valid model, with its external data (if any) in place.
        input_shapes: A shape for each input that has free dimensions, by name; an extent may be a range, and varies
            then. A dimension symbol is bound in all inputs by one of them.
        keep_free: Whether dimensions may stay free. Shape arithmetic that depends on them stays in the model then.

    Returns:
        A model with static inputs (but for extents that are ranges or may stay free), one version of the default opset
        (`prepare_opset` says which), IR version at least 10, unique node and value names, no functions but kernels, no
        dead node and no Constant node but of strings. A graph output that is constant is the Identity of an
        initializer.

    Raises:
        InputShapeError: If an input dimension stays free that may not, or a shape contradicts the model.
        InvalidModelError: If something that is not valid ONNX stands in the way, a circle of nodes for one.
        NewerModelError: If the model is of a version of ONNX that is not known here.
        ModelError: If a function cannot be inlined.
    """
    with blamed_on(model):
        # a value that nothing gives cannot even be cloned
        check(model, input_shapes=input_shapes, keep_free=keep_free)
        return _prepared(model.clone(), input_shapes or {}, keep_free=keep_free)


def check(
    model: ir.Model, *, input_shapes: Mapping[str, Sequence[Extent]] | None = None, keep_free: bool = False
) -> dict[str, Shape]:
    """See what can be seen before ONNX's own code looks at a model: it takes no time, and ends no process.

    Args:
        model: As for `prepare`; it is only looked at.
        input_shapes: As for `prepare`.
        keep_free: As for `prepare`.

    Returns:
        The shape `prepare` gives each input that is a tensor, by name.

    Raises:
        ModelError: As `prepare` does.
    """
    with blamed_on(model):
        check_sound(model)
        return bound_shapes(model, input_shapes or {}, keep_free=keep_free)


def _prepared(model: ir.Model, input_shapes: Mapping[str, Sequence[Extent]], *, keep_free: bool) -> ir.Model:
    model.ir_version = max(model.ir_version or 0, MINIMUM_IR_VERSION)
    bring_inside(model)
    forget_data(model)  # of whoever made the model, for whatever sizes
    common_passes.RemoveInitializersFromInputsPass()(model)
    _inline(model)
    _sort(model)
    model = upgrade_opset(model)
    bind_input_shapes(model, input_shapes, keep_free=keep_free)
    with blamed_on(model):  # folding brings out shapes that contradict a node, which the model as given did not show
        _simplify(model)
    upgraded = upgrade_opset(model)  # what no converter knows may have been folded
    if upgraded is not model:
        model = upgraded
        with blamed_on(model):
            _simplify(model)
    separate_dequantized(model.graph)
    _check_kernels(model)
    common_passes.RemoveUnusedFunctionsPass()(model)  # type: ignore[no-untyped-call]
    common_passes.RemoveUnusedOpsetsPass()(model)
    _name(model)
    return model


def _simplify(model: ir.Model) -> None:
    """Fold, merge and fuse until nothing changes."""
    graph = model.graph
    symbols = free_symbols(model)
    infer = functools.partial(infer_symbolic, symbols=symbols) if symbols else infer_model
    _name(model)
    infer(model)
    for _ in range(_MAX_ROUNDS):
        folder = Folder(model)
        folder.fold(graph)
        changed = folder.changed
        changed |= _remove_dead(model)
        with only_errors_of("onnx_ir.passes.common"):  # it warns of each initializer that is an output
            common_passes.DeduplicateInitializersPass(size_limit=1024)(model)
        changed |= merge_equal_nodes(graph, model.functions)
        changed |= _remove_dead(model)
        for each in all_graphs(graph):
            changed |= make_targets_constant(each, symbols)
            changed |= fuse_batch_normalization(each)
            changed |= fuse_padding(each)
        changed |= _remove_dead(model)
        if not changed:
            break
        _name(model)
        infer(model)
    forget_data(model)


def _inline(model: ir.Model) -> None:
    try:
        common_passes.InlinePass(criteria=lambda function: PRIMITIVE_KEY not in function.metadata_props)(model)
    except Exception as error:
        cause = error.__cause__ or error
        raise ModelError(f"cannot inline the model's functions: {cause}") from error


def _check_kernels(model: ir.Model) -> None:
    """Check that kernel functions use the model's opset versions and that their calls pass no bodies.

    Kernels are later replaced by their bodies, where only one version of each domain is possible.
    """
    for function in model.functions.values():
        for domain, version in function.opset_imports.items():
            if model.opset_imports.get(domain, version) != version:
                raise ModelError(
                    f"the function {function.name!r}, marked as a kernel, is of version {version} of the domain "
                    f"{domain!r}, and the model of version {model.opset_imports[domain]}; give both the same"
                )
    for node in (node for graph in all_graphs(model.graph) for node in graph):
        for attribute in node.attributes.values() if node.op_identifier() in model.functions else ():
            if attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
                raise ModelError(
                    f"the call {node.name!r} of the function {node.op_type!r}, marked as a kernel, has a body as its "
                    f"attribute {attribute.name!r}; kernels take none"
                )


def _sort(model: ir.Model) -> None:
    try:
        common_passes.TopologicalSortPass()(model)
    except Exception as error:
        raise ModelError(f"the model's nodes cannot be ordered: {error}") from error


def _remove_dead(model: ir.Model) -> bool:
    changed = bool(common_passes.RemoveUnusedNodesPass()(model).modified)
    for graph in list(all_graphs(model.graph)):
        for value in list(graph.initializers.values()):
            if not value.uses() and not value.is_graph_output() and not value.is_graph_input():
                graph.initializers.pop(str(value.name))
                changed = True
    return changed


def _name(model: ir.Model) -> None:
    common_passes.NameFixPass()(model)
