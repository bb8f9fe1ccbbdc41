"""Write one model of the zoo: weights, inputs, expected results, and the ONNX file; existing files are kept.

Usage:
    python -m benchmarks.models.torch_zoo NAME --out DIR [--batch N] [--dtype float32|float16|bfloat16] [--seed N]

The TorchScript exporter writes it, as it does the models in `exported/`: it needs no further package, and
merges BatchNormalization into the convolution before it, which other exporters leave to the reader of the
file.
"""

from __future__ import annotations

import argparse
import functools
import io
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
import torch

from benchmarks.models.__main__ import write
from benchmarks.models.entry import Inputs
from benchmarks.models.torch_zoo import ZOO
from benchmarks.models.torch_zoo.files import Files
from benchmarks.models.torch_zoo.precision import InPrecision
from benchmarks.models.torch_zoo.weights import CALIBRATION_BATCH, calibrate, initialise, load, save

OPSET = 20
"""The first opset with GELU as an operator, and the last that the TorchScript exporter supports."""
DTYPES = ("float32", "float16", "bfloat16")
_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def prepare(files: Files, seed: int = 0) -> None:
    """Write what is missing; the model last, so where that is everything is.

    Args:
        files: Which.
        seed: Of weights and inputs.
    """
    architecture = ZOO[files.name]
    module = architecture.module()
    if files.weights.is_file():
        load(files.weights, module)
    else:
        initialise(module, seed)
        calibrate(module, *_tensors(architecture.make_inputs(CALIBRATION_BATCH, seed + 1)))
        save(files.weights, module)
    inputs = architecture.make_inputs(files.batch, seed)
    if not files.expected.is_file():
        with torch.no_grad():  # float64 would be exact, and takes minutes: its depthwise convolutions are not optimised
            results = InPrecision(module, "float32")(*_tensors(inputs))
        expected = {name: each.numpy() for name, each in zip(architecture.outputs, results, strict=True)}
        write(files.expected, functools.partial(_pack, expected))
    write(files.inputs, functools.partial(_pack, inputs))
    data = exported(InPrecision(module, files.dtype), inputs, architecture.outputs)
    write(files.model, lambda stream: stream.write(data))


def exported(module: InPrecision, inputs: Inputs, outputs: Sequence[str]) -> bytes:
    """Export the module as an ONNX model with static shapes.

    Args:
        module: Module to export.
        inputs: Examples of its arguments, in order, by the names they get.
        outputs: Names of its results.

    Raises:
        ValueError: If the exporter has products or convolutions computed in another type than the module's.
    """
    # not every operator has half precision on the CPU
    device = "cuda" if torch.cuda.is_available() else "cpu"
    buffer = io.BytesIO()
    with warnings.catch_warnings():  # that this exporter is the older one
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.to(device),
            tuple(each.to(device) for each in _tensors(inputs)),
            buffer,
            input_names=list(inputs),
            output_names=list(outputs),
            opset_version=OPSET,
            dynamo=False,
        )
    data = buffer.getvalue()
    others = computed_in(onnx.load_from_string(data)) - {str(module.dtype).removeprefix("torch.")}
    if others:
        raise ValueError(f"the export of {module.dtype} computes products in {', '.join(sorted(others))}, too")
    return data


def computed_in(model: onnx.ModelProto) -> set[str]:
    """Return the types that a model's products and convolutions are computed in, as NumPy and PyTorch name them."""
    typed = onnx.shape_inference.infer_shapes(model).graph
    types = {value.name: value.type.tensor_type.elem_type for value in (*typed.value_info, *typed.output)}
    made = [node.output[0] for node in typed.node if node.op_type in _PRODUCTS]
    return {onnx.helper.tensor_dtype_to_np_dtype(types[name]).name for name in made}


def _tensors(inputs: Inputs) -> list[torch.Tensor]:
    return [torch.from_numpy(array) for array in inputs.values()]


def _pack(arrays: Inputs, stream: BinaryIO) -> None:
    np.savez(stream, **arrays)  # type: ignore[arg-type]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write one model's files."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models.torch_zoo", description=__doc__)
    parser.add_argument("name", choices=list(ZOO), metavar="NAME", help=f"one of {', '.join(ZOO)}")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write to")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="what the ONNX model computes in")
    parser.add_argument("--seed", type=int, default=0, help="of weights and inputs")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    files = Files(folder=options.out, name=options.name, batch=options.batch, dtype=options.dtype)
    prepare(files, options.seed)
    print(f"{files.model}: {files.model.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
