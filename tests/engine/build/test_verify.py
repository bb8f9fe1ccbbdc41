"""A saved plan that does not run is told in one line."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from collage.build.verifying.verify import largest_error, verify
from collage.errors import TooInexactError, VerificationError
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


@pytest.mark.parametrize(
    ("off", "correct", "kind"),
    [
        (0.5, False, TooInexactError),
        (0.5, True, VerificationError),
        (math.nan, False, VerificationError),
        (0.01, False, None),
    ],
)
def test_a_plan_of_lower_precision_that_is_too_far_off_says_by_how_much(
    off: float, correct: bool, kind: type[VerificationError] | None
) -> None:
    g = GraphBuilder("small")
    graph = DataflowGraph(g.model(g.op("Exp", g.input("x", 4))))
    right = np.ones(4, np.float32)
    made = right.copy()
    made[2] += off

    def judged() -> None:
        evaluation = Evaluation({"x": np.zeros(4, np.float32), "exp_0": right}, {})
        largest_error(graph, {"exp_0": made}, evaluation, correct=correct, tolerance=0.1)

    if kind is None:
        judged()
        return
    with pytest.raises(VerificationError) as caught:
        judged()
    assert type(caught.value) is kind
    if isinstance(caught.value, TooInexactError):
        assert caught.value.excess == pytest.approx(off / 0.1)
