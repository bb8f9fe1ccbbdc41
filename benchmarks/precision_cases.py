"""Show where precision goes: in a model with one fragile block, and in one whose bfloat16 misses the bound by little.

Usage:
    python -m benchmarks.precision_cases --work DIR [--results FILE.json] [--model NAME]

`fragile` has six blocks of two products. What one of them reads has a dynamic range of 10^4, so 8 bits lose all but
the largest. `nearly` is a model of the suite, with a bound of 0.95 of the error that it has in OpenVINO's bfloat16.
Both are optimized by `collage optimize --max-error` with default options.

What is listed is what the package holds: products in 8-bit integers, and nodes by target. Times are those of the race,
as ratio to the best plan in float32.
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
import onnx
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console

from benchmarks.models import MODELS
from benchmarks.page import environment, head, lines_of, noting, written

BLOCKS: Final = 6
FRAGILE: Final = 3
"""Number of blocks, and which of them is fragile."""
_ROWS, _WIDTH, _INNER = 256, 512, 1024
_RANGE: Final = 1e4
_BOUND: Final = 0.02
_MISSED: Final = 0.95
"""Bound of `nearly` relative to the error of all of it in bfloat16."""
_TOOLCHAINS: Final = "onnxruntime,openvino"


def fragile() -> onnx.ModelProto:
    """Build six residual blocks of two products, of which one has channels 10^4 times as large as the others."""
    rng = np.random.default_rng(7)
    nodes, weights = [], []

    def weight(name: str, values: np.ndarray[Any, Any]) -> str:
        weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    value = "x"
    for number in range(BLOCKS):
        name = f"fragile{number}" if number == FRAGILE else f"block{number}"
        up = rng.normal(size=(_WIDTH, _INNER)) / np.sqrt(_WIDTH)
        down = rng.normal(size=(_INNER, _WIDTH)) / np.sqrt(_INNER)
        gains = [np.ones(_WIDTH), np.ones(_INNER)]
        if number == FRAGILE:
            for each in gains:
                each[:: len(each) // 4] = _RANGE
        read = value
        if number == FRAGILE:
            read = f"{name}.wide"
            nodes.append(helper.make_node("Mul", [value, weight(f"{name}.gain0", gains[0])], [read], name=read))
        nodes.append(
            helper.make_node(
                "MatMul", [read, weight(f"{name}.w0", up / gains[0][:, None])], [f"{name}.up"], name=f"{name}.up"
            )
        )
        nodes.append(helper.make_node("Relu", [f"{name}.up"], [f"{name}.relu"], name=f"{name}.relu"))
        read = f"{name}.relu"
        if number == FRAGILE:
            read = f"{name}.wider"
            nodes.append(
                helper.make_node("Mul", [f"{name}.relu", weight(f"{name}.gain1", gains[1])], [read], name=read)
            )
        nodes.append(
            helper.make_node(
                "MatMul", [read, weight(f"{name}.w1", down / gains[1][:, None])], [f"{name}.down"], name=f"{name}.down"
            )
        )
        nodes.append(helper.make_node("Add", [value, f"{name}.down"], [f"{name}.sum"], name=f"{name}.sum"))
        value = f"{name}.sum"
    inputs, outputs = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [_ROWS, _WIDTH])] for name in ("x", value)
    )
    graph = helper.make_graph(nodes, "fragile", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def optimized(model: Path, work: Path, *more: str) -> Mapping[str, Any]:
    """Run `collage optimize` on a model, and return its JSON.

    Raises:
        subprocess.CalledProcessError: If the command fails.
    """
    found = work / f"{model.stem}.json"
    command = [sys.executable, "-m", "collage.cli", "optimize", str(model), "-o", str(work / f"{model.stem}.collage")]
    command += ["--tuning-db", str(work / "tuning.sqlite"), "--json", str(found), *more]
    entry = MODELS.get(model.stem)
    for name, array in (entry.make_inputs() if entry is not None else {}).items():
        command += ["--input-shapes", f"{name}:[{','.join(map(str, array.shape))}]"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return dict(json.loads(found.read_text(encoding="utf-8")))


def result_of(case: str, bound: float, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a plan is made of, and what it takes relative to the best plan in float32."""
    exact = [
        each["latency_ms"]["p50"]
        for each in found["contenders"]
        if each["kind"] == "single"
        and each["name"] != "collage"
        and "precision" not in each["name"]
        and each.get("latency_ms")
    ]
    mine = next(each for each in found["contenders"] if each["name"] == "collage")["latency_ms"]["p50"]
    regions = found["regions"]
    precisions = [region["precision"] for region in regions if region["precision"]]
    return {
        "case": case,
        "bound": bound,
        "error": found["max_error"],
        "ms": mine,
        "ratio": mine / min(exact),
        "nodes": {region["id"]: [region["target"], len(region["nodes"])] for region in regions},
        "products": sum(each["products"] for each in precisions),
        "int8": sorted(name for each in precisions for name in each["int8"]),
        "stopped": [name for each in precisions for name in each["stopped"]],
    }


def cases(work: Path, name: str, console: Console) -> Iterator[dict[str, Any]]:
    """Yield the result of each case."""
    console.print("fragile ...")
    path = work / "fragile.onnx"
    onnx.save(fragile(), path)
    yield result_of("fragile", _BOUND, optimized(path, work, "--max-error", str(_BOUND), "--toolchains", _TOOLCHAINS))
    console.print(f"{name} ...")
    path = work / f"{name}.onnx"
    if not path.exists():
        command = [sys.executable, "-m", "benchmarks.models", name, "--out", str(work)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    alone = optimized(path, work, "--max-error", "0.5", "--toolchains", "openvino(precision=bf16)", "--preset", "quick")
    yield result_of(f"{name}, all bfloat16", 0.5, alone) if _has_exact(alone) else _alone(name, alone)
    bound = float(f"{_MISSED * alone['max_error']:.2g}")
    found = optimized(path, work, "--max-error", str(bound), "--toolchains", _TOOLCHAINS)
    yield result_of(name, bound, found)


def _has_exact(found: Mapping[str, Any]) -> bool:
    return any("precision" not in each["name"] for each in found["contenders"] if each["name"] != "collage")


def _alone(name: str, found: Mapping[str, Any]) -> dict[str, Any]:
    mine = next(each for each in found["contenders"] if each["name"] == "collage")["latency_ms"]["p50"]
    nodes = {region["id"]: [region["target"], len(region["nodes"])] for region in found["regions"]}
    case = f"{name}, all bfloat16"
    return {"case": case, "bound": 0.5, "error": found["max_error"], "ms": mine, "nodes": nodes, "int8": []}


def markdown(results: Sequence[Mapping[str, Any]], measured_in: Mapping[str, Any]) -> str:
    """Format the results as a page."""
    how = " ".join((__doc__ or "").split("\n\n")[2].split())
    lines = head("Where precision goes", measured_in, how, "one process for each contender of the race")
    rows = [
        (
            each["case"],
            f"{each['bound']:g}",
            f"{each['error']:.4f}",
            f"{each['ms']:.2f}",
            f"{each['ratio']:.3f}" if "ratio" in each else "",
            ", ".join(f"{target}: {count} nodes" for target, count in each["nodes"].values()),
            f"{len(each['int8'])} of {each.get('products', 0)}" if each["int8"] else "0",
            ", ".join(each.get("stopped", ())) or "nothing",
        )
        for each in results
    ]
    headings = ("case", "bound", "error", "ms", "ratio", "kernels", "products in int8", "stopped by the bound")
    return "\n".join([*lines, *lines_of(headings, rows)]) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases; return 1 if one exceeds its bound, or a fragile product is an integer."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.precision_cases", description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("demo-out/precision"), metavar="DIR", help="folder for files")
    parser.add_argument("--results", type=Path, metavar="FILE.json", help="write everything there and a page beside it")
    parser.add_argument("--model", default="bert_base_6", choices=sorted(MODELS), metavar="NAME", help="of `nearly`")
    noting(parser)
    options = parser.parse_args(arguments)
    options.work.mkdir(parents=True, exist_ok=True)
    console = Console()
    results = list(cases(options.work, options.model, console))
    page = markdown(results, environment())
    if options.results:
        report = {"schema_version": 1, "environment": environment(), "cases": results}
        written(options.results, report, page, options.note, afresh=True)
    console.print(page, markup=False)
    wrong = [each["case"] for each in results if each["error"] > each["bound"]]
    wrong += [name for each in results for name in each["int8"] if name.startswith("fragile")]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
