"""Reads the exports."""

from __future__ import annotations

import gzip
from pathlib import Path

import onnx
import onnx_ir
import onnx_ir.passes.common as common_passes

FOLDER = Path(__file__).parent
MAIN_FORMS = ("torchscript", "dynamo")
FORMS = (*MAIN_FORMS, "torchscript_old", "dynamo_old", "dynamo_new")


def read(name: str, form: str) -> onnx_ir.Model:
    """One export, as its exporter wrote it but for the values of its weights."""
    data = gzip.decompress((FOLDER / f"{name}.{form}.onnx.gz").read_bytes())
    return onnx_ir.from_proto(onnx.load_from_string(data))


def read_with_shapes(name: str, form: str) -> onnx_ir.Model:
    """One export with what an index over it needs: constants in initializers, and the shapes inference finds."""
    model = read(name, form)
    common_passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    inferred = onnx.shape_inference.infer_shapes(onnx_ir.to_proto(model), data_prop=True)
    return onnx_ir.from_proto(inferred)
