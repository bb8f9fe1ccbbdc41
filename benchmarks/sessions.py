"""Optimize a model, and run package and toolchains as users call them, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

OWN: Final = "collage"
SINGLES: Final = ("onnxruntime", "openvino")

Call: TypeAlias = Callable[[Mapping[str, np.ndarray[Any, Any]]], Sequence[np.ndarray[Any, Any]]]
"""Runs a model on inputs by name; returns its outputs in order."""


def optimized(options: Sequence[str], folder: Path, *, anew: bool = False) -> dict[str, Any]:
    """Run `optimize` with these options on `model.onnx` of a folder; return its seconds, and what it did for each plan.

    Raises:
        RuntimeError: If the command fails.
    """
    report = folder / ("anew.json" if anew else "cold.json")
    package = folder / ("anew.collage" if anew else "model.collage")
    command = [sys.executable, "-m", "collage.cli", "optimize", str(folder / "model.onnx"), "-o", str(package)]
    command += [*options, "--json", str(report), *(["--anew"] if anew else [])]
    began = time.monotonic()
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLLAGE_TUNING_DB": str(folder / "tuning.sqlite")},
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    seconds = time.monotonic() - began
    document = json.loads(report.read_text(encoding="utf-8"))
    return {
        "seconds": seconds,
        "plans": [
            {
                "shapes": each.get("input_shapes", {}),
                "measured": each["search"]["measured"],
                "known": each["search"]["cache_hits"],
                "seconds": each["search"]["seconds"]["total"],
                "plan": [[region["target"], len(region["nodes"])] for region in each["regions"]],
            }
            for each in document.get("shapes", [document])
        ],
    }


def session_of(name: str, folder: Path) -> Call:
    """Load `model.collage` of a folder, or its `model.onnx` with free dimensions and a thread for each core.

    Args:
        name: `OWN`, one of `SINGLES`, or `reference`, ONNX's own evaluator.
        folder: Where both are.
    """
    model, threads = folder / "model.onnx", len(os.sched_getaffinity(0))
    if name == OWN:
        import collage

        session = collage.load(folder / "model.collage")
        return lambda feeds: session.run(None, feeds)
    if name == "onnxruntime":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        runtime = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return lambda feeds: list(runtime.run(None, feeds))
    if name == "openvino":
        import openvino

        settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads}
        compiled = openvino.Core().compile_model(model, "CPU", settings)
        request = compiled.create_infer_request()
        return lambda feeds: list(request.infer(feeds).values())
    import onnx.reference

    evaluator = onnx.reference.ReferenceEvaluator(str(model))
    return lambda feeds: list(evaluator.run(None, feeds))


def in_a_process(module: str, folder: Path, name: str, *arguments: str) -> Any:
    """Run a benchmark's module for one contender in a new process; return the JSON of its last line.

    Args:
        module: Name of the module, which takes `--work` and `--contender`.
        folder: For `--work`.
        name: For `--contender`.
        arguments: Further arguments.

    Raises:
        RuntimeError: If it fails.
    """
    command = [sys.executable, "-m", module, *arguments, "--work", str(folder), "--contender", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def turns(rounds: int) -> Iterator[str]:
    """Yield the names of the contenders, all in each round, another one first each time."""
    names = [OWN, *SINGLES]
    for number in range(rounds):
        first = number % len(names)
        yield from names[first:] + names[:first]
