"""Compare what plans are predicted to take with what they take, on models of the suite and of the generator.

Usage:
    python -m benchmarks.predictions [NAME...] --work DIR [--results FILE.json]

Each model is optimized with default settings, into an empty tuning database. Of each plan that raced, three times are
compared, all at the machine's usual speed: the sum of its kernels measured alone, the sum after kernels of the plans
were timed in place, and what the plan took. A plan of one kernel has no neighbours, so only plans of several count.
Models whose result is in DIR are not run again.

Exits with 1 if the median error after that feedback is above 5 %, or a model took longer than five minutes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.models import MODELS
from benchmarks.models.__main__ import write_model
from benchmarks.page import environment, head, lines_of, noting, written
from benchmarks.regret.generator import all_grafted
from benchmarks.suite import Model

ERROR: Final = 0.05
LONGEST_S: Final = 300.0


def models() -> dict[str, Callable[[Path], Path]]:
    """Return what writes each model into a folder and returns its file, by name; the suite's first."""
    suite = {name: _writing(name) for name in MODELS}
    return suite | {name: grafted.write for name, grafted in all_grafted().items()}


def optimized(name: str, model: Path, work: Path) -> dict[str, Any]:
    """Run `collage optimize` on a model; return what was predicted and measured, as JSON.

    Raises:
        RuntimeError: If it fails.
    """
    report = work / f"{name}.report.json"
    command = [sys.executable, "-m", "collage.cli", "optimize", str(model), "--json", str(report)]
    command += ["-o", str(work / f"{name}.collage"), "--toolchains", "onnxruntime,openvino"]
    if name in MODELS:
        command += Model(MODELS[name], work).shapes()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=work) as folder:
        command += ["--tuning-db", str(Path(folder) / "tuning.sqlite")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    found = json.loads(report.read_text(encoding="utf-8"))
    plans = found["prediction"]["plans"]
    return {
        "name": name,
        "seconds": round(time.monotonic() - began, 1),
        "kept": len(found["regions"]),
        "plans": [plan for plan in plans if plan["kernels"] > 1 and plan["usual_ms"]],
    }


def errors(results: Sequence[Mapping[str, Any]], predicted: str) -> list[float]:
    """Return by which share each plan of several kernels takes more or less than predicted.

    Args:
        results: Of all models.
        predicted: `alone_ms` or `predicted_ms`.
    """
    return [abs(plan["usual_ms"] / plan[predicted] - 1) for result in results for plan in result["plans"]]


def lost(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each figure that does not hold."""
    said = []
    if (found := errors(results, "predicted_ms")) and statistics.median(found) > ERROR:
        said.append(f"the median error after feedback is {statistics.median(found):.1%}; {ERROR:.0%} may be")
    said += [f"{each['name']} took {each['seconds']:.0f} s" for each in results if each["seconds"] > LONGEST_S]
    return said


def markdown(report: Mapping[str, Any]) -> str:
    """Format the results as a page."""
    results = report["models"]
    how = (
        "Every model is optimized with default settings from an empty tuning database. Alone is the sum of a plan's "
        "kernels measured one by one, predicted the sum after the kernels of raced plans were timed in place, and "
        "took what the plan took, all at the machine's usual speed. Plans of one kernel are left out."
    )
    lines = head("Predicted and measured latency", report["environment"], how, "default settings")
    plans = sum(len(result["plans"]) for result in results)
    if plans:
        alone, after = (statistics.median(errors(results, name)) for name in ("alone_ms", "predicted_ms"))
        lines.append(f"Median absolute error over {plans} plans: alone {alone:.1%}, after feedback {after:.1%}.")
    said = "; ".join(lost(results))
    lines += [f"The longest optimization took {max(result['seconds'] for result in results):.0f} s.", ""]
    lines += [f"Not held: {said}." if said else "No figure is above its limit.", ""]
    rows = [
        (
            result["name"],
            f"{result['seconds']:.0f}",
            str(result["kept"]),
            plan["name"],
            *(f"{plan[name]:.3f}" for name in ("alone_ms", "predicted_ms", "usual_ms")),
            *(f"{plan['usual_ms'] / plan[name] - 1:+.1%}" for name in ("alone_ms", "predicted_ms")),
        )
        for result in results
        for plan in result["plans"]
    ]
    headings = ("model", "s", "kernels kept", "plan", "alone ms", "predicted ms", "took ms", "alone", "predicted")
    lines += lines_of(headings, rows)
    without = [f"{each['name']} ({each['seconds']:.0f} s)" for each in results if not each["plans"]]
    if without:
        lines += ["", f"No plan of several kernels was timed on {', '.join(without)}."]
    return "\n".join(lines) + "\n"


def _writing(name: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / f"{name}.onnx"
        write_model(path, MODELS[name].build(), MODELS[name].make_inputs())
        return path

    return write


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is not there yet, and return 1 if a figure does not hold, 2 for misuse."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.predictions", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="models; default: all of suite and generator")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="folder for models and reports")
    parser.add_argument("--results", type=Path, metavar="FILE.json", help="write everything there and a page beside it")
    noting(parser)
    options = parser.parse_args(arguments)
    known = models()
    unknown = [name for name in options.names if name not in known]
    if unknown:
        print(f"predictions: there is no model {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    options.work.mkdir(parents=True, exist_ok=True)
    results = []
    for name in options.names or known:
        done = options.work / f"{name}.result.json"
        if not done.is_file():
            found = optimized(name, known[name](options.work), options.work)
            done.write_text(json.dumps(found) + "\n", encoding="utf-8")
        results.append(json.loads(done.read_text(encoding="utf-8")))
        print(f"{name}: {results[-1]['seconds']} s, plans of several kernels: {len(results[-1]['plans'])}", flush=True)
    report = {"schema_version": 1, "environment": environment(), "models": results}
    if options.results:
        written(options.results, report, markdown(report), options.note, afresh=True)
    print("; ".join(lost(results)) or "No figure is above its limit.")
    return 1 if lost(results) else 0


if __name__ == "__main__":
    sys.exit(main())
