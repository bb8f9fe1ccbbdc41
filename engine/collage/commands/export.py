"""`export`: write the plan of a package as an ONNX model that people can read."""

from __future__ import annotations

import os
from collections.abc import Mapping

import onnx_ir

from collage.errors import RecordError
from collage.report import figures
from collage.report.documents.codec import record_from_document
from collage.report.facts.record import Record, RegionFacts
from collage.report.picture.titles import place, region_titles
from collage.runtime.package import load_package
from collage_core.ir.io.model_io import save_model
from collage_core.ir.values.size_range import Shape
from collage_core.passes.call_sites import call_sites

_PREFIX = "collage."


def export(
    package: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    input_shapes: Mapping[str, Shape] | None = None,
) -> int:
    """Write the plan of a package as standard ONNX: each kernel is the call of a function.

    Functions are named by toolchain and by what they do, calls by what they hold. Metadata of a call has its target,
    times, error and the other targets; metadata of the model has the decision. Viewers show all of it, and any ONNX
    runtime runs the model: it inlines the functions.

    Args:
        package: The package.
        path: The file to write. Weights beyond protobuf's limit go to a file beside it.
        input_shapes: Which plan of a package that has several.

    Returns:
        Number of kernels.

    Raises:
        PackageError: If the package cannot be opened or is damaged.
        RecordError: If another version of Collage wrote its record, or it does not fit the model.
        ModelFileError: If the file cannot be written.
        UsageError: If the package has several plans and not exactly one is for the shapes.
    """
    plan = load_package(package).plan_for(input_shapes or {})
    record = record_from_document(plan.record, os.fspath(package))
    model = plan.model  # of the package opened above, which nobody else has
    _describe(model, record, os.fspath(package))
    save_model(model, path)
    return len(record.regions)


def _describe(model: onnx_ir.Model, record: Record, source: str) -> None:
    """Name functions and calls, and write what is known of them into metadata.

    Raises:
        RecordError: If the record lacks a kernel.
    """
    regions = {region.id: region for region in record.regions}
    sites = call_sites(model)
    for site in sites:
        if site.name not in regions:
            raise RecordError(source, f"it does not say what call site {site.name!r} is")
    titles = region_titles(record.regions, {site.name: site.function.name for site in sites})
    whole_us = sum(region.time_us for region in record.regions)
    renamed = {}
    for site in sites:
        region = regions[site.name]
        renamed[site.function.identifier()] = site.function
        site.function.name = site.node.op_type = titles[region.id]
        site.node.name = f"{region.id} {place(region.nodes)}" if region.nodes else region.id
        site.node.metadata_props.update(_facts(region, whole_us))
    for identifier, function in renamed.items():
        del model.functions[identifier]
        model.functions[function.identifier()] = function
    model.metadata_props.update(
        {
            f"{_PREFIX}decision": record.decision,
            f"{_PREFIX}predicted": f"{figures.milliseconds(record.predicted_ms)} ms",
            f"{_PREFIX}error": figures.error(record.max_error),
            f"{_PREFIX}machine": f"{record.host.cpu}, {figures.counted(record.threads, 'thread')}",
            f"{_PREFIX}created": record.created,
        }
    )
    if record.measured_ms is not None:
        model.metadata_props[f"{_PREFIX}measured"] = f"{figures.milliseconds(record.measured_ms)} ms"


def _facts(region: RegionFacts, whole_us: float) -> dict[str, str]:
    facts = {
        "target": region.target,
        "predicted": f"{figures.microseconds(region.cost_us)} us",
        "share": figures.percent(region.time_us, whole_us),
        "error": figures.error(region.error),
    }
    if region.measured_us:
        facts["measured"] = f"{figures.microseconds(region.measured_us)} us"
    for other in region.alternatives:
        cost = "" if other.cost_us is None else f"{figures.microseconds(other.cost_us)} us"
        facts[f"instead.{other.target}"] = "; ".join(filter(None, (cost, other.reason))) or "not measured"
    return {f"{_PREFIX}{name}": text for name, text in facts.items()}
