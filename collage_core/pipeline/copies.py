"""What a search has to know of copies between devices: a graph's values, and how fast they are moved."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import onnx_ir

from collage_core.contract import INVALID, CopyFigures, Cost, Host, Unsupported, ValueKind
from collage_core.database import TuningStore
from collage_core.ir.content import constant_of
from collage_core.ir.dataflow import DataflowGraph
from collage_core.search import SharedValue

HOST = "cpu"

ASSUMED = CopyFigures(latency_us=10.0, bytes_per_us=12_000.0)
"""Of a device that nobody measured: about what sixteen lanes of PCI Express 3.0 leave of their 15.75 GB/s, and a call
that waits. It only decides which plans are tried: those are timed end to end, copies included."""


class CopyMeter(Protocol):
    """Measures copies. Asked once per machine, device and direction: what it answers is kept in the tuning database."""

    def figures(self, source: str, destination: str) -> CopyFigures | Unsupported:
        """How fast values go from one device to another, by buffers like those of a plan.

        Args:
            source: Name of a device, as in `Target.device`; one of both is `"cpu"`.
            destination: The other.

        Returns:
            Figures, or why nothing can be copied there; then no plan copies that way.
        """


class HostCopies:
    """Costs of copies by figures of each device: from one to another beside the CPU it goes through the host's memory.

    Args:
        figures: By source and destination, of which one is `"cpu"`; there is no way between others.
    """

    def __init__(self, figures: Mapping[tuple[str, str], CopyFigures]) -> None:
        self._figures = dict(figures)

    def copy_us(self, source: str, destination: str, size_bytes: int | None) -> Cost:
        """See `collage_core.search.CopyCosts`."""
        if size_bytes is None:  # devices hold values of static shape only
            return INVALID
        legs = [(source, destination)] if HOST in (source, destination) else [(source, HOST), (HOST, destination)]
        figures = [self._figures.get(leg) for leg in legs]
        return math.fsum(INVALID if each is None else each.copy_us(size_bytes) for each in figures)


def copy_costs(
    database: TuningStore, host: Host, devices: Iterable[str], meter: CopyMeter | None = None
) -> tuple[HostCopies | None, tuple[str, ...]]:
    """What copies cost between the host and some devices.

    Args:
        database: Knows what was measured, and keeps what is.
        host: This machine.
        devices: Those of the targets that take part.
        meter: Measures what is not known; without it figures are assumed, and not kept.

    Returns:
        Costs, and what a user should know of them; None and nothing if there is no device but the CPU.
    """
    others = sorted(set(devices) - {HOST})
    if not others:
        return None, ()
    figures: dict[tuple[str, str], CopyFigures] = {}
    said: list[str] = []
    for device in others:
        name = f"copies/{host.fingerprint_for(device)}"
        document = database.get_plan(name) or {}
        measured: dict[str, Any] = {}
        for key, pair in (("to", (HOST, device)), ("from", (device, HOST))):
            known = _read(document.get(key))
            if known is None and meter is not None:
                answer = meter.figures(*pair)
                if isinstance(answer, Unsupported):
                    said.append(f"nothing is copied from {pair[0]} to {pair[1]}: {answer.reason}")
                    continue
                known = answer
                measured[key] = [answer.latency_us, answer.bytes_per_us]
            figures[pair] = known or ASSUMED
        if measured:
            database.put_plan(name, {**document, **measured})
        elif meter is None and (_read(document.get("to")) is None or _read(document.get("from")) is None):
            said.append(
                f"copies to and from {device} are not measured: {ASSUMED.latency_us:g} us and "
                f"{ASSUMED.bytes_per_us / 1000:g} GB/s are assumed"
            )
    return HostCopies(figures), tuple(said)


def _read(document: object) -> CopyFigures | None:
    match document:
        case [int() | float() as latency_us, int() | float() as bytes_per_us]:
            try:
                return CopyFigures(latency_us=latency_us, bytes_per_us=bytes_per_us)
            except ValueError:
                return None
    return None


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
