"""What plans of real libraries make of NaN is looked at when they are verified, and reported."""

from __future__ import annotations

import json

import pytest

from collage.commands.optimize import optimize
from collage.options import OptimizeOptions
from collage.report.documents.outputs import plans_json
from collage.report.text.explanation import explain
from collage_testing.graphs import GraphBuilder
from tests.integration.commands.conftest import TINY

pytestmark = pytest.mark.plugins


@pytest.mark.guards(
    "OpenVINO's fused Conv and Relu turn NaN into zero", "the report says in which outputs", area="toolchains"
)
def test_a_report_says_whether_nan_reaches_the_outputs() -> None:
    g = GraphBuilder("net")
    y = g.op("Relu", g.op("Conv", g.input("x", 1, 3, 8, 8), g.weight("w", 4, 3, 3, 3)))

    record = optimize(g.model(y), OptimizeOptions(toolchains="openvino", tuning_db="memory:", **TINY)).record

    assert record.nan == f"with a NaN in each input, 0 elements of output {str(y.name)!r} are NaN instead of 12"
    assert f"{record.nan[1:]}." in " ".join(explain(record).split())
    assert json.loads(plans_json([record]))["nan"] == record.nan
