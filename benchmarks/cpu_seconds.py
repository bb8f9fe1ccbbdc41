"""Count the processor seconds of `collage optimize`, of all its processes, with an empty database and with a full one.

Usage:
    python -m benchmarks.cpu_seconds [NAME...] --work DIR [--before TREE] [--results FILE.json] [--runs N]

Each run optimizes a model cold, into an empty tuning database, and warm, by the same command over what the first left.
That keeps the package by now, so a third run says `--anew`. The figure is the minimum over the runs, because other load
only adds. `--before` is another source tree of this project, whose dependencies this Python has; it takes turns with
this one. Turns of these trees whose runs are in DIR are not made again.

Exits with 1 if a cold run takes more than before, or a warm one more than half of what it took.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.judge.report import write_json
from benchmarks.models import MODELS
from benchmarks.page import environment, head, lines_of, noting, written

NAMES: Final = ("resnet50", "bert_base_6", "segmenter")
HERE: Final = Path(__file__).parents[1]
STATES: Final[Mapping[str, tuple[str, ...]]] = {"before": ("cold", "warm"), "now": ("cold", "warm", "anew")}
"""How each tree is run, in this order."""
WARM_AT_MOST: Final = 0.5
"""Share of what a warm run took before that it may take now."""


def run(tree: Path, model: Path, folder: Path, *, anew: bool) -> dict[str, Any]:
    """Run `collage optimize` with the code of a source tree; return seconds, and how much was measured, as JSON.

    Raises:
        RuntimeError: If it fails.
    """
    package, report = folder / "model.collage", folder / "report.json"
    command = [sys.executable, "-m", "tests.from_source", "-m", "collage.cli", "optimize", str(model)]
    command += ["-o", str(package), "--json", str(report), "--toolchains", "onnxruntime,openvino"]
    command += ["--anew"] if anew else []
    own = {"COLLAGE_TUNING_DB": str(folder / "tuning.sqlite"), "PYTHONPATH": ""}
    own["PYTHONDONTWRITEBYTECODE"] = ""  # what is installed has its bytecode
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        command, cwd=tree, env={**os.environ, **own}, capture_output=True, text=True, check=False, timeout=1800
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} in {tree} failed:\n{done.stderr}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    search = json.loads(report.read_text(encoding="utf-8"))["search"]
    return {
        "cpu_s": round(cpu_s, 2),
        "wall_s": round(time.monotonic() - began, 2),
        "measured": search["measured"],
        "phases": search["seconds"],
    }


def runs(trees: Mapping[str, Path], model: Path, count: int) -> Iterator[dict[str, Any]]:
    """Yield the runs of each tree, in turns. Those of a turn are kept beside the model, and not made again.

    Args:
        trees: Source trees by name. What another tree of that name did does not count.
        model: The model.
        count: Turns of each tree.
    """
    for turn in range(count):
        for name, tree in trees.items():
            done = model.with_suffix(f".{name}-{turn}.json")
            known = json.loads(done.read_text(encoding="utf-8")) if done.is_file() else {}
            if known.get("of") != str(tree):
                known = {"of": str(tree), "runs": turn_of(tree, model, STATES[name])}
                write_json(done, known)
            for each in known["runs"]:
                yield {"tree": name, "turn": turn, **each}


def turn_of(tree: Path, model: Path, states: Sequence[str]) -> list[dict[str, Any]]:
    """Run the code of a source tree in each state, in this order, over one tuning database; return what `run` does."""
    with tempfile.TemporaryDirectory(dir=model.parent) as folder:
        return [{"state": state, **run(tree, model, Path(folder), anew=state == "anew")} for state in states]


def least(result: Mapping[str, Any], tree: str, state: str, figure: str) -> float | None:
    """Return the minimum of a figure over the runs; None if there are none."""
    found = [float(each[figure]) for each in result["runs"] if (each["tree"], each["state"]) == (tree, state)]
    return min(found, default=None)


def lost(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each figure that does not hold; none where nothing is known of before."""
    said = []
    for result in results:
        for state, share in (("cold", 1.0), ("warm", WARM_AT_MOST)):
            now, before = (least(result, tree, state, "cpu_s") for tree in ("now", "before"))
            if now is not None and before is not None and now > share * before:
                said.append(f"{result['model']}, {state}: {now:.1f} s, before {before:.1f} s")
    return said


def markdown(report: Mapping[str, Any]) -> str:
    """Format the results as a page."""
    how = (
        "Processor seconds of `collage optimize` with all its processes, cold with an empty tuning database and warm "
        "by the same command over what the cold run left, which keeps the package by now; with `--anew` it searches "
        f"and builds again. The minimum of {report['runs']} runs; in brackets the wall-clock seconds and, unless the "
        "package was kept, the number of measurements."
    )
    lines = head("Processor seconds of an optimization", report["environment"], how, "default settings")
    trees = [tree for tree in ("before", "now") if any(each["tree"] == tree for each in report["models"][0]["runs"])]

    def cell(result: Mapping[str, Any], tree: str, state: str) -> str:
        cpu_s, wall_s, count = (least(result, tree, state, name) for name in ("cpu_s", "wall_s", "measured"))
        counted = "" if (tree, state) == ("now", "warm") else f"; {count:.0f}"
        return "" if cpu_s is None else f"{cpu_s:.1f} ({wall_s:.1f}{counted})"

    columns = [(tree, state) for state in STATES["now"] for tree in trees if state in STATES[tree]]
    headings = ("model", *(f"{state}, {tree}" for tree, state in columns))
    rows = [(result["model"], *(cell(result, *column) for column in columns)) for result in report["models"]]
    lines += lines_of(headings, rows)
    if "before" in trees:
        said = lost(report["models"])
        lines += ["", "Not held: " + "; ".join(said) + "." if said else "No figure is above its limit."]
    phases = ("model", "state", *_phases(report["models"]))
    spent = [
        (result["model"], state, *(f"{_phase(result, state, phase):.1f}" for phase in _phases(report["models"])))
        for result in report["models"]
        for state in ("cold", "anew")
    ]
    lines += ["", "Wall-clock seconds of each phase now, minimum of the runs:", "", *lines_of(phases, spent)]
    return "\n".join(lines) + "\n"


def _phases(results: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(phase for result in results for each in result["runs"] for phase in each["phases"]))


def _phase(result: Mapping[str, Any], state: str, phase: str) -> float:
    of = [each["phases"].get(phase, 0.0) for each in result["runs"] if (each["tree"], each["state"]) == ("now", state)]
    return float(min(of))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything; return 1 if a figure does not hold, 2 for misuse."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cpu_seconds", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: {', '.join(NAMES)}")
    parser.add_argument("--work", type=Path, default=Path("demo-out/cpu"), metavar="DIR", help="folder for files")
    parser.add_argument("--before", type=Path, metavar="TREE", help="another source tree to compare with")
    parser.add_argument("--results", type=Path, metavar="FILE.json", help="write everything there and a page beside it")
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="of each tree and model")
    noting(parser)
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.names) - set(MODELS)):
        print(f"cpu_seconds: no model {', '.join(unknown)}; there are {', '.join(MODELS)}", file=sys.stderr)
        return 2
    trees = {"now": HERE} if options.before is None else {"before": options.before.resolve(), "now": HERE}
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    results: list[dict[str, Any]] = []
    for name in options.names or NAMES:
        path = work / f"{name}.onnx"
        if not path.exists():
            command = [sys.executable, "-m", "benchmarks.models", name, "--out", str(work)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        results.append({"model": name, "runs": []})
        for each in runs(trees, path, options.runs):
            results[-1]["runs"].append(each)
            print(name, json.dumps(each), flush=True)
    report = {"schema_version": 1, "environment": environment(), "runs": options.runs, "models": results}
    if options.results:
        written(options.results, report, markdown(report), options.note, afresh=True)
    said = lost(results)
    print("; ".join(said) or "no figure is above its limit")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
