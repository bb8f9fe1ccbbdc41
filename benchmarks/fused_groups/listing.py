"""The groups that `collage-halide` proposes in a model, with the time that ONNX Runtime takes for their operators."""

from __future__ import annotations

import collections
import dataclasses
import functools
import json
import math
import statistics
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnx_ir

from benchmarks.judge.inputs import beside, read
from collage.prepare.steps import prepare
from collage_core.candidates.proposals import propose, target_rule
from collage_core.contract import Joins, Target
from collage_core.fusion import CandidateBounds, SubGraph, kernel_function
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.registry import Toolchain
from collage_halide.plugin import plugin

COUNT: Final = 40
OF_A_KIND: Final = 4
RUNS: Final = 7
TARGET: Final = Target(toolchain="halide", fingerprint="listing", joins=Joins.NATIVE)

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A fused group of a model.

    Attributes:
        model: Name of the model.
        name: Name of the group: the model's, and the begin of its structure's hash.
        kind: Its operators, in order.
        nodes: Names of its nodes.
        structure: Hash that is equal for groups that compute the same.
        unfused_ms: What ONNX Runtime takes for its operators, one after the other.
    """

    model: str
    name: str
    kind: str
    nodes: tuple[str, ...]
    structure: str
    unfused_ms: float


@dataclasses.dataclass(frozen=True, eq=False)
class Prepared:
    """A prepared model with its inputs.

    Args:
        path: File of the model; its inputs are beside it.
        threads: Threads of ONNX Runtime.
    """

    path: Path
    threads: int

    def graph(self) -> DataflowGraph:
        """Return the model as the search sees it, every node under its name there."""
        feeds = read(beside(self.path))
        shapes = {name: array.shape for name, array in feeds.items()}
        graph = DataflowGraph(prepare(onnx_ir.load(self.path), input_shapes=shapes))
        for node, name in zip(graph.nodes, graph.names, strict=True):
            node.name = name
        return graph

    def node_times(self, model: onnx_ir.Model) -> dict[str, float]:
        """Return what each node takes in milliseconds, by ONNX Runtime's profiler, none fused with another."""
        with tempfile.TemporaryDirectory() as folder:
            options = self._options()
            options.enable_profiling = True
            options.profile_file_prefix = str(Path(folder) / "profile")
            session = self._session(onnx_ir.to_proto(model), options)
            feeds = read(beside(self.path))
            for _ in range(RUNS + 1):
                session.run(None, feeds)
            events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
        samples: dict[str, list[float]] = collections.defaultdict(list)
        for event in events:
            name = str(event.get("name", ""))
            if event.get("cat") == "Node" and name.endswith("_kernel_time"):
                samples[name.removesuffix("_kernel_time")].append(event["dur"] / 1e3)
        return {name: statistics.median(found[1:] or found) for name, found in samples.items()}

    def values(self, model: onnx_ir.Model, names: Iterable[str]) -> dict[str, Array]:
        """Return values inside the model, on its inputs."""
        proto = onnx_ir.to_proto(model)
        wanted = list(dict.fromkeys(names))
        feeds = read(beside(self.path))
        outputs = {output.name for output in proto.graph.output}
        for name in wanted:
            if name not in outputs and name not in feeds:
                proto.graph.output.append(onnx.ValueInfoProto(name=name))
        session = self._session(proto, self._options())
        inside = [name for name in wanted if name not in feeds]
        found = dict(zip(inside, session.run(inside, feeds), strict=True)) if inside else {}
        return {name: feeds[name] if name in feeds else found[name] for name in wanted}

    def _options(self) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = self.threads
        options.log_severity_level = 4
        return options

    def _session(self, proto: onnx.ModelProto, options: Any) -> Any:
        import onnxruntime

        return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def proposed(graph: DataflowGraph) -> list[SubGraph]:
    """Return the groups of two nodes and more that are proposed, without those inside a larger one."""
    rule = target_rule(Toolchain("halide", plugin), TARGET, {})
    found = propose(rule, graph, CandidateBounds.preset("default")).candidates
    groups = {each.sub_graph.nodes & graph.needs_kernel: each.sub_graph for each in found}
    several = [nodes for nodes in groups if nodes.bit_count() > 1]
    return [
        groups[nodes] for nodes in several if not any(nodes != other and nodes & other == nodes for other in several)
    ]


def groups_of(name: str, prepared: Prepared) -> list[Group]:
    """Return the groups of a model, those that compute the same once."""
    graph = prepared.graph()
    times = prepared.node_times(graph.model)
    found: dict[str, Group] = {}
    for sub_graph in proposed(graph):
        places = list(iterate_bits(sub_graph.nodes & graph.needs_kernel))
        nodes = tuple(graph.names[index] for index in places)
        group = Group(
            model=name,
            name=f"{name}-{sub_graph.structural_hash[:8]}",
            kind=" ".join(graph.nodes[index].op_type for index in places),
            nodes=nodes,
            structure=sub_graph.structural_hash,
            unfused_ms=math.fsum(times.get(node, 0.0) for node in nodes),
        )
        known = found.get(group.structure)
        if known is None or known.unfused_ms < group.unfused_ms:
            found[group.structure] = group
    return list(found.values())


def chosen(groups: Iterable[Group], count: int = COUNT, of_a_kind: int = OF_A_KIND) -> list[Group]:
    """Return the groups with most time, at most a few with the same operators, each structure once."""
    taken: list[Group] = []
    kinds: collections.Counter[str] = collections.Counter()
    structures: set[str] = set()
    for group in sorted(groups, key=lambda each: (-each.unfused_ms, each.name)):
        if len(taken) < count and kinds[group.kind] < of_a_kind and group.structure not in structures:
            taken.append(group)
            kinds[group.kind] += 1
            structures.add(group.structure)
    return taken


def extracted(prepared: Prepared, group: Group) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return a group as a model of its own, and its inputs as the whole model computes them.

    A listed group stays the same, whatever `collage-halide` proposes by now.

    Raises:
        ValueError: If the model has no such nodes any more.
    """
    graph = prepared.graph()
    missing = sorted({*group.nodes} - {*graph.names})
    if missing:
        raise ValueError(f"{group.model} has no {', '.join(missing)}: list the groups anew")
    nodes = functools.reduce(int.__or__, (1 << graph.names.index(name) for name in group.nodes))
    function = kernel_function(SubGraph(graph, graph.completed(nodes)), "group")
    names = [spec.name for spec in function.inputs]
    return onnx_ir.to_proto(function.model), prepared.values(graph.model, names)
