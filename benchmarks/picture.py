"""Draws what `collage optimize` printed for a package as an SVG, as wide as a terminal.

Usage:
    python -m benchmarks.picture PACKAGE.collage OUT.svg [--width 104]
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from collage.report.documents.codec import record_from_document
from collage.report.text.tables import optimize_summary
from collage.runtime.package import load_package


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw the summary of one package."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.picture", description=__doc__)
    parser.add_argument("package", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--width", type=int, default=104, metavar="COLUMNS")
    options = parser.parse_args(arguments)
    record = record_from_document(load_package(options.package).plan.record, str(options.package))
    console = Console(record=True, width=options.width, file=io.StringIO())
    console.print(optimize_summary(record))
    options.picture.parent.mkdir(parents=True, exist_ok=True)
    options.picture.write_text(console.export_svg(title=f"collage optimize {record.model.name}"), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
