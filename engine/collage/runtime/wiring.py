"""Determine which step of a run reads and writes which value, and which values share one place in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import onnx_ir as ir

from collage.runtime.views import View, view_of
from collage_core.contract import TensorSpec, Unsupported, ValueKind
from collage_core.errors import ModelError
from collage_core.ir.operators.value_bounds import spec_of
from collage_core.ir.values.symbolic_sizes import shape_at, size_symbols, typical_sizes
from collage_core.passes.call_sites import CallSite


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a run.

    Attributes:
        name: Call-site id of a kernel; name of a host node, which need not be unique.
        target: Name of the target that runs it; `"host"` for a view.
        nodes: Names of the nodes it computes.
        site: The call site; None for a view.
        view: The host node's operation; None for a kernel.
        reads: Values it reads, in the kernel's order.
        writes: Values it writes, in the kernel's order.
    """

    name: str
    target: str
    nodes: tuple[str, ...]
    site: CallSite | None = None
    view: View | None = None
    reads: tuple[ir.Value, ...]
    writes: tuple[ir.Value, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """A partitioned model in the runtime's representation.

    A planned value and the views of it share one place: that of their *root*, the value a kernel writes or
    the caller gives. Every other value is its own root.

    Attributes:
        inputs: Graph inputs that are not weights, in order.
        outputs: Graph outputs in order; the same value may occur twice.
        steps: Kernels, and views of values that are not planned, in execution order.
        specs: Specification of each value.
        roots: Root of each value.
    """

    inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]
    steps: tuple[Step, ...]
    specs: Mapping[ir.Value, TensorSpec]
    roots: Mapping[ir.Value, ir.Value]


def workspace_name(step: str) -> str:
    """Return the name of a step's scratch memory among the arena's blocks; no value's name has this prefix."""
    return f"\0workspace of {step}"


class Wirings:
    """A partitioned model at different sizes of its inputs; what does not follow from the sizes is read once.

    Args:
        model: The partitioned model.
        sites: Its call sites.

    Raises:
        ModelError: If a node is neither a call site nor a view, or reads what comes later.
    """

    def __init__(self, model: ir.Model, sites: Sequence[CallSite]) -> None:
        graph = model.graph
        by_node = {site.node: site for site in sites}
        self._inputs = tuple(value for value in graph.inputs if value.name not in graph.initializers)
        self._outputs = tuple(graph.outputs)
        self._given = (*self._inputs, *graph.initializers.values())
        self._steps: list[Step] = []
        self._specs = {value: spec_of(value) for value in (*self._inputs, *self._outputs)}
        written = set(self._given)
        for node in graph:
            site = by_node.get(node)
            step = _host_step(node) if site is None else _kernel_step(site)
            self._steps.append(step)
            for value in step.reads:
                if value not in written:
                    name = value.name
                    raise ModelError(f"node {step.name!r} reads {name!r} before it is written; sort the model first")
            written.update(step.writes)
            for value in (*step.reads, *step.writes):
                if value not in self._specs:
                    self._specs[value] = spec_of(value)
        for value in self._outputs:
            if value not in written:
                raise ModelError(f"nothing in the model writes its output {value.name!r}")
        self._varying: dict[tuple[object, ...], list[ir.Value]] = {}
        for value, spec in self._specs.items():
            if _may_vary(spec) and value.shape is not None:
                self._varying.setdefault(tuple(value.shape), []).append(value)

    def at(self, sizes: Mapping[str, int] = MappingProxyType({})) -> Wiring:
        """Return the wiring for given sizes.

        Args:
            sizes: Size of each symbol in the shapes of the model's inputs; values whose extents follow from these are
                planned.
        """
        specs = dict(self._specs)
        for value, shape in self._shapes_at(sizes):
            specs[value] = specs[value].as_planned(shape)
        return self._with(specs)

    def by_reference(self, typical: Mapping[str, int]) -> Wiring:
        """Return the wiring for any sizes: inputs, outputs, and what depends on the sizes, are passed by reference.

        Args:
            typical: Some size of each symbol.
        """
        specs = dict(self._specs)
        rim = [value for value in (*self._inputs, *self._outputs) if specs[value].kind is ValueKind.PLANNED]
        for value in (*rim, *(value for value, _ in self._shapes_at(typical))):
            specs[value] = specs[value].as_foreign()
        return self._with(specs)

    def _shapes_at(self, sizes: Mapping[str, int]) -> Iterator[tuple[ir.Value, tuple[int, ...]]]:
        """Yield the values whose extents follow from given sizes, with their shapes."""
        for values in self._varying.values() if sizes else ():
            if values[0].shape is not None and (shape := shape_at(values[0].shape, sizes)) is not None:
                for value in values:
                    yield value, shape

    def _with(self, specs: Mapping[ir.Value, TensorSpec]) -> Wiring:
        roots: dict[ir.Value, ir.Value] = {value: value for value in self._given}
        steps = []
        for step in self._steps:
            roots |= {value: value for value in step.writes}
            if step.view is not None and _is_planned(specs, (*step.reads, *step.writes)):
                roots[step.writes[0]] = roots[step.reads[0]]
            else:
                steps.append(step)
        return Wiring(inputs=self._inputs, outputs=self._outputs, steps=tuple(steps), specs=specs, roots=roots)


def typical_sizes_of(model: ir.Model) -> dict[str, int]:
    """Return the typical size of each symbol in the shapes of a model's inputs; none where all are static."""
    return typical_sizes(size_symbols(model.graph.inputs))


def _may_vary(spec: TensorSpec) -> bool:
    """Return whether a value is planned as soon as its shape is known."""
    return spec.kind is not ValueKind.PLANNED and spec.dtype not in (None, ir.DataType.STRING)


def _kernel_step(site: CallSite) -> Step:
    return Step(
        name=site.name,
        target=site.target,
        nodes=site.nodes,
        site=site,
        reads=tuple(value for value in site.data_inputs if value is not None),
        writes=tuple(site.outputs),
    )


def _host_step(node: ir.Node) -> Step:
    name = node.name or node.op_type
    view = view_of(node)
    if isinstance(view, Unsupported):
        raise ModelError(f"node {name!r} ({node.op_type}) has no kernel: {view.reason}. Partition the model again.")
    source = node.inputs[0]
    if source is None:
        raise ModelError(f"node {name!r} ({node.op_type}) has no input")
    return Step(name=name, target="host", nodes=(name,), view=view, reads=(source,), writes=(node.outputs[0],))


def _is_planned(specs: Mapping[ir.Value, TensorSpec], values: Sequence[ir.Value]) -> bool:
    return all(specs[value].kind is ValueKind.PLANNED for value in values)
