"""Candidates that some search of a model asked for, kept in a file, so that the best known plan never gets worse."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from collage_core.candidates.proposals import TargetRule
from collage_core.fusion import CandidateKernel, SubGraph
from collage_core.ir.graph.dataflow import DataflowGraph


def read_known(path: Path, graph: DataflowGraph, rules: Iterable[TargetRule]) -> list[CandidateKernel]:
    """Read the candidates of a model; none if there is no file, or it is of a model prepared otherwise.

    Args:
        path: The file.
        graph: The prepared model's graph.
        rules: The targets with their rules.
    """
    if not path.is_file():
        return []
    document = json.loads(path.read_text(encoding="utf-8"))
    if document["graph"] != _digest(graph):
        return []
    by_target = {rule.target.name: rule for rule in rules}
    return [
        CandidateKernel(SubGraph(graph, int(nodes, 16)), by_target[target].spec, by_target[target].target)
        for target, nodes in document["candidates"]
        if target in by_target
    ]


def write_known(path: Path, graph: DataflowGraph, candidates: Sequence[CandidateKernel]) -> None:
    """Write the candidates of a model, except those that a pattern labelled: their rule has to propose them."""
    plain = {
        (each.target.name, hex(each.sub_graph.nodes))
        for each in candidates
        if not each.sub_graph.label and not each.sub_graph.composites
    }
    path.write_text(json.dumps({"graph": _digest(graph), "candidates": sorted(plain)}) + "\n", encoding="utf-8")


def _digest(graph: DataflowGraph) -> str:
    return hashlib.sha256("\n".join(graph.names).encode()).hexdigest()
