"""A saved plan that does not run is told in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from collage.build.verify import verify
from collage.errors import VerificationError
from collage.measure.wire.blobs import BlobStore
from collage.reference import Evaluation
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing import GraphBuilder


@pytest.mark.guards("the saved winner does not run", "one line; the next best plan", area="toolchains")
def test_what_stops_a_package_is_one_line(tmp_path: Path) -> None:
    g = GraphBuilder("small")
    model = g.model(g.op("Relu", g.input("x", 4)))
    package = tmp_path / "damaged.collage"
    package.write_bytes(b"no package")

    with pytest.raises(VerificationError) as caught:
        verify(
            package,
            DataflowGraph(model),
            {"x": np.zeros(4, np.float32)},
            store=BlobStore(tmp_path / "blobs"),
            folder=tmp_path,
            threads=1,
            correct=True,
            tolerance=1e-3,
            evaluation=Evaluation({}, {}),
            site_errors={},
        )

    assert str(caught.value).startswith("the saved plan does not run: NotAPackageError: ")
    assert "damaged.collage" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
