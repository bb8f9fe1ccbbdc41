"""The second level finds the plan whose whole is the fastest, where the costs of its kernels do not add."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from collage.commands.optimize import optimize
from collage.options import OptimizeOptions
from collage_core.hookspecs import ENTRY_POINT_GROUP
from collage_core.ir.io.model_io import save_model
from collage_testing import chain
from tests.from_source import ROOT, metadata
from tests.integration.two_level import jealous_toolchains
from tests.integration.two_level.jealous_toolchains import OPERATORS, SECONDS, latency_s

BEST = ("left",) * 3 + ("right",) * 3


def test_the_best_plan_is_not_the_one_whose_kernels_are_cheapest() -> None:
    plans = list(itertools.product(SECONDS, repeat=len(OPERATORS)))
    additive = tuple(min(SECONDS, key=lambda name: SECONDS[name][operator]) for operator in OPERATORS)

    assert min(plans, key=latency_s) == BEST
    assert latency_s(additive) > 1.9 * latency_s(BEST)
    assert min(latency_s((name,) * len(OPERATORS)) for name in SECONDS) > 1.3 * latency_s(BEST)


@pytest.mark.slow  # latencies that can be told apart
def test_it_is_found_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, site, path = jealous_toolchains.__name__, tmp_path / "site", tmp_path / "chain.onnx"
    metadata(site, "jealous", "1.0", {ENTRY_POINT_GROUP: {name: f"{module}:{name}" for name in SECONDS}})
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), str(ROOT), os.environ.get("PYTHONPATH", "")]))
    for place in (site, ROOT):
        monkeypatch.syspath_prepend(str(place))
    save_model(chain(*OPERATORS), path)

    found = optimize(
        path,
        OptimizeOptions(
            toolchains="left,right",
            tuning_db="memory:",
            search="two-level",
            preset="quick",
            threads=1,
            warmup=0,
            iterations=3,
            duration_s=0.001,
        ),
    )

    placed = {node: region.target for region in found.record.regions for node in region.nodes}
    assert tuple(placed[f"{operator.lower()}_0"] for operator in OPERATORS) == BEST
    assert len(found.record.regions) == 2
    assert found.trace is not None
    moves = {each["move"] for each in found.trace["evaluations"]}
    assert "split" in moves
    [note] = [each for each in found.record.notes if each.startswith("two-level")]
    assert "of its start's time" in note
