"""Plot latency against error, by matplotlib."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final

from collage.report.facts.frontier_facts import FrontierReport
from collage_core.errors import UsageError
from collage_core.ir.io.replacement import Replacement

PICTURES: Final = (".png", ".svg")
"""File suffixes of the plot."""
_LEAST: Final = 1e-7
"""Error at which a plan without any is drawn: the axis is logarithmic."""
_INCHES: Final = (7.0, 4.5)
_BEST, _OTHER = "#0072b2", "#999999"
"""Colours that colour-blind readers can distinguish: M. Okabe and K. Ito, "Color Universal Design" (2008)."""


def check_plotting() -> None:
    """Check that matplotlib is installed.

    Raises:
        UsageError: If it is not.
    """
    if importlib.util.find_spec("matplotlib") is None:
        install = "pip install 'collage-engine[plot]'"
        raise UsageError(f"a picture needs matplotlib, which is not installed: {install}, or leave it with --no-plot")


def write_frontier(folder: Path, report: FrontierReport) -> list[Path]:
    """Write the plot in each of `PICTURES`, and return the files.

    Args:
        folder: Where to.
        report: The points.

    Raises:
        OSError: If a file cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=_INCHES, layout="constrained")
    axes = figure.subplots()
    ran = [(max(point.error, _LEAST), point.latency_ms, point) for point in report.points if point.latency_ms]
    best = sorted((error, latency.p50) for error, latency, point in ran if point.is_best)
    axes.step([error for error, _ in best], [p50 for _, p50 in best], where="post", color=_BEST, linewidth=1)
    for error, latency, point in ran:
        low, high = latency.p50 - latency.ci95[0], latency.ci95[1] - latency.p50
        colour = _BEST if point.is_best else _OTHER
        axes.errorbar(error, latency.p50, yerr=[[low], [high]], fmt="o", color=colour, capsize=3)
        label = "own types" if point.max_error is None else f"≤ {point.max_error:g}"
        axes.annotate(label, (error, latency.p50), textcoords="offset points", xytext=(6, 6), color=colour)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("largest error of an output, relative to its scale, on inputs that the search did not see")
    axes.set_ylabel("latency in ms, median with 95 % interval")
    axes.set_title(f"{report.model.name} on {report.host.cpu}, {report.threads} threads")
    files = [folder / f"frontier{suffix}" for suffix in PICTURES]
    for path in files:
        undated = {"Date": None} if path.suffix == ".svg" else {}
        with Replacement(path) as file:
            figure.savefig(file.stream, format=path.suffix[1:], metadata=undated)
    return files
