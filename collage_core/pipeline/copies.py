"""What a search has to know of copies between devices: a graph's values, and what moving them costs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import onnx_ir

from collage_core.contract import INVALID, CopyFigures, Cost, ValueKind
from collage_core.ir.content import constant_of
from collage_core.ir.dataflow import DataflowGraph
from collage_core.pipeline.device_figures import HOST, DeviceFigures
from collage_core.search import SharedValue


class HostCopies:
    """Costs of copies by figures of each device: from one to another beside the CPU it goes through the host's memory.

    Args:
        figures: By source and destination, of which one is `"cpu"`; there is no way between others.
        starts_us: What starting a stretch of kernels takes, by device; nothing on those not named.
    """

    def __init__(
        self, figures: Mapping[tuple[str, str], CopyFigures], starts_us: Mapping[str, float] | None = None
    ) -> None:
        self._figures = dict(figures)
        self._starts_us = dict(starts_us or {})

    @classmethod
    def of(cls, figures: Iterable[DeviceFigures], eager: Iterable[str] = ()) -> HostCopies:
        """Costs by what devices take. The host waits for what it is brought, so a copy to it costs the wait as well.

        Args:
            figures: Of each device beside the CPU.
            eager: Devices all of whose targets launch kernels one by one: no graph starts there.
        """
        known = {each.device: each for each in figures}
        pairs: dict[tuple[str, str], CopyFigures] = {}
        for name, each in known.items():
            pairs[HOST, name] = each.to_device
            back = each.from_device
            pairs[name, HOST] = CopyFigures(latency_us=back.latency_us + each.wait_us, bytes_per_us=back.bytes_per_us)
        return cls(pairs, {name: known[name].start_us for name in known.keys() - set(eager)})

    def copy_us(self, source: str, destination: str, size_bytes: int | None) -> Cost:
        """See `collage_core.search.CopyCosts`."""
        if size_bytes is None:  # devices hold values of static shape only
            return INVALID
        legs = [(source, destination)] if HOST in (source, destination) else [(source, HOST), (HOST, destination)]
        figures = [self._figures.get(leg) for leg in legs]
        return math.fsum(INVALID if each is None else each.copy_us(size_bytes) for each in figures)

    def start_us(self, device: str) -> float:
        """See `collage_core.search.CopyCosts`."""
        return self._starts_us.get(device, 0.0)


def shared_values(graph: DataflowGraph) -> tuple[tuple[onnx_ir.Value, SharedValue], ...]:
    """Every value of a graph that has a place in memory on some device: what is given, and what kernels write.

    A view has its source's place. Constants are put where they are read when a plan is loaded.
    """
    roots: dict[onnx_ir.Value, onnx_ir.Value] = {}
    readers: dict[onnx_ir.Value, int] = {}
    found: list[tuple[onnx_ir.Value, int | None]] = [
        (value, None) for value in graph.model.graph.inputs if value.name not in graph.model.graph.initializers
    ]
    for index, node in enumerate(graph.nodes):
        for operand in graph.operands[index]:
            if operand is not None and constant_of(operand) is None:
                root = roots.get(operand, operand)
                readers[root] = readers.get(root, 0) | 1 << index
        if graph.is_host(index):
            source = node.inputs[0]
            assert source is not None  # or it were no view
            roots[node.outputs[0]] = roots.get(source, source)
        else:
            found += [(value, index) for value in node.outputs if value.name]
    wanted = {roots.get(value, value) for value in graph.model.graph.outputs}
    return tuple(
        (
            value,
            SharedValue(
                producer=producer,
                readers=readers.get(value, 0),
                size_bytes=_size(graph, value),
                starts_on=HOST if producer is None else "",
                ends_on=HOST if value in wanted else "",
            ),
        )
        for value, producer in found
    )


def _size(graph: DataflowGraph, value: onnx_ir.Value) -> int | None:
    spec = graph.spec(value)
    return spec.nbytes if spec.kind is ValueKind.PLANNED else None
