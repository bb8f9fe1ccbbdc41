"""Show what a metric allows: two trained networks, optimized until they lose half a point of accuracy.

Usage:
    python -m benchmarks.metric_cases --work DIR [--results FILE.json] [--max-drop POINTS]

The networks, their data and the metric are those of `benchmarks.trained`. `collage optimize --metric` gets the
calibration samples and the labelled samples on which plans are decided, and default options. Accuracy is then computed
on the test set, which that command never sees: of the saved package, and of ONNX Runtime in float32.

Times are those of the race, as ratio to the best single toolchain in float32.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime
from rich.console import Console

import collage
from benchmarks.page import environment, head, lines_of, noting, written
from benchmarks.precision_cases import optimized, result_of
from benchmarks.trained import CALIBRATION, DECIDING, FOLDER, NETWORKS, TEST, Arrays, Network
from benchmarks.trained.metric import accuracy

_TOOLCHAINS: Final = "onnxruntime,openvino"
_LABEL: Final = "label"


def case(network: Network, max_drop: float, work: Path) -> dict[str, Any]:
    """Return what `optimize` finds for a network, and what the package reaches on the test set.

    Args:
        network: The network.
        max_drop: Points of accuracy that may be lost.
        work: Folder for files.

    Raises:
        subprocess.CalledProcessError: If the command fails.
    """
    found = optimized(
        network.model,
        work,
        *("--toolchains", _TOOLCHAINS, "--metric", f"{FOLDER / 'metric.py'}:{accuracy.__name__}"),
        *("--max-drop", str(max_drop), "--labelled", str(network.data(DECIDING))),
        *("--calibration", str(network.data(CALIBRATION))),
    )
    session = collage.load(work / f"{network.name}.collage")
    plain = onnxruntime.InferenceSession(network.model, providers=["CPUExecutionProvider"])
    samples = samples_of(network)
    return {
        **result_of(network.name, max_drop, found),
        "held_out": found["metric"],
        "test": {"model": reached(plain, samples), "plan": reached(session, samples), "samples": len(samples)},
    }


def samples_of(network: Network) -> list[Arrays]:
    """Return the samples of the test set."""
    with np.load(network.data(TEST)) as arrays:
        read = {name: arrays[name] for name in arrays.files}
    return [{name: array[number] for name, array in read.items()} for number in range(len(read[_LABEL]))]


def reached(session: Any, samples: Sequence[Arrays]) -> float:
    """Return the accuracy in percent of a session of ONNX Runtime's interface.

    Args:
        session: Runs a network.
        samples: What it is run on, with labels.
    """
    names = [output.name for output in session.get_outputs()]
    feeds = [{name: array for name, array in sample.items() if name != _LABEL} for sample in samples]
    return accuracy([dict(zip(names, session.run(None, feed), strict=True)) for feed in feeds], samples)


def markdown(results: Sequence[Mapping[str, Any]], measured_in: Mapping[str, Any]) -> str:
    """Format the results as a page."""
    how = " ".join(" ".join((__doc__ or "").split("\n\n")[2:]).split())
    lines = head("What a metric allows", measured_in, how, "one process for each contender of the race")
    rows = [
        (
            each["case"],
            f"{each['bound']:g}",
            f"{each['test']['model']:.2f}",
            f"{each['test']['plan']:.2f}",
            f"{each['test']['model'] - each['test']['plan']:.2f}",
            f"{each['held_out']['drop']:.2f}",
            f"{each['error']:.4f}",
            f"{each['ms']:.2f}",
            f"{each['ratio']:.3f}",
            ", ".join(f"{target}: {count} nodes" for target, count in each["nodes"].values()),
            f"{len(each['int8'])} of {each['products']}",
        )
        for each in results
    ]
    allowed = ("network", "drop allowed", "float32, test set", "plan, test set", "drop, test set", "drop, held out")
    taken = ("error of the outputs", "ms", "ratio to float32", "kernels", "products in int8")
    return "\n".join([*lines, *lines_of((*allowed, *taken), rows)]) + "\n"


def is_wrong(result: Mapping[str, Any]) -> bool:
    """Return whether a plan drops by more than is allowed on the test set, or gains nothing."""
    return bool(result["test"]["model"] - result["test"]["plan"] > result["bound"] or result["ratio"] >= 1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases; return 1 if one is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.metric_cases", description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("demo-out/metric"), metavar="DIR", help="folder for files")
    parser.add_argument("--results", type=Path, metavar="FILE.json", help="write everything there and a page beside it")
    parser.add_argument("--max-drop", type=float, default=0.5, metavar="POINTS", help="default: 0.5")
    noting(parser)
    options = parser.parse_args(arguments)
    options.work.mkdir(parents=True, exist_ok=True)
    console = Console()
    results = []
    for network in NETWORKS.values():
        console.print(f"{network.name} ...")
        results.append(case(network, options.max_drop, options.work))
    page = markdown(results, environment())
    if options.results:
        report = {"schema_version": 1, "environment": environment(), "cases": results}
        written(options.results, report, page, options.note, afresh=True)
    console.print(page, markup=False)
    return 1 if any(map(is_wrong, results)) else 0


if __name__ == "__main__":
    sys.exit(main())
