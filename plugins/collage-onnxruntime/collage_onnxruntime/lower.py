"""Lower a kernel function to the model ONNX Runtime optimises it into."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir

from collage_core.contract import Artifact, BuildContext, Host, KernelFunction, Requirement, TensorSpec, Unsupported
from collage_onnxruntime.fixed_order import fix_order
from collage_onnxruntime.float_weights import with_float_weights
from collage_onnxruntime.kernel import BLOCKED_DOMAIN, MODEL, one_line, vector_isa
from collage_onnxruntime.own_integers import with_own_integers
from collage_onnxruntime.weights import (
    INLINE_BYTES,
    WEIGHTS,
    Known,
    can_be_supplied,
    detach,
    inside,
    pack,
    session_values,
)

INT8_FLAGS = ("avx512_vnni", "avx_vnni", "amx_int8")
"""Features of a CPU that multiplies 8-bit integers."""
_INT8_PRODUCTS = frozenset(
    {
        "ConvInteger",
        "DequantizeLinear",
        "DynamicQuantizeLSTM",
        "DynamicQuantizeMatMul",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "QAttention",
        "QGemm",
        "QLinearConv",
        "QLinearMatMul",
    }
)
"""Operators that multiply 8-bit integers, or are fused into such. ONNX Runtime's `avx2_weight_s8_to_u8.cc` lists those
whose weights `session.x64quantprecision` changes.
"""
_BLOCKED_OPERATORS = frozenset({"Conv", "MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool"})

_BLOCKED = ("blocked", "ORT_ENABLE_ALL")
_PLAIN = ("plain", "ORT_ENABLE_EXTENDED")
"""Variant: its name, and ONNX Runtime's level of optimisation."""


def multiplies_int8(host: Host) -> bool:
    """Return whether a CPU multiplies 8-bit integers without saturating at 16 bits."""
    return not host.cpu_flags.isdisjoint(INT8_FLAGS)


def lower(function: KernelFunction, build: BuildContext, *, library: str) -> Iterator[Artifact] | Unsupported:
    """Optimise a function, once per variant.

    Args:
        function: The candidate.
        build: Effort and a folder to write in.
        library: Distribution that provides ONNX Runtime.

    Returns:
        `blocked` (every optimisation) first. With effort and an operator that has a blocked-layout (NCHWc)
        kernel also `plain`, since reordering in and out of the layout can cost a small kernel more than it
        gains. Or the refusal.
    """
    for spec in (*function.inputs, *function.outputs):
        if reason := _cannot_cross(spec):
            return Unsupported(reason)
    lowering = _Lowering(function, build, library)
    if build.variant == _PLAIN[0]:
        only = lowering.variant(*_PLAIN)
        return only if isinstance(only, Unsupported) else iter((only,))
    first = lowering.variant(*_BLOCKED)
    return first if isinstance(first, Unsupported) else _variants(first, lowering)


def _variants(first: Artifact, lowering: _Lowering) -> Iterator[Artifact]:
    yield first
    if lowering.may_block and first.metadata["blocked"]:
        second = lowering.variant(*_PLAIN)
        if isinstance(second, Artifact):
            yield second


class _Lowering:
    """One function being lowered; state shared by its variants."""

    def __init__(self, function: KernelFunction, build: BuildContext, library: str) -> None:
        self._function = function
        self._build = build
        self._library = library
        model = with_float_weights(_named_by_outputs(function.model))
        self._saturates = not multiplies_int8(build.host)
        self._model, self._weights = detach(with_own_integers(model) if self._saturates else model)
        self._known = Known(self._weights, function.constants)
        self.may_block = build.effort >= 1 and any(
            node.op_type in _BLOCKED_OPERATORS for node in function.model.graph.all_nodes()
        )

    def variant(self, name: str, level: str) -> Artifact | Unsupported:
        """Return the function optimised up to one level, or ONNX Runtime's reason why not."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # what goes wrong is in the exception, too
        options.intra_op_num_threads = self._build.threads
        options.inter_op_num_threads = 1
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        options.add_external_initializers(*session_values(self._weights))
        # The session made here is thrown away: only the optimised model counts.
        options.add_session_config_entry("session.disable_prepacking", "1")
        # Products with 4-bit weights: 1 computes in float32; the default, 4, rounds the activations to 8 bits.
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
        if self._saturates:
            options.add_session_config_entry("session.x64quantprecision", "1")
        with tempfile.TemporaryDirectory(dir=self._build.scratch) as folder:
            path = Path(folder) / MODEL
            options.optimized_model_filepath = str(path)
            for key, value in (
                ("file_name", WEIGHTS),
                ("min_size_in_bytes", str(INLINE_BYTES)),
            ):
                options.add_session_config_entry(f"session.optimized_model_external_initializers_{key}", value)
            try:
                onnxruntime.InferenceSession(self._model, options, providers=["CPUExecutionProvider"])
            except Exception as error:
                return Unsupported(one_line(error))
            return self._artifact(path, name, str(onnxruntime.__version__))

    def _artifact(self, path: Path, name: str, version: str) -> Artifact:
        optimised = onnx_ir.load(path)
        is_changed = fix_order(optimised)
        constants: dict[str, str] = {}
        made: dict[str, np.ndarray[Any, Any]] = {}
        unsuppliable: list[onnx_ir.Value] = []
        for graph, weight, value, tensor in _external_initializers(optimised):
            if graph is not optimised.graph or not can_be_supplied(tensor.dtype):
                unsuppliable.append(value)
                continue
            array = tensor.numpy()
            known = self._known.content_hash(weight, array)
            if known is not None:
                constants[weight] = known
            else:
                made[weight] = array
        packed, offsets = pack(made.values())
        blocked = any(node.domain == BLOCKED_DOMAIN for node in optimised.graph.all_nodes())
        is_changed |= bool(unsuppliable)
        files = {MODEL: _with_inside(optimised, unsuppliable) if is_changed else path.read_bytes()}
        if made:
            files[WEIGHTS] = packed
        return Artifact(
            files=files,
            metadata={
                "inputs": [spec.name for spec in self._function.inputs],
                "outputs": [spec.name for spec in self._function.outputs],
                "made": [
                    {"name": key, "dtype": onnx_ir.DataType.from_numpy(a.dtype).name, "shape": list(a.shape), "at": at}
                    for (key, a), at in zip(made.items(), offsets, strict=True)
                ],
                "blocked": blocked,
                # A graph that was changed is saved in the order in which it runs, any other as it was given.
                "ordered": _names_of(optimised.graph) != _names_of(self._function.model.graph),
                "vector_isa": vector_isa(self._build.host),
            },
            # An optimised model is for the version that wrote it: its private operators come and go.
            requires=(
                Requirement(kind="library", name=self._library, specifier=f"=={version}"),
                *self._int8_requirements(),
            ),
            constants=constants,
            variant=name,
        )

    def _int8_requirements(self) -> tuple[Requirement, ...]:
        """Return what a machine has to have so that products of 8-bit integers do not saturate."""
        nodes = self._function.model.graph.all_nodes()
        found = [flag for flag in INT8_FLAGS if flag in self._build.host.cpu_flags]
        if not found or all(node.op_type not in _INT8_PRODUCTS for node in nodes):
            return ()
        return (Requirement(kind="isa", name=found[0]),)


def _named_by_outputs(model: onnx_ir.Model) -> onnx_ir.Model:
    """Return a copy whose nodes have the name of their first output, by which `profile` knows an optimised node."""
    copy = model.clone()
    for node in copy.graph:
        if node.outputs and node.outputs[0].name:
            node.name = node.outputs[0].name
    return copy


def _names_of(graph: onnx_ir.Graph) -> list[list[str | None]]:
    return [[value.name for value in node.outputs] for node in graph]


def _external_initializers(
    model: onnx_ir.Model,
) -> Iterator[tuple[onnx_ir.Graph, str, onnx_ir.Value, onnx_ir.ExternalTensor]]:
    for graph in (model.graph, *model.graph.subgraphs()):
        for name, value in graph.initializers.items():
            if isinstance(value.const_value, onnx_ir.ExternalTensor):
                yield graph, name, value, value.const_value


def _with_inside(model: onnx_ir.Model, values: list[onnx_ir.Value]) -> bytes:
    """Serialize a model with some weights embedded: those inside branches and packed ones cannot be supplied."""
    for value in values:
        if isinstance(value.const_value, onnx_ir.ExternalTensor):
            value.const_value = inside(value.const_value)
    return bytes(onnx_ir.to_proto(model).SerializeToString())


def _cannot_cross(spec: TensorSpec) -> str:
    if spec.dtype is not None and spec.dtype != onnx_ir.DataType.STRING and spec.dtype.bitwidth < 8:
        return f"{spec.name!r} is {spec.dtype.name}: ONNX Runtime packs such elements, a buffer has a byte for each"
    return ""
