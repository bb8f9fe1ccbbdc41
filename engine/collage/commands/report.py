"""`report`: write what is known of a plan as one HTML page."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

from collage.errors import NotAPackageError
from collage.report.documents.codec import record_from_document
from collage.report.documents.outputs import records_of
from collage.report.files import write_text
from collage.report.page.page import ReportedPlan, report_page
from collage.report.picture.drawing import drawn
from collage.report.picture.outline import outlined
from collage.report.picture.titles import region_titles
from collage.runtime.package import Package, PackagedPlan, load_package
from collage_core.errors import UsageError
from collage_core.passes.call_sites import call_sites

_FOR_A_PAGE = ("jinja2",)
_FOR_ITS_PICTURE = ("pygraphviz",)


def check_report() -> None:
    """Check that reports can be written here.

    Raises:
        UsageError: If what they need is not installed.
    """
    _check_installed(*_FOR_A_PAGE, *_FOR_ITS_PICTURE)


def report(source: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Write the report of a package, or of a record, as one HTML file that needs no network.

    Args:
        source: A package, whose graph is drawn, too; or what `--json` of `optimize` or `explain` wrote.
        path: The file to write, whole or not at all.

    Raises:
        CollageError: If the source is neither a package nor a record, or what draws the graph is not installed.
        OSError: If the file cannot be written.
    """
    _check_installed(*_FOR_A_PAGE)
    source = Path(source)
    try:
        package = load_package(source)
    except NotAPackageError as error:
        plans = _of_records(source, error)
    else:
        _check_installed(*_FOR_ITS_PICTURE)
        plans = _of_package(package)
    write_text(path, report_page(plans, source.name))


def _of_package(package: Package) -> list[ReportedPlan]:
    return [_of_plan(plan) for plan in package.plans]


def _of_plan(plan: PackagedPlan) -> ReportedPlan:
    record = record_from_document(plan.record, plan.path)
    functions = {site.name: site.function.name for site in call_sites(plan.model)}
    return ReportedPlan(
        record=record,
        pictures=[drawn(level) for level in outlined(plan.model, record)],
        titles=region_titles(record.regions, functions),
    )


def _of_records(source: Path, not_a_package: NotAPackageError) -> list[ReportedPlan]:
    """Read the file as what `--json` writes of plans."""
    try:
        document: Any = json.loads(source.read_bytes())
    except (ValueError, RecursionError):
        raise not_a_package from None
    return [ReportedPlan.of_record(record) for record in records_of(document, str(source))]


def _check_installed(*modules: str) -> None:
    for name in modules:
        if importlib.util.find_spec(name) is None:
            raise UsageError(f"a report needs {name}, which is not installed: pip install 'collage-engine[report]'")
