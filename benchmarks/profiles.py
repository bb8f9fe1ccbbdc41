"""Check what toolchains' own profiles say of the suite's models: the share of the time that belongs to nodes.

Usage:
    python -m benchmarks.profiles [NAME...] --work DIR [--results FILE.json] [--toolchains NAMES]

Each toolchain's largest kernel of each model, usually all of it, is measured and then profiled, as the search would
do it. The table has the kernel's latency without the profiler, the sum of the profile, the share of that sum which is
attributed to nodes, the share of conversions that the library inserted (they count to the node whose result they
convert), the number of parts, and the part with the largest share. A coarse profile would have few parts.

Exits with 1 if no toolchain profiles a model, or a profile attributes less than 90 % of its time.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.models import MODELS
from benchmarks.page import environment, head, lines_of, noting, written
from collage.options import OptimizeOptions
from collage.setup.environment import Environment
from collage.setup.queries import usable_rules
from collage.setup.settings import SetupChoices, candidate_bounds
from collage.setup.workload import Workload
from collage_core.candidates.proposals import TargetRule, propose
from collage_core.contract import KernelProfile, Unsupported
from collage_core.fusion import CandidateKernel
from collage_core.ir.graph.dataflow import DataflowGraph

LEAST_SHARE = 0.9
_LISTED = 3
"""Unattributed entries in a report."""

HEADINGS = (
    "model",
    "target",
    "nodes",
    "latency ms",
    "profile ms",
    "attributed",
    "conversions",
    "parts",
    "largest part",
)


def profiled(path: Path, toolchains: str) -> Iterator[dict[str, Any]]:
    """Profile the largest kernel of each target; yield the results as JSON.

    Args:
        path: The model, with its inputs beside it.
        toolchains: As for `collage optimize`.
    """
    options = OptimizeOptions(toolchains=toolchains, tuning_db=str(path.with_name("tuning.sqlite")))
    inputs = path.with_suffix(".inputs.npz")
    with Environment.open(lambda: Workload(path, inputs=inputs), SetupChoices.of(options)) as opened:
        for rule in usable_rules(opened.asked):
            candidate = _largest(rule, opened.graph, options)
            result: dict[str, Any] = {"model": path.stem, "target": rule.target.name, "nodes": len(opened.graph)}
            if candidate is None:
                yield result | {"refused": "it takes no node"}
                continue
            opened.source.measure([candidate])
            rejected = opened.source.rejection(candidate)
            profile = Unsupported(rejected.reason) if rejected is not None else opened.source.profile(candidate)
            if isinstance(profile, Unsupported):
                yield result | {"refused": profile.reason}
                continue
            latency_us = statistics.median(opened.source.medians_us(candidate))
            yield result | {"latency_us": latency_us, "covered": len(candidate.sub_graph.names)} | _facts(profile)


def _largest(rule: TargetRule, graph: DataflowGraph, options: OptimizeOptions) -> CandidateKernel | None:
    proposals = propose(rule, graph, candidate_bounds(options))
    return max(proposals.candidates, key=lambda each: each.sub_graph.nodes.bit_count(), default=None)


def _facts(profile: KernelProfile) -> dict[str, Any]:
    largest = max(profile.parts, key=lambda part: part.time_us)
    return {
        "profile_us": profile.total_us,
        "attributed": profile.attributed_share,
        "conversions": sum(part.conversion_us for part in profile.parts) / profile.total_us,
        "parts": len(profile.parts),
        "nodes_in_parts": sum(len(part.nodes) for part in profile.parts),
        "largest": {"nodes": largest.nodes, "share": largest.time_us / profile.total_us},
        "unattributed": [dataclasses.asdict(each) for each in profile.unattributed[:_LISTED]],
    }


def holds(results: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether each model has a profile, and each profile attributes enough."""
    profiles = [result for result in results if "refused" not in result]
    enough = all(result["attributed"] >= LEAST_SHARE for result in profiles)
    return enough and {result["model"] for result in results} == {result["model"] for result in profiles}


def rows(results: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield the results as text under `HEADINGS`."""
    for result in results:
        if "refused" in result:
            yield result["model"], result["target"], str(result["nodes"]), *([""] * 5), f"refused: {result['refused']}"
            continue
        largest = result["largest"]
        yield (
            result["model"],
            result["target"],
            f"{result['covered']} of {result['nodes']}",
            f"{result['latency_us'] / 1000:.2f}",
            f"{result['profile_us'] / 1000:.2f}",
            f"{result['attributed']:.1%}",
            f"{result['conversions']:.1%}",
            str(result["parts"]),
            f"{largest['share']:.0%}: {', '.join(largest['nodes'][:_LISTED])}"
            + (f" and {len(largest['nodes']) - _LISTED} more" if len(largest["nodes"]) > _LISTED else ""),
        )


def unattributed(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each profile that leaves something unattributed, largest entries first."""
    for result in results:
        entries = [f"{each['name']} {each['time_us']:.0f} us" for each in result.get("unattributed", ())]
        if entries:
            yield f"{result['model']}, {result['target']}: {', '.join(entries)}"


def markdown(results: Sequence[Mapping[str, Any]], measured_in: Mapping[str, Any]) -> str:
    """Format the results as a page."""
    how = (
        "The largest kernel of each target, measured and then profiled by its toolchain. Conversions are layout "
        "reorders, reshapes and casts that the library inserted; they count to the node whose result they convert, or "
        "to the reader of an input. Profiles take time themselves, and the machine was not quiet: read shares."
    )
    lines = head("Profiles of the suite", measured_in, how, "one process")
    lines += lines_of(HEADINGS, rows(results))
    rest = list(unattributed(results))
    lines += [
        "",
        "Largest unattributed entries:" if rest else "Nothing is unattributed.",
        *(f"- {each}" for each in rest),
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Profile the models that are named, or all; return 1 if a profile attributes too little, 2 for misuse."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profiles", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all models")
    parser.add_argument("--work", type=Path, default=Path("demo-out/profiles"), metavar="DIR", help="folder for files")
    parser.add_argument("--results", type=Path, metavar="FILE.json", help="write everything there and a page beside it")
    parser.add_argument("--toolchains", default="onnxruntime,openvino", help="as for `collage optimize`")
    noting(parser)
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(MODELS))
    if unknown:
        print(f"profiles: no model {', '.join(unknown)}; there are {', '.join(MODELS)}", file=sys.stderr)
        return 2
    options.work.mkdir(parents=True, exist_ok=True)
    results: list[dict[str, Any]] = []
    print(" | ".join(HEADINGS))
    for name in options.names or MODELS:
        path = options.work / f"{name}.onnx"
        if not path.exists():
            command = [sys.executable, "-m", "benchmarks.models", name, "--out", str(options.work)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        for result in profiled(path, options.toolchains):
            results.append(json.loads(json.dumps(result)))
            print(" | ".join(next(rows([result]))), flush=True)
    print("\n".join(unattributed(results)))
    if options.results:
        measured_in = environment()
        report = {"schema_version": 1, "environment": measured_in, "profiles": results}
        written(options.results, report, markdown(results, measured_in), options.note, afresh=True)
    return 0 if holds(results) else 1


if __name__ == "__main__":
    sys.exit(main())
