"""ONNX Runtime's profile of a kernel, attributed to the nodes of the kernel's function."""

from __future__ import annotations

import dataclasses
import json
import re
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx_ir

from collage_core.contract import (
    Artifact,
    BoundCall,
    Kernel,
    KernelFunction,
    KernelProfile,
    LibraryStep,
    RunContext,
    Target,
    Unsupported,
    attributed,
)
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_onnxruntime.kernel import MODEL, open_session

_MOVES = frozenset(
    {
        *("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Cast"),
        *("ReorderInput", "ReorderOutput"),
    }
)
"""Operators that ONNX Runtime's optimiser inserts to change a value's layout, shape or type."""

_EVENT = re.compile(r"(.*)_kernel_time")
_INNER = "inner"
"""Begins the name of a node in a body."""

_DECORATION = "_/ "
"""Characters that begin what the optimiser appends to a name: `X_nchwc`, `X_token_3`, `X/MatMulAddFusion`."""


def profile(
    target: Target,
    function: KernelFunction,
    artifact: Artifact,
    run: RunContext,
    bind: Callable[[Kernel], BoundCall],
    runs: int,
) -> KernelProfile | Unsupported:
    """Run an artifact with ONNX Runtime's profiler on.

    The session is that of `load` but for the profiler and the names of nodes. Names say which events are of the main
    graph: a node with bodies has an event, and so has each node in them, in each iteration.

    Args:
        target: Target that determines whether threads may spin.
        function: What the artifact was lowered from.
        artifact: Artifact returned by `lower`.
        run: As for `load`.
        bind: Binds the kernel to buffers that hold its inputs.
        runs: Number of runs, besides the first, which does not count.

    Returns:
        The profile, with the median time of each node. Or why the session cannot be created.
    """
    with tempfile.TemporaryDirectory(dir=run.scratch) as name:
        folder = Path(name)
        (folder / MODEL).write_bytes(artifact.files[MODEL])
        optimised = DataflowGraph(onnx_ir.load(folder / MODEL))
        steps = _steps(optimised, DataflowGraph(function.model))
        kernel = open_session(target, artifact, run, model=_renamed(optimised), trace=folder / "trace")
        if isinstance(kernel, Unsupported):
            return kernel
        call = bind(kernel)
        for _ in range(runs + 1):
            call()
        events = json.loads(kernel.end_trace().read_text(encoding="utf-8"))
    return attributed(function, _timed(steps, events))


def _name(step: int) -> str:
    return f"step{step}"


def _renamed(optimised: DataflowGraph) -> bytes:
    """Serialize the model with names from which its events are known; the model must not be used afterwards."""
    main = optimised.model.graph
    for number, node in enumerate(main.all_nodes()):
        node.name = f"{'unread' if node.graph is main else _INNER}{number}"
    for step, node in enumerate(optimised.nodes):
        node.name = _name(step)
    return bytes(onnx_ir.to_proto(optimised.model).SerializeToString())


def _timed(steps: Mapping[str, LibraryStep], events: list[dict[str, Any]]) -> list[LibraryStep]:
    """Give each step the median of its times; add a step for what the session inserted into the main graph."""
    times: dict[str, list[float]] = defaultdict(list)
    operators: dict[str, str] = {}
    for event in events:
        found = _EVENT.fullmatch(event["name"]) if event.get("cat") == "Node" else None
        if found is not None and not found[1].startswith(_INNER):
            times[found[1]].append(float(event["dur"]))
            operators[found[1]] = event["args"]["op_name"]
    medians = {name: statistics.median(taken[1:] or taken) for name, taken in times.items()}
    known = [dataclasses.replace(step, time_us=medians.pop(name, 0.0)) for name, step in steps.items()]
    return known + [LibraryStep(name=operators[name], time_us=time_us) for name, time_us in medians.items()]


def _steps(optimised: DataflowGraph, original: DataflowGraph) -> dict[str, LibraryStep]:
    """Return the nodes of an optimised model, with what is known of the original nodes they compute.

    A fused node writes the value that the last of its nodes wrote. Layout transformations (NCHWc, moved transpositions)
    rename values, but name the node after the value, or leave it the name that `lower` gave it: its first output's.
    """
    producers = {
        str(value.name): (node, name)
        for node, name in zip(original.nodes, original.names, strict=True)
        for value in node.outputs
        if value.name
    }
    inserted = [_is_inserted(node, producers) for node in optimised.nodes]
    alias = _aliases(optimised, inserted, producers)
    steps = {}
    for place, node in enumerate(optimised.nodes):
        reads = tuple(iterate_bits(optimised.predecessors[place]))
        written = [alias.get(str(value.name)) for value in node.outputs if value.name]
        names = tuple(dict.fromkeys(producers[value][1] for value in written if value in producers))
        hint = None if names or inserted[place] else _named_in(node, producers)
        steps[_name(place)] = LibraryStep(
            name=f"{node.op_type} {node.name}",
            time_us=0.0,
            nodes=() if inserted[place] else names if hint is None else (producers[hint][1],),
            reads=reads,
            extends=hint is not None,
            converts=inserted[place],
        )
    return steps


_Producers = Mapping[str, tuple[onnx_ir.Node, str]]


def _is_inserted(node: onnx_ir.Node, producers: _Producers) -> bool:
    """Return whether a node only moves data, and no original node asked for that."""
    if node.op_type not in _MOVES:
        return False
    value = next((str(value.name) for value in node.outputs if value.name in producers), _named_in(node, producers))
    return value is None or producers[value][0].op_type not in _MOVES


def _aliases(graph: DataflowGraph, inserted: list[bool], producers: _Producers) -> dict[str, str]:
    """Return the original value of each value that has it, perhaps in another layout, shape or type."""
    alias = {value: value for value in producers}
    for node, is_inserted in reversed(list(zip(graph.nodes, inserted, strict=True))):
        written = alias.get(str(node.outputs[0].name))
        if is_inserted and written is not None and node.inputs and node.inputs[0] is not None:
            alias.setdefault(str(node.inputs[0].name), written)
    return alias


def _named_in(node: onnx_ir.Node, producers: _Producers) -> str | None:
    """Return the longest original value with which a node's name begins."""
    name = (node.name or "").removeprefix("fused ")
    ends = [end for end in range(len(name), 0, -1) if end == len(name) or name[end] in _DECORATION]
    return next((name[:end] for end in ends if name[:end] in producers), None)
