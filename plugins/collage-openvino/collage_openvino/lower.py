"""Lower a kernel function to the compiled model OpenVINO exports."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from collage_core.contract import Artifact, BuildContext, KernelFunction, Requirement, Target, Unsupported
from collage_openvino.kernel import BLOB, element_type, one_line, properties, weightless_properties
from collage_openvino.patterns import cannot_hold, deviation
from collage_openvino.weights import WEIGHTS, read, source_of

_ISA = ("avx512f", "avx2")
_ISA_OF = {"bf16": ("amx_bf16", "avx512_bf16"), "int8": ("amx_int8", "avx512_vnni", "avx_vnni")}
"""Instructions that a type is multiplied by."""
_QUANTISED = frozenset({"ConvInteger", "DequantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul"})
"""Operators that multiply 8-bit integers, or say that others do. Without the instructions their sums saturate."""


def lower(core: Any, target: Target, function: KernelFunction, build: BuildContext) -> Iterator[Artifact] | Unsupported:
    """Compile a function and export it.

    Args:
        core: An `openvino.Core`.
        target: Target that determines the precision.
        function: The candidate.
        build: Threads and a folder to write in.

    Returns:
        One variant, or OpenVINO's reason why not.
    """
    for spec in (*function.inputs, *function.outputs):
        if reason := cannot_hold(spec):
            return Unsupported(reason)
        if spec.dtype is not None and not element_type(spec.dtype):
            return Unsupported(f"{spec.name!r} is {spec.dtype.name}, which does not cross OpenVINO's boundary")
    for body in (function.model.graph, *function.model.functions.values()):  # predicates see a call as one node
        for node in body:
            if reason := deviation(node, function.model):
                return Unsupported(reason)
    source = source_of(function.model)
    settings = properties(target, build.threads)
    with tempfile.TemporaryDirectory(dir=build.scratch) as name:
        folder = Path(name)
        weightless = bool(source.weights) and all(weight.constant in function.constants for weight in source.weights)
        try:
            model = read(core, source, folder)
            if refusal := _misread(model, function):
                return Unsupported(refusal)
            blob = _without_weights(core, model, settings, folder / WEIGHTS) if weightless else None
            if blob is None:
                weightless = False
                blob = _exported(core.compile_model(model, "CPU", settings))
        except Exception as error:
            return Unsupported(one_line(error))
    precision = target.option("precision", "f32")
    kinds = set(precision.split("+"))
    if any(node.op_type in _QUANTISED for node in function.model.graph.all_nodes()):
        kinds.add("int8")  # it multiplies what a model quantises as integers, too
    isa = [*_ISA, *(flag for kind, flags in _ISA_OF.items() if kind in kinds for flag in flags)]
    flags = build.host.cpu_flags
    artifact = Artifact(
        files={BLOB: blob},
        metadata={
            "inputs": [spec.name for spec in function.inputs],
            "outputs": [spec.name for spec in function.outputs],
            "weights": [weight.constant for weight in source.weights] if weightless else [],
        },
        requires=(
            Requirement(kind="library", name="openvino", specifier=f"=={_version()}"),
            *(Requirement(kind="isa", name=flag) for flag in isa if flag in flags),
        ),
        constants={w.constant: function.constants[w.constant] for w in source.weights} if weightless else {},
        variant=precision,
    )
    return iter((artifact,))


def _misread(model: Any, function: KernelFunction) -> str:
    """Return why inputs and outputs made by the frontend cannot be bound; `""` if they can."""
    unknown = {str(p.get_friendly_name()) for p in model.get_parameters()} - {spec.name for spec in function.inputs}
    if unknown:
        return f"its ONNX frontend made inputs the model does not have: {', '.join(sorted(unknown))}"
    if len(model.outputs) != len(function.outputs):
        return f"its ONNX frontend made {len(model.outputs)} outputs of {len(function.outputs)}"
    for spec, port in zip(function.outputs, model.outputs, strict=True):
        assert spec.dtype is not None
        found, wanted = port.get_element_type().get_type_name(), element_type(spec.dtype)
        if found != wanted:
            return f"it gives {spec.name!r} as {found}, ONNX says {wanted}"
    return ""


def _without_weights(core: Any, model: Any, settings: dict[str, Any], weights: Path) -> bytes | None:
    """Export a model with references to a weights file; None if the export cannot be imported again.

    Importing is tested because the feature is young: 2026.2.0 exports such blobs and then fails on some of them.
    """
    settings = settings | weightless_properties(weights)
    blob = _exported(core.compile_model(model, "CPU", settings))
    try:
        core.import_model(blob, "CPU", settings)
    except RuntimeError:
        return None
    return blob


def _exported(compiled: Any) -> bytes:
    stream = compiled.export_model()
    return bytes(stream) if isinstance(stream, bytes) else bytes(stream.getbuffer())


def _version() -> str:
    import openvino

    return str(openvino.__version__).partition("-")[0]
