"""Time products of few rows in OpenVINO with 8-bit weights alone, and in the other precisions.

Usage:
    python -m benchmarks.few_rows --work DIR [--results FILE.json] [--rounds N]

Eight products by square weights of 16 MB, with a Relu behind each, for several numbers of rows. In the last case what
each product reads has 16 channels that are 10 times as large, and whose weights are as much smaller. The 8-bit forms
are the functions that core gives to `openvino(precision=int8)` and `openvino(precision=int8-weights)`, with ranges of
the very inputs that are timed. The judge times all forms of one case in rounds, each in a process of its own; ratios
are to bfloat16, and errors are relative to the largest output.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx_ir
from rich.console import Console

from benchmarks.page import environment, head, lines_of, noting, written
from collage_core.fusion import SubGraph
from collage_core.fusion.kernel import kernel_function
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.operators.quantising import Int8Product, Range

CASES: Final = ((1, 1.0), (2, 1.0), (4, 1.0), (8, 1.0), (32, 1.0), (1, 10.0))
"""Rows, and by how much some channels are larger than the others."""
_LARGE: Final = 16
_PRODUCTS, _WIDTH = 8, 2048
_INPUT: Final = "x"
FORMS: Final = {
    "openvino": "float32",
    "openvino-bf16": "bfloat16",
    "weights": "8-bit weights",
    "operands": "8-bit operands",
}
"""Contenders, and what they compute in."""
_FILE: Final = "benchmarks/contenders/openvino_request.py"


def gains(larger: float) -> np.ndarray[Any, Any]:
    """Return what the channels are multiplied by, float32 [width]."""
    found = np.ones(_WIDTH, np.float32)
    found[:: _WIDTH // _LARGE] = larger
    return found


def weights(larger: float) -> list[np.ndarray[Any, Any]]:
    """Return the weights of the products, float32 [width, width], smaller where channels are larger."""
    rng = np.random.default_rng(3)
    drawn = (rng.normal(size=(_WIDTH, _WIDTH)) * np.sqrt(2 / _WIDTH) for _ in range(_PRODUCTS))
    return [(weight / gains(larger)[:, None]).astype(np.float32) for weight in drawn]


def chain(rows: int, larger: float) -> onnx_ir.Model:
    """Return the model.

    Args:
        rows: Rows of its input.
        larger: By how much some channels are larger than the others.
    """
    shape = onnx_ir.Shape([rows, _WIDTH])
    value = onnx_ir.Value(name=_INPUT, shape=shape, type=onnx_ir.TensorType(onnx_ir.DataType.FLOAT))
    inputs, nodes, constants = [value], [], []

    def constant(name: str, array: np.ndarray[Any, Any]) -> onnx_ir.Value:
        tensor = onnx_ir.tensor(array, name=name)
        of_shape = onnx_ir.Shape(array.shape)
        constants.append(onnx_ir.Value(name=name, shape=of_shape, type=value.type, const_value=tensor))
        return constants[-1]

    scaled = [("Mul", [constant("gain", gains(larger))])] if larger != 1 else []
    for number, array in enumerate(weights(larger)):
        steps = [*scaled, ("MatMul", [constant(f"w{number}", array)]), ("Relu", [])]
        for op_type, others in steps:
            result = onnx_ir.Value(name=f"{op_type}{number}", shape=shape, type=value.type)
            nodes.append(onnx_ir.node(op_type, [value, *others], outputs=[result], name=f"{op_type}{number}.node"))
            value = result
    graph = onnx_ir.Graph(inputs, [value], nodes=nodes, initializers=constants, opset_imports={"": 21}, name="chain")
    return onnx_ir.Model(graph, ir_version=10)


def read_by_products(x: np.ndarray[Any, Any], larger: float) -> Iterator[np.ndarray[Any, Any]]:
    """Yield what each product reads, for an input of the model."""
    for weight in weights(larger):
        read = x * gains(larger)
        yield read
        x = np.maximum(read @ weight, 0)


def write_forms(rows: int, larger: float, work: Path) -> Path:
    """Write the model with its inputs beside it, and its two 8-bit forms, and return the model's path."""
    model, path = chain(rows, larger), work / f"rows{rows}-{larger:g}.onnx"
    graph = DataflowGraph(model)
    x = np.random.default_rng(rows).normal(size=(rows, _WIDTH)).astype(np.float32)
    spans = [Range.around(float(read.min()), float(read.max())) for read in read_by_products(x, larger)]
    np.savez(path.with_suffix(".inputs.npz"), x=x)
    products = [index for index, node in enumerate(graph.nodes) if node.op_type == "MatMul"]
    for form, ranges in (("weights", [None] * _PRODUCTS), ("operands", spans)):
        int8 = tuple(Int8Product(index, span) for index, span in zip(products, ranges, strict=True))
        function = kernel_function(SubGraph(graph, graph.all_mask, int8=int8), "chain")
        body = function.model.graph
        for value in list(body.inputs):  # the constant that is no weight is an argument, too
            if value.shape is not None and len(value.shape) == 1:
                body.inputs.remove(value)
                value.const_value = onnx_ir.tensor(gains(larger), name=str(value.name))
                body.register_initializer(value)
            else:
                value.name = _INPUT
        onnx_ir.save(function.model, path.with_suffix(f".{form}.onnx"))
    onnx_ir.save(model, path)
    return path


def judged(rows: int, larger: float, work: Path, rounds: int) -> dict[str, Any]:
    """Return what the judge finds for one case: its contenders by name.

    Raises:
        subprocess.CalledProcessError: If the judge fails.
    """
    path = write_forms(rows, larger, work)
    report = path.with_suffix(".json")
    command = [sys.executable, "-m", "benchmarks.harness", str(path), "--rounds", str(rounds), "--json", str(report)]
    command += ["--only", "openvino,openvino-bf16"]
    for form in ("weights", "operands"):
        command += ["--contender", f"{form}={_FILE}:model={path.with_suffix(f'.{form}.onnx')}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    [found] = json.loads(report.read_text(encoding="utf-8"))["models"]
    return {each["name"]: each for each in found["contenders"]}


def markdown(results: Sequence[Mapping[str, Any]], measured_in: Mapping[str, Any]) -> str:
    """Format the results as a page."""
    how = " ".join((__doc__ or "").split("\n\n")[2].split())
    lines = head("Products of few rows", measured_in, how, "one contender at a time")

    def rows() -> Iterator[tuple[str, ...]]:
        for result in results:
            bf16 = result["contenders"]["openvino-bf16"]["latency_ms"]["p50"]
            for name, what in FORMS.items():
                ran = result["contenders"][name]
                low, high = ran["latency_ms"]["ci95"]
                yield (
                    str(result["rows"]),
                    f"{result['larger']:g}",
                    what,
                    f"{ran['latency_ms']['p50']:.2f}",
                    f"{low:.2f} - {high:.2f}",
                    f"{ran['latency_ms']['p50'] / bf16:.2f}",
                    f"{ran['max_error']:.1e}",
                )

    return (
        "\n".join(
            [*lines, *lines_of(("rows", "larger by", "computed in", "ms", "95 %", "to bfloat16", "error"), rows())]
        )
        + "\n"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Time all forms."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.few_rows", description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("demo-out/few-rows"), metavar="DIR", help="folder for files")
    parser.add_argument("--results", type=Path, metavar="FILE.json", help="write everything there and a page beside it")
    parser.add_argument("--rounds", type=int, default=45, help="rounds of the judge")
    noting(parser)
    options = parser.parse_args(arguments)
    options.work.mkdir(parents=True, exist_ok=True)
    console = Console()
    results = []
    for rows, larger in CASES:
        console.print(f"{rows} rows, some channels {larger:g} times as large ...")
        found = judged(rows, larger, options.work, options.rounds)
        results.append({"rows": rows, "larger": larger, "contenders": found})
    page = markdown(results, environment())
    if options.results:
        report = {"schema_version": 1, "environment": environment(), "results": results}
        written(options.results, report, page, options.note, afresh=True)
    console.print(page, markup=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
