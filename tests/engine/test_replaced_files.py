"""Packages, reports and arrays are written in place of others as models are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from collage.cli.arrays import write_values
from collage.report.files import write_text
from collage.runtime.package.archive import ArchiveWriter
from tests.replacing import ReplacedFiles, Write


def write_archive(path: Path) -> None:
    with ArchiveWriter(path) as archive:
        archive.add("x", b"y")


class TestFilesOfTheEngine(ReplacedFiles):
    @pytest.fixture(
        params=[
            write_archive,
            lambda path: write_text(path, "text"),
            lambda path: write_values(path, {"y": np.zeros(2)}),
        ],
        ids=["package", "text", "arrays"],
    )
    def write(self, request: pytest.FixtureRequest) -> Write:
        write: Write = request.param
        return write
