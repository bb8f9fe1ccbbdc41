"""Run a saved plan in a contender's process for the values between its kernels, or some of its kernels apart."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import onnx_ir

from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.value_files import read_values, write_values
from collage.runtime.package import load_package
from collage.runtime.packaged_kernels import executable_of
from collage.runtime.shapes.opening import session_over
from collage_core.passes.call_sites import call_sites

PARTS_CALL = f"{__name__}:parts_call"
"""Name of `parts_call`, as passed to a contender process."""


def parts_call(
    package: str, inputs: str, outputs: str, blobs: str, threads: int, before: str, only: list[str]
) -> Callable[[], None]:
    """Create a call that runs parts of a package that the driver has just written, and writes what they give.

    Args:
        package: Path of the package.
        inputs: Path of a document of `write_values` with the values that the parts are given, and maybe others.
        outputs: Path of the document to write.
        blobs: Directory for the bytes of the outputs.
        threads: CPU threads of each kernel.
        before: See `with_values_between`.
        only: Call sites to run apart; none to run the plan as it is.
    """

    def call() -> None:
        opened = load_package(package).plan
        model = apart(opened.model, only) if only else with_values_between(opened.model, before)
        session = session_over(executable_of(opened, model, threads=threads, trusted=True))
        values = read_values(Path(inputs))
        names = [output.name for output in session.get_outputs()]
        made: list[Any] = session.run(None, {each.name: values[each.name] for each in session.get_inputs()})
        write_values(Path(outputs), dict(zip(names, made, strict=True)), BlobStore(Path(blobs)))

    return call


def with_values_between(model: onnx_ir.Model, before: str = "") -> onnx_ir.Model:
    """Return a partitioned model that gives out every value which a call site reads or writes.

    Args:
        model: The partitioned model.
        before: Call site at which to stop, whose inputs are given out still; all are run if empty.
    """
    copy = model.clone()
    graph = copy.graph
    sites = {site.node: site for site in call_sites(copy)}
    wanted: dict[onnx_ir.Value, None] = {}
    kept = 0
    for node in graph:
        site = sites.get(node)
        if site is not None:
            wanted.update(dict.fromkeys(value for value in site.data_inputs if value is not None and value.producer()))
            if site.name == before:
                break
            wanted.update(dict.fromkeys(site.outputs))
        kept += 1
    if not before:
        wanted = dict.fromkeys(graph.outputs) | wanted
    graph.outputs.clear()
    graph.remove(list(graph)[kept:], safe=True)
    graph.outputs.extend(wanted)
    return copy


def apart(model: onnx_ir.Model, only: Collection[str]) -> onnx_ir.Model:
    """Return a partitioned model of some call sites, in their order, each of which is given what it reads.

    Args:
        model: The partitioned model.
        only: Names of the call sites. The name of what one writes is that of `made_by`.
    """
    copy = model.clone()
    graph = copy.graph
    sites = [site for site in call_sites(copy) if site.name in only]
    given: dict[onnx_ir.Value, onnx_ir.Value] = {}
    for site in sites:
        for place, value in enumerate(site.node.inputs):
            if value is not None and value in site.data_inputs:
                site.node.replace_input_with(place, given.setdefault(value, _like(value)))
    kept = {site.node for site in sites}
    graph.outputs.clear()
    graph.remove([node for node in graph if node not in kept], safe=True)
    graph.inputs.clear()
    graph.inputs.extend(given.values())
    for site in sites:
        for value in site.outputs:
            value.name = made_by(site.name, str(value.name))
    graph.outputs.extend(value for site in sites for value in site.outputs)
    return copy


def made_by(site: str, name: str) -> str:
    """Return the name in `apart` of a value that a call site writes; under its own name it is given."""
    return f"{name} made by {site}"


def _like(value: onnx_ir.Value) -> onnx_ir.Value:
    """Return a value of the same name, type and bounds that nothing computes."""
    shape = value.shape.copy() if value.shape is not None else None
    return onnx_ir.Value(name=value.name, type=value.type, shape=shape, metadata_props=dict(value.metadata_props))
