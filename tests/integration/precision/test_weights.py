"""Weights alone in 8-bit integers, found under a bound with real toolchains."""

from __future__ import annotations

import functools

import numpy as np
import onnx_ir
import pytest

from collage.build.plan_builder import PlanBuilder
from collage.options import OptimizeOptions
from collage.precision.plans.bound import MARGIN, Bound
from collage.precision.plans.plan_runs import PlanRuns
from collage.precision.within_bound import WithinBound, within_bound
from collage.report.progress import SilentProgress
from collage.setup.environment import Environment
from collage.setup.settings import SetupChoices
from collage.setup.workload import Workload
from collage_core.contract import Cost, Unmeasured
from collage_core.fusion import CandidateKernel, FusionSpec, SubGraph, UnionRule
from collage_testing import GraphBuilder

pytestmark = pytest.mark.plugins("openvino")

BOUND = 0.05
WIDTH = 512
"""With it a weight is just large enough."""


def layers(rows: int) -> onnx_ir.Model:
    """Two products by square weights."""
    g = GraphBuilder("layers")
    value = g.input("x", rows, WIDTH)
    for number in range(2):
        weight = np.random.default_rng(number).normal(size=(WIDTH, WIDTH)).astype(np.float32) / 20
        value = g.op("Tanh", g.op("MatMul", value, g.constant(f"w{number}", weight)))
    return g.model(value)


def searched(monkeypatch: pytest.MonkeyPatch, rows: int) -> WithinBound:
    """Search with a cost by which lower precision pays: how fast kernels are here decides nothing in these tests."""
    options = OptimizeOptions(
        max_error=BOUND,
        tuning_db="memory:",
        preset="quick",
        toolchains="openvino(precision=fp32),openvino(precision=int8-weights)",
    )
    with Environment.open(functools.partial(Workload, layers(rows)), SetupChoices.of(options)) as opened:
        source, pool = opened.source, opened.pool
        exact = next(target for target in opened.toolchains.targets() if target.exact)
        spec = FusionSpec(name=exact.name, rule=UnionRule(()), targets=(exact,))
        plain = CandidateKernel(SubGraph(opened.graph, pool.whole), spec, exact)
        source.measure([plain])
        pool = pool.with_candidates([plain])
        pool = pool.with_costs(pool.costs.reaching([pool.cache_key(plain)]))
        cost = source.cost

        def cheap(candidate: CandidateKernel, *, confirmed: bool = True) -> Cost | Unmeasured:
            known = cost(candidate, confirmed=confirmed)
            return known if isinstance(known, Unmeasured) or candidate.target.exact else known / 1000

        monkeypatch.setattr(source, "cost", cheap)
        runs = PlanRuns(opened, PlanBuilder(opened, SilentProgress()))
        return within_bound(opened, runs, pool, Bound(BOUND), "minmax", SilentProgress())


def test_weights_alone_are_quantised_where_rows_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    found = searched(monkeypatch, rows=1)

    [kernel] = [each for each in found.pool if each.target.quantises_only_weights]
    assert [product.span for product in kernel.sub_graph.int8] == [None, None]
    assert [0 < error <= MARGIN * BOUND for error in found.errors.values()] == [True]
    assert not found.notes, "no range is a guess, since there is none"


def test_a_model_of_many_rows_is_not_looked_at_in_8_bit_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    found = searched(monkeypatch, rows=64)

    assert all(each.target.exact for each in found.pool)
    assert not found.errors, "no plan was run"
