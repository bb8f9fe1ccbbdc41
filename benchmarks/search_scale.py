"""Time candidate generation and the exact search on large graphs, without measuring kernels.

Usage:
    python -m benchmarks.search_scale [NAME...] [--results FILE.json] [--profile] [--note TEXT]

Two toolchains with formula costs, at depth 8: one fuses natively, the other supports every operator, fuses
as well and offers regions. `-any` cases join all adjacent nodes instead, for both: all connected convex
sets up to that depth. `-devices` cases have the second on a separate device, to and from which values are
copied. Each case runs in its own process, which does nothing else. `--profile` runs each once more under a
profiler.
"""

from __future__ import annotations

import argparse
import cProfile
import dataclasses
import io
import json
import pstats
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx_ir
from rich.console import Console
from rich.table import Table

from benchmarks.page import environment, head, lines_of, noting, written
from benchmarks.search_models import densenet, transformer
from collage.setup.copy_costs import HostCopies
from collage.setup.device_figures import ASSUMED
from collage_core.candidates.costs import Costs
from collage_core.candidates.pool import CandidatePool
from collage_core.candidates.proposals import TargetRule, propose
from collage_core.contract import CopyFigures, Cost, Joins, Supported, Target
from collage_core.fusion import (
    JOIN_ANYTHING,
    CandidateBounds,
    CandidateKernel,
    CombineByPrimitivesRule,
    FusionRule,
    FusionSpec,
    OnlyValidRule,
    OpCallByKindRule,
    SubGraph,
    SubGraphConfig,
    default_rule,
)
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import hashable, iterate_bits
from collage_core.ir.graph.work import estimated_work_us
from collage_core.ir.operators.op_kind import OpPatternKind
from collage_core.patterns import PatternTable

DEPTH = 8
BOUNDS = CandidateBounds(max_depth=DEPTH, max_candidates=100_000)
LAUNCH_US = 0.05
DEVICE = "cuda:0"
CHEAP = CopyFigures(latency_us=0.5, bytes_per_us=100_000.0)
"""Copy costs so low that mixing pays in some places, which makes the search hard."""
HEADINGS = ("case", "nodes", "candidates", "index s", "candidates s", "search s", "all s", "limit s", "states", "MB")
PROFILED = 12


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """One graph to search.

    Attributes:
        model: Builds the graph; not timed.
        limit_s: Time limit of the whole case in seconds, if any.
        anything: Whether all adjacent nodes are joined.
        copies: Copy costs to and from a device on which the second toolchain runs; None if both are on the CPU.
    """

    model: Callable[[], onnx_ir.Model]
    limit_s: float | None = None
    anything: bool = False
    copies: CopyFigures | None = None


CASES = {
    "densenet121": Case(densenet, 3.0),
    "bert-12": Case(lambda: transformer(12), 2.0),
    "transformer-74": Case(lambda: transformer(74)),
    "transformer-148": Case(lambda: transformer(148)),
    "transformer-295": Case(lambda: transformer(295), 20.0),
    "densenet121-devices": Case(densenet, copies=ASSUMED),
    "bert-12-devices": Case(lambda: transformer(12), copies=ASSUMED),
    "densenet121-cheap-copies": Case(densenet, copies=CHEAP),
    "bert-12-cheap-copies": Case(lambda: transformer(12), copies=CHEAP),
    "densenet121-any": Case(densenet, anything=True),
    "bert-12-any": Case(lambda: transformer(12), anything=True),
}


class FormulaCosts:
    """Estimated work, times a toolchain's factor for the operator, plus a launch."""

    def __init__(self, graph: DataflowGraph) -> None:
        self._work = estimated_work_us(graph)
        self._graph = graph

    def key(self, sub_graph: SubGraph) -> str:
        """Return a key that is equal for the same nodes only, so that every candidate has its own cost."""
        low, rest = hashable(sub_graph.nodes)
        return f"{low} {rest:x}"

    def cost(self, candidate: CandidateKernel, *, confirmed: bool = True) -> Cost:
        """Compute the cost by a formula under which each toolchain is better at some operators."""
        favoured = len(candidate.target.toolchain) % 2
        total = 0.0
        for index in iterate_bits(candidate.sub_graph.nodes):
            handicap = 1.0 if len(self._graph.nodes[index].op_type) % 2 == favoured else 1.7
            total += self._work[index] * handicap
        return total + LAUNCH_US

    def rejection(self, candidate: CandidateKernel) -> None:
        """Return None: nothing was ever measured."""


def rules(*, anything: bool, device: str = "cpu") -> list[TargetRule]:
    """Return the rules of the two toolchains."""
    found = []
    for name, joins, where in (("native", Joins.NATIVE, "cpu"), ("library", Joins.ANY, device)):
        target = Target(toolchain=name, device=where, fingerprint=f"{name} mock", joins=joins)
        table = PatternTable()
        if joins is Joins.ANY:
            table.predicate("*", lambda node: Supported())
        rule: FusionRule = default_rule(table, target)
        if anything:
            everything = OpCallByKindRule(OpPatternKind.OPAQUE)
            one_exit = SubGraphConfig(max_exits=1, allow_taps=False)
            rule = OnlyValidRule(CombineByPrimitivesRule(everything, JOIN_ANYTHING), one_exit)
        spec = FusionSpec(name=name, rule=rule, targets=(target,))
        found.append(TargetRule(target=target, spec=spec, query={}))
    return found


def searched(name: str, model: onnx_ir.Model) -> dict[str, Any]:
    """Build index and candidates of one case and search it, all timed.

    Returns:
        JSON values; seconds are of processor time, `wall_s` of the wall clock.
    """
    case = CASES[name]
    wall_s, began = time.perf_counter(), time.process_time()
    graph = DataflowGraph(model)
    made = (graph.kinds, graph.ancestors, graph.descendants)
    assert all(len(each) == len(graph) for each in made)
    indexed = time.process_time()
    copies = None
    if case.copies is not None:
        copies = HostCopies({("cpu", DEVICE): case.copies, (DEVICE, "cpu"): case.copies})
    pool = CandidatePool(graph, Costs(FormulaCosts(graph)), dispatch_us=0.1, copy_costs=copies)
    left_out: list[str] = []
    for rule in rules(anything=case.anything, device="cpu" if copies is None else DEVICE):
        proposals = propose(rule, graph, BOUNDS, cuts=None)
        left_out.extend(proposals.left_out)
        pool = pool.with_candidates(proposals.candidates)
    proposed = time.process_time()
    result = pool.engine().run()
    done = time.process_time()
    return {
        "name": name,
        "nodes": len(graph),
        "kernel_nodes": graph.needs_kernel.bit_count(),
        "depth": DEPTH,
        "candidates": len(pool),
        "left_out": left_out,
        "seconds": {
            "index": indexed - began,
            "candidates": proposed - indexed,
            "search": done - proposed,
            "total": done - began,
        },
        "wall_s": time.perf_counter() - wall_s,
        "limit_s": case.limit_s,
        "exact": result.exact,
        "states": result.states,
        "kernels": len(result.candidates),
        "targets": sorted(result.targets),
        "copies": len(result.copies),
        "gap_us": result.gap_us,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def profiled(name: str, model: onnx_ir.Model) -> list[dict[str, Any]]:
    """Return the functions with the most own time under `cProfile`, which about doubles all times."""
    profile = cProfile.Profile()
    profile.runcall(searched, name, model)
    stats = pstats.Stats(profile, stream=io.StringIO())
    roots = re.compile(rf"^({re.escape(str(Path(__file__).resolve().parents[1]))}|.*/lib/python[0-9.]+)/")
    rows = [
        {"function": f"{roots.sub('', file)}:{function}", "calls": calls, "own_s": own, "all_s": whole}
        for (file, _, function), (_, calls, own, whole, _) in stats.stats.items()  # type: ignore[attr-defined]
    ]
    return sorted(rows, key=lambda row: -row["own_s"])[:PROFILED]


def _alone(name: str, *, profile: bool) -> dict[str, Any]:
    """Run one case in a separate process."""
    command = [sys.executable, "-m", "benchmarks.search_scale", name, "--here", *(["--profile"] if profile else [])]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise SystemExit(f"{name} failed: {(ran.stderr or ran.stdout).strip()[-1500:]}")
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def row(found: dict[str, Any]) -> tuple[str, ...]:
    """Format one case as text under `HEADINGS`."""
    seconds = found["seconds"]
    times = (f"{seconds[part]:.2f}" for part in ("index", "candidates", "search", "total"))
    limit = "" if found["limit_s"] is None else f"{found['limit_s']:.0f}"
    counts = f"{found['nodes']:,}", f"{found['candidates']:,}"
    return found["name"], *counts, *times, limit, f"{found['states']:,}", f"{found['peak_mb']:.0f}"


def markdown(report: dict[str, Any]) -> str:
    """Format the results as a Markdown page."""
    how = (
        f"Two toolchains whose costs are a formula, at depth {DEPTH}, at most {BOUNDS.max_candidates:,} groups each: "
        "one fuses natively, the other takes every operator, fuses as well and offers regions. `-any`: both join "
        "whatever touches, with one exit and no taps. Nodes include views, which need no kernel. Seconds are of "
        "processor time, because the machine was busy with other work; there is one thread, and no waiting. The model "
        "is built before. MB: the most the process ever held, the interpreter and the model included."
    )
    lines = [
        *head("Candidates and search on large graphs", report, how, "one process"),
        *lines_of(HEADINGS, map(row, report["cases"])),
    ]
    for case in report["cases"]:
        if "profile" in case:
            lines += ["", f"## Where the time of {case['name']} goes (under cProfile)", ""]
            lines += lines_of(
                ("function", "calls", "own s", "with callees s"),
                (
                    (f"`{each['function']}`", f"{each['calls']:,}", f"{each['own_s']:.2f}", f"{each['all_s']:.2f}")
                    for each in case["profile"]
                ),
            )
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark.

    Returns:
        1 if a case was slower than its limit, held a gigabyte or was not exact; else 0.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_scale", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CASES)}; default: all")
    parser.add_argument(
        "--results", type=Path, metavar="FILE.json", help="write everything there, and a page beside it"
    )
    parser.add_argument("--profile", action="store_true", help="once more, under a profiler")
    noting(parser)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in CASES]:
        parser.error(f"there is no case {', '.join(unknown)}; there are {', '.join(CASES)}")
    if options.here:
        [name] = options.names
        model = CASES[name].model()
        print(json.dumps(profiled(name, model) if options.profile else searched(name, model)))
        return 0
    cases = [_alone(name, profile=False) for name in options.names or CASES]
    if options.profile:
        cases = [{**case, "profile": _alone(case["name"], profile=True)} for case in cases]
    shown = Table(title=f"candidates and exact search, two toolchains, depth {DEPTH}")
    for heading in HEADINGS:
        shown.add_column(heading)
    for case in cases:
        shown.add_row(*row(case))
    Console(width=None if sys.stdout.isatty() else 130).print(shown)
    if options.results:
        report: dict[str, Any] = {"schema_version": 1, **environment(), "cases": cases}
        written(options.results, report, markdown(report), options.note, afresh=True)
    return 0 if all(map(_holds, cases)) else 1


def _holds(case: dict[str, Any]) -> bool:
    in_time = case["limit_s"] is None or case["seconds"]["total"] < case["limit_s"]
    return bool(in_time and case["exact"] and case["peak_mb"] < 1024)


if __name__ == "__main__":
    sys.exit(main())
