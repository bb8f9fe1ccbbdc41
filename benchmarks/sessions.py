"""Optimize a model, and run package and toolchains as users call them, each in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

import numpy as np

OWN: Final = "collage"
SINGLES: Final = ("onnxruntime", "openvino")
SETTLE_S: Final = 0.1
"""Pause before a turn: threads of ONNX Runtime spin for about 60 ms after a run."""

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


def in_turns(module: str, folder: Path, names: Sequence[str], parts: int, *arguments: str) -> dict[str, list[Any]]:
    """Run a benchmark's module for each contender in a new process; return the parts of each, as JSON.

    They work in turns, one part each in a random order, so that a machine whose speed changes is as fast for one as for
    the others. Before each turn is a pause, in which the threads of the one before cease to spin.

    Args:
        module: Name of the module, which takes `--work` and `--contender` and calls `answer`.
        folder: For `--work`.
        names: For `--contender`.
        parts: How many each is asked for, after a first one that gets it ready and is not returned.
        arguments: Further arguments.

    Raises:
        RuntimeError: If one fails.
    """
    found: dict[str, list[Any]] = {name: [] for name in names}
    order = random.Random(0)
    with contextlib.ExitStack() as stack:
        processes = {}
        for name in names:
            command = [sys.executable, "-m", module, *arguments, "--work", str(folder), "--contender", name]
            log = stack.enter_context(tempfile.TemporaryFile("w+"))
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
            stack.enter_context(process)
            stack.callback(process.kill)
            processes[name] = process, log
        for _ in range(parts + 1):
            for name in order.sample(names, len(names)):
                time.sleep(SETTLE_S)
                found[name].append(_asked(name, *processes[name]))
    return {name: made[1:] for name, made in found.items()}


def _asked(name: str, process: subprocess.Popen[str], log: IO[str]) -> Any:
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):  # the read says that it ended
        print(file=process.stdin, flush=True)
    if not (line := process.stdout.readline()):
        process.wait()
        log.seek(0)
        raise RuntimeError(f"{name} failed:\n{log.read()}")
    return json.loads(line)


def answer(parts: Iterable[Any]) -> None:
    """Print the next part as a line of JSON for each line of standard input; the process of a contender ends with it.

    Args:
        parts: Of which the first gets ready, and is not a result.
    """
    made = iter(parts)
    for _ in sys.stdin:
        print(json.dumps(next(made)), flush=True)
