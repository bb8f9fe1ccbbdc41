"""The process of one contender: sets it up, then answers commands on its pipe.

Commands and answers are one JSON object a line. Between commands the process is blocked in a read,
so that only one contender runs at a time. Whatever libraries print goes to standard error.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from benchmarks.judge.statistics import disagreement


def load_setup(file: Path) -> Callable[..., Callable[[], Any]]:
    """Import a contender's file and return its function `setup`.

    Raises:
        ImportError: If the file cannot be imported.
        AttributeError: If it has no `setup`.
    """
    spec = importlib.util.spec_from_file_location(f"contender_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    setup: Callable[..., Callable[[], Any]] = module.setup
    return setup


def timed_burst(call: Callable[[], Any], seconds: float, min_runs: int, warmup_s: float) -> list[float]:
    """Run for `warmup_s`, at least once, then until both `seconds` and `min_runs` are reached.

    What a run returns is kept until the next one has returned, as in a loop that uses its results.

    Returns:
        Time of each run, in microseconds.
    """
    clock = time.perf_counter_ns
    samples: list[float] = []
    warm = clock() + int(warmup_s * 1e9)
    kept = call()
    while clock() < warm:
        kept = call()
    end = clock() + int(seconds * 1e9)
    while True:
        start = clock()
        kept = call()  # noqa: F841  the one before ends here, within the time: that is part of using a library
        stop = clock()
        samples.append((stop - start) / 1e3)
        if stop >= end and len(samples) >= min_runs:
            return samples


def outputs_of(call: Callable[[], Any], names: list[str]) -> dict[str, np.ndarray[Any, Any]]:
    """Run once and return the outputs by name (see `benchmarks.judge.contender`)."""
    result = call()
    reader = getattr(call, "outputs", None)
    if reader is not None:
        result = reader()
    if not isinstance(result, dict):
        # OpenVINO's mapping has ports for keys, in the order of the outputs
        values = result.values() if isinstance(result, Mapping) else result
        result = dict(zip(names, values, strict=True))
    return {str(name): np.array(value) for name, value in result.items()}


def serve(commands: TextIO, answers: TextIO) -> None:
    """Answer commands until the pipe closes."""
    call: Callable[[], Any] | None = None
    for line in commands:
        command = json.loads(line)
        answer: dict[str, Any] = {}
        try:
            if command["do"] == "setup":
                with np.load(command["inputs"]) as archive:
                    inputs = {name: np.ascontiguousarray(archive[name]) for name in archive.files}
                setup = load_setup(Path(command["file"]))
                call = setup(command["model"], inputs, command["threads"], **command["options"])
                names = command["output_names"]
                outputs = outputs_of(call, names)
                np.savez(command["outputs"], **outputs)  # type: ignore[arg-type]
                answer["note"] = getattr(call, "note", "")
                as_called = getattr(call, "as_called", None)
                called = outputs if as_called is None else outputs_of(as_called, names)
                answer["called_error"] = min(disagreement(outputs, called), sys.float_info.max)  # JSON has no infinity
                gc.collect()
                gc.disable()
            elif call is not None:
                protocol = command["seconds"], command["min_runs"], command["warmup_s"]
                answer["samples_us"] = timed_burst(call, *protocol)
                as_called = getattr(call, "as_called", None)
                # caches are warm: the same contender has just run
                answer["called_us"] = timed_burst(as_called, *protocol[:2], 0.0) if as_called is not None else []
        except Exception as error:
            traceback.print_exc()
            answer["failed"] = f"{type(error).__name__}: {error}"
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def main() -> None:
    """Keep standard output for answers only, and serve."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
