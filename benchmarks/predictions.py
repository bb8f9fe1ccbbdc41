"""Compare what plans are predicted to take with what they take, on models of the suite and of the generator.

Usage:
    python -m benchmarks.predictions [NAME...] --work DIR [--results FILE.json]

Each model is optimized with default settings, into an empty tuning database. Of each plan that raced, three times are
compared, all at the machine's usual speed: the sum of its kernels measured alone, the sum after kernels of the plans
were timed in place, and what the plan took. A plan of one kernel has no neighbours, so only plans of several count.
Models that were optimized in DIR, be it by `benchmarks.suite`, are not optimized again.

Exits with 1 if the median error after that feedback is above 5 %, or a model took longer than five minutes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from benchmarks.all_models import writers
from benchmarks.page import environment, head, lines_of, noting, written
from benchmarks.suite import Model, run_step

ERROR: Final = 0.05
LONGEST_S: Final = 300.0


def result(model: Model) -> dict[str, Any]:
    """Return what was predicted and measured of an optimized model, as JSON."""
    found = json.loads(model.found.read_text(encoding="utf-8"))
    plans = found["comparison"]["contenders"]
    return {
        "name": model.name,
        "seconds": found["search"]["seconds"]["total"],
        "kept": len(found["regions"]),
        "plans": [plan for plan in plans if plan["regions"] > 1 and plan["usual_ms"]],
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is not there yet, and return 1 if a figure does not hold, 2 for misuse."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.predictions", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="models; default: all of suite and generator")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="folder for models and reports")
    parser.add_argument("--results", type=Path, metavar="FILE.json", help="write everything there and a page beside it")
    parser.add_argument("--toolchains", default="onnxruntime,openvino", help="as for `collage optimize`")
    noting(parser)
    options = parser.parse_args(arguments)
    known = writers()
    if unknown := [name for name in options.names if name not in known]:
        print(f"predictions: there is no model {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    options.work.mkdir(parents=True, exist_ok=True)
    console, results = Console(), []
    for name in options.names or known:
        model = Model(name, options.work)
        if not all(run_step(*step, console=console, again=False) for step in model.search(options.toolchains)):
            return 1
        results.append(result(model))
        print(f"{name}: {results[-1]['seconds']} s, plans of several kernels: {len(results[-1]['plans'])}", flush=True)
    report = {"schema_version": 1, "environment": environment(), "models": results}
    if options.results:
        written(options.results, report, markdown(report), options.note, afresh=True)
    print("; ".join(lost(results)) or "No figure is above its limit.")
    return 1 if lost(results) else 0


if __name__ == "__main__":
    sys.exit(main())
