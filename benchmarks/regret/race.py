"""Have the independent judge time the plan that `collage optimize` finds by default, and the best known one."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import onnx

from benchmarks.judge.contender import CONTENDERS, Contender, built_in
from benchmarks.judge.inputs import beside, read
from benchmarks.judge.report import summarise
from benchmarks.judge.rounds import Outcome, Protocol, compete
from benchmarks.judge.statistics import decides
from benchmarks.records import plan_of, record_of
from benchmarks.regret.replaying import best_of
from benchmarks.regret.searches import CANDIDATES, SEARCHES, described, searched
from benchmarks.replay.bench import Bench
from collage.store import TuningStore
from collage_core.candidates.plan import Plan
from collage_core.ir.graph.masks import iterate_bits

WITHIN: Final = 1.02
UNDECIDED_AT_MOST: Final = 2
_SINGLES: Final = ("onnxruntime", "onnxruntime-nospin", "openvino")
Kernels: TypeAlias = frozenset[tuple[str, frozenset[str]]]
"""Kernels of a plan: the target of each, and the names of its nodes."""


def raced(bench: Bench, store: TuningStore, known: Path, protocol: Protocol) -> dict[str, Any]:
    """Make both plans of a model, have them judged with the single toolchains, and return the results as JSON.

    Args:
        bench: The model. It is optimized as users do, with default settings and an empty database.
        store: Its measurements.
        known: File of its known candidates.
        protocol: The judge's.
    """
    found = {name: searched(bench, options, store, None, live=CANDIDATES) for name, options in SEARCHES.items()}
    _, best = best_of(bench, store, known, list(found.values()))
    packages = {name: bench.path.with_suffix(f".{name}.collage") for name in ("default", "best")}
    ours, seconds = optimized(bench.path, packages["default"])
    if ours == kernels_of(best):
        del packages["best"]
    else:
        bench.save(best, packages["best"])
    contenders = [built_in()[name] for name in _SINGLES]
    for name, package in packages.items():
        options = {"model": str(package)}
        contenders.append(Contender(name=name, file=CONTENDERS / "collage_package.py", options=options))
    model = onnx.load(bench.path)
    outcomes = compete(
        bench.path,
        read(beside(bench.path)),
        [output.name for output in model.graph.output],
        contenders,
        protocol,
    )
    judged = summarise({"name": bench.path.stem}, outcomes)
    return {
        "name": bench.path.stem,
        "plans": {
            "default": {
                "kernels": [{"target": target, "nodes": sorted(nodes)} for target, nodes in sorted(ours, key=str)]
            },
            "best": described(best),
        },
        "optimize_seconds": round(seconds, 1),
        "judged": judged["contenders"],
        "best_single": judged["best_single"],
        **_compared(outcomes),
    }


def optimized(model: Path, package: Path) -> tuple[Kernels, float]:
    """Run `collage optimize` from an empty database; return the plan's kernels, and the seconds that it took.

    Args:
        model: The ONNX file, its inputs beside it.
        package: Where the package goes.

    Raises:
        RuntimeError: If it fails.
    """
    with tempfile.TemporaryDirectory(dir=model.parent) as folder:
        command = [sys.executable, "-m", "collage.cli", "optimize", str(model), "-o", str(package), "--anew"]
        command += ["--toolchains", "onnxruntime,openvino", "--inputs", str(beside(model))]
        command += ["--tuning-db", str(Path(folder) / "tuning.sqlite")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    kernels = frozenset((each["target"], frozenset(each["nodes"])) for each in plan_of(package))
    return kernels, float(record_of(package)["search"]["seconds"]["total"])


def kernels_of(plan: Plan) -> Kernels:
    """Return the kernels of a plan as a package's record has them."""
    names = plan.graph.names
    return frozenset(
        (kernel.target.name, frozenset(names[index] for index in iterate_bits(kernel.sub_graph.nodes)))
        for kernel in plan.kernels
    )


def _compared(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the ratio of the default plan to the best known one, and what it says."""
    ran = {outcome.contender.name: outcome for outcome in outcomes}
    failed = {name: ran[name].failed for name in ("default", "best") if name in ran and ran[name].failed}
    if failed:
        return {"ratio": None, "ci95": None, "verdict": f"failed: {failed}"}
    if "best" not in ran:
        return {"ratio": 1.0, "ci95": [1.0, 1.0], "verdict": "the same plan"}
    ratio = ran["default"].ratio_to(ran["best"])
    interval = [ratio.low, ratio.high]
    return {"ratio": ratio.value, "ci95": interval, "verdict": judged(ratio.low, ratio.high)}


def judged(low: float, high: float) -> str:
    """Return what the interval of a ratio says of a plan.

    Examples:
        >>> judged(0.99, 1.01), judged(1.0, 1.05), judged(1.03, 1.05), judged(0.9, 1.01)
        ('within', 'undecided', 'lost', 'not measured')
    """
    if low > WITHIN:
        return "lost"
    if not decides(low, high):
        return "not measured"
    return "within" if high <= WITHIN else "undecided"
