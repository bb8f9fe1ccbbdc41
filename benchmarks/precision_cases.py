"""Show where precision goes: in a model with one fragile block, and in one whose bfloat16 misses the bound by little.

Usage:
    python -m benchmarks.precision_cases --work DIR [--results FILE.json] [--cases NAME...] [--model NAME]

`fragile` has six blocks of two products. What one of them reads has a dynamic range of 10^4, and its large channels
cancel, so neither 8-bit integers nor bfloat16 leave anything right. `nearly` is a model of the suite, with a bound of
0.95 of the error that it has in OpenVINO's bfloat16. Both are optimized by `collage optimize --max-error` with default
options.

What is listed is what the package holds: products in 8-bit integers, nodes by target, and for `fragile` the precision
of the products. Times are those of the race, as ratio to the best plan in float32.

Exits with 1 if a plan exceeds its bound, if a fragile product is in lower precision or another one of that model is
not, or if lower precision saves no time there.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
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
_LARGE: Final = 4
"""Large channels that the first fragile product reads, and pairs of them that the second reads."""
_RATIO: Final = 0.7
"""Ratio of a pair's channels, no power of two: powers of two are rounded alike."""
_DIFFERENCE: Final = 1e-5
"""What one channel of a pair differs from that by."""
_SHARE, _BRANCH = 0.2, 0.3
"""Sizes of weights relative to those that keep the variance: those of large channels, and those of second products.

With them a kernel of the fragile block in float32 is 0.0002 off, and 8-bit integers in all other blocks 0.01.
"""
FLOAT32: Final = "float32"
_BOUND: Final = 0.02
_MISSED: Final = 0.95
"""Bound of `nearly` relative to the error of all of it in bfloat16."""
_CASES: Final = ("fragile", "nearly")
_TOOLCHAINS: Final = "onnxruntime,openvino"


def fragile() -> onnx.ModelProto:
    """Build six residual blocks of two products, one of which bears neither 8-bit integers nor bfloat16.

    What its products read has channels 10^4 times as large as the others. Those of the second product come in pairs
    that cancel, so their sum is as small as those of the other channels, while a rounding of either to 8 bits is off by
    tens.
    """
    rng = np.random.default_rng(7)
    nodes, weights = [], []

    def weight(name: str, values: np.ndarray[Any, Any]) -> str:
        weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def op(op_type: str, name: str, *inputs: str) -> str:
        nodes.append(helper.make_node(op_type, inputs, [name], name=name))
        return name

    value = "x"
    for number in range(BLOCKS):
        name = name_of(number)
        up = rng.normal(size=(_WIDTH, _INNER)) / np.sqrt(_WIDTH)
        down = _BRANCH * rng.normal(size=(_INNER, _WIDTH)) / np.sqrt(_INNER)
        gains = [np.ones(_WIDTH), np.ones(_INNER)]
        if number == FRAGILE:
            one = np.arange(0, _INNER, _INNER // _LARGE)
            gains[0][:: _WIDTH // _LARGE] = gains[1][one] = gains[1][one + 1] = _RANGE
            up[:, one + 1] = _RATIO * up[:, one] + _DIFFERENCE * up[:, one + 1]
            down[one] *= _SHARE
            down[one + 1] = -down[one] / _RATIO
        read = value
        if number == FRAGILE:
            read = op("Mul", f"{name}.wide", read, weight(f"{name}.gain0", gains[0]))
        read = op("MatMul", f"{name}.up", read, weight(f"{name}.w0", up / gains[0][:, None]))
        read = op("Relu", f"{name}.relu", read)
        if number == FRAGILE:
            read = op("Mul", f"{name}.wider", read, weight(f"{name}.gain1", gains[1]))
        value = op("Add", f"{name}.sum", value, op("MatMul", f"{name}.down", read, weight(f"{name}.w1", down)))
    inputs, outputs = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [_ROWS, _WIDTH])] for name in ("x", value)
    )
    graph = helper.make_graph(nodes, "fragile", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def name_of(number: int) -> str:
    """Return what the names of a block's nodes begin with."""
    return f"fragile{number}" if number == FRAGILE else f"block{number}"


def precisions(regions: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return what each product of `fragile` is computed in.

    Args:
        regions: Those of a report.
    """
    found = {}
    for product in (f"{name_of(number)}.{which}" for number in range(BLOCKS) for which in ("up", "down")):
        [region] = [each for each in regions if product in each["nodes"]]
        eight = region["precision"]["int8"] if region["precision"] else ()
        rounded = re.search(r"precision=(?:int8\+?)?(\w*)", region["target"])
        found[product] = "int8" if product in eight else (rounded and rounded[1]) or FLOAT32
    return found


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
    """Return what a plan is made of, and what it takes relative to the best toolchain in float32, if one ran."""
    exact = [
        each["latency_ms"]["p50"]
        for each in found["comparison"]["contenders"]
        if each["kind"] == "single"
        and each["name"] != "collage"
        and "precision" not in each["name"]
        and each.get("latency_ms")
    ]
    mine = next(each for each in found["comparison"]["contenders"] if each["name"] == "collage")["latency_ms"]["p50"]
    regions = found["regions"]
    precisions = [region["precision"] for region in regions if region["precision"]]
    return {
        "case": case,
        "bound": bound,
        "error": found["max_error"],
        "ms": mine,
        "ratio": mine / min(exact) if exact else None,
        "nodes": {region["id"]: [region["target"], len(region["nodes"])] for region in regions},
        "products": sum(each["products"] for each in precisions),
        "int8": sorted(name for each in precisions for name in each["int8"]),
        "stopped": [name for each in precisions for name in each["stopped"]],
    }


def fragile_case(work: Path) -> dict[str, Any]:
    """Return the result of `fragile`."""
    path = work / "fragile.onnx"
    onnx.save(fragile(), path)
    found = optimized(path, work, "--max-error", str(_BOUND), "--toolchains", _TOOLCHAINS)
    return {**result_of("fragile", _BOUND, found), "in": precisions(found["regions"])}


def nearly_cases(work: Path, name: str) -> Iterator[dict[str, Any]]:
    """Yield the results of a model of the suite: all of it in bfloat16, and under a bound that this misses."""
    path = work / f"{name}.onnx"
    if not path.exists():
        command = [sys.executable, "-m", "benchmarks.models", name, "--out", str(work)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    alone = optimized(path, work, "--max-error", "0.5", "--toolchains", "openvino(precision=bf16)", "--preset", "quick")
    yield result_of(f"{name}, all bfloat16", 0.5, alone)
    bound = float(f"{_MISSED * alone['max_error']:.2g}")
    found = optimized(path, work, "--max-error", str(bound), "--toolchains", _TOOLCHAINS)
    yield result_of(name, bound, found)


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
            "" if each["ratio"] is None else f"{each['ratio']:.3f}",
            ", ".join(f"{target}: {count} nodes" for target, count in each["nodes"].values()),
            f"{len(each['int8'])} of {each['products']}" if each["int8"] else "0",
            ", ".join(each["stopped"]) or "nothing",
            *(_listed(each, of_block) for of_block in (True, False)),
        )
        for each in results
    ]
    headings = ("case", "bound", "error", "ms", "ratio", "kernels", "products in int8", "stopped by the bound")
    headings_of_case = ("fragile products", "other products")
    return "\n".join([*lines, *lines_of((*headings, *headings_of_case), rows)]) + "\n"


def _listed(result: Mapping[str, Any], of_block: bool) -> str:
    """Format what the products of the fragile block, or all others, are computed in."""
    counts = collections.Counter(_inside(result, of_block))
    return ", ".join(f"{count} in {precision}" for precision, count in sorted(counts.items()))


def _inside(result: Mapping[str, Any], of_block: bool) -> list[str]:
    block = f"{name_of(FRAGILE)}."
    return [precision for name, precision in result.get("in", {}).items() if name.startswith(block) == of_block]


def wrong_in(result: Mapping[str, Any]) -> bool:
    """Return whether a plan exceeds its bound, or has a precision where it should not be."""
    if result["error"] > result["bound"]:
        return True
    if "in" not in result:
        return False
    return set(_inside(result, True)) != {FLOAT32} or FLOAT32 in _inside(result, False) or result["ratio"] >= 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases; return 1 if one is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.precision_cases", description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("demo-out/precision"), metavar="DIR", help="folder for files")
    parser.add_argument("--results", type=Path, metavar="FILE.json", help="write everything there and a page beside it")
    parser.add_argument("--cases", nargs="+", default=_CASES, choices=_CASES, metavar="NAME", help="default: both")
    parser.add_argument("--model", default="bert_base_6", choices=sorted(MODELS), metavar="NAME", help="of `nearly`")
    noting(parser)
    options = parser.parse_args(arguments)
    options.work.mkdir(parents=True, exist_ok=True)
    console = Console()
    results: list[dict[str, Any]] = []
    for case in dict.fromkeys(options.cases):
        console.print(f"{case} ...")
        results += [fragile_case(options.work)] if case == "fragile" else nearly_cases(options.work, options.model)
    page = markdown(results, environment())
    if options.results:
        report = {"schema_version": 1, "environment": environment(), "cases": results}
        written(options.results, report, page, options.note, afresh=True)
    console.print(page, markup=False)
    return 1 if any(map(wrong_in, results)) else 0


if __name__ == "__main__":
    sys.exit(main())
