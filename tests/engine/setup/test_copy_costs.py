"""Device copies: which values of a graph they concern, what they are said to cost, and what plans make of them."""

from __future__ import annotations

import dataclasses
import zlib
from pathlib import Path

import onnx
import onnx_ir
import pytest

from collage.decide.recording import device_copies
from collage.decide.shortlist import mixes, singles
from collage.prepare.steps import prepare
from collage.report.facts.record import CopyFacts
from collage.setup.copy_costs import HostCopies
from collage.setup.device_figures import DeviceFigures
from collage_core.candidates.chosen_plan import as_plan
from collage_core.candidates.costs import Costs
from collage_core.candidates.plan import PlannedCopy
from collage_core.candidates.pool import CandidatePool, PoolCosts
from collage_core.candidates.proposals import propose, target_rule
from collage_core.candidates.shared_values import shared_values
from collage_core.contract import INVALID, CopyFigures, Joins, Target
from collage_core.fusion import CandidateBounds, CandidateKernel, SubGraph
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.work import estimated_work_us
from collage_core.ir.io.model_io import model_from_bytes
from collage_core.registry import Toolchain
from collage_core.search import SharedValue, solve
from collage_testing import MockToolchain, chain
from collage_testing.graphs import GraphBuilder
from tests.engine.exploring import FakeSource, Truth, a_target, by_operator, kernel

CPU = a_target("c")
GPU = a_target("g", device="cuda:0")
BOTH = (("cpu", "cuda:0"), ("cuda:0", "cpu"))
FLAT = HostCopies({pair: CopyFigures(latency_us=3.0, bytes_per_us=1e9) for pair in BOTH})
LIGHT = Path(onnx.__file__).resolve().parent / "backend" / "test" / "data" / "light"


def pool_over(graph: DataflowGraph, truth: Truth, *candidates: CandidateKernel) -> CandidatePool:
    source = FakeSource(truth)
    pool = CandidatePool(graph, Costs(source), 0.0, FLAT).with_candidates(candidates)
    source.measure(candidates)
    return pool


def test_values_are_what_is_given_and_what_kernels_write_with_everybody_who_reads_them_through_views() -> None:
    g = GraphBuilder()
    x = g.input("x", 2, 6)
    flat = g.op("Reshape", x, g.ints(3, 4))
    a = g.op("Relu", flat)
    b = g.op("Exp", g.op("Reshape", a, g.ints(12)))
    c = g.op("MatMul", a, g.weight("w", 4, 2))
    graph = DataflowGraph(g.model(b, c, g.op("Identity", c)))

    def nodes(*names: str) -> int:
        return sum(1 << graph.index_of(name) for name in names)

    def made(name: str, size: int, *readers: str, ends: str = "") -> SharedValue:
        return SharedValue(producer=graph.index_of(name), readers=nodes(*readers), size_bytes=size, ends_on=ends)

    found = {str(value.name): shared for value, shared in shared_values(graph)}

    assert found == {
        "x": SharedValue(producer=None, readers=nodes("reshape_0", "relu_0"), size_bytes=48, starts_on="cpu"),
        str(a.name): made("relu_0", 48, "reshape_1", "exp_0", "matmul_0"),
        str(b.name): made("exp_0", 48, ends="cpu"),
        str(c.name): made("matmul_0", 24, "identity_0", ends="cpu"),
    }


def test_what_has_no_static_shape_is_of_no_known_size_and_cannot_be_copied() -> None:
    g = GraphBuilder()
    graph = DataflowGraph(g.model(g.op("NonZero", g.input("x", 4))))

    sizes = [shared.size_bytes for _, shared in shared_values(graph)]

    assert sizes == [16, None]
    assert FLAT.copy_us("cuda:0", "cpu", None) == INVALID


def test_a_copy_takes_its_latency_and_its_bytes_and_goes_through_the_host() -> None:
    slow = CopyFigures(latency_us=5.0, bytes_per_us=100.0)
    copies = HostCopies(dict.fromkeys((*BOTH, ("cpu", "cuda:1")), slow))

    assert copies.copy_us("cpu", "cuda:0", 1000) == 15.0
    assert copies.copy_us("cuda:0", "cuda:1", 1000) == 30.0
    assert copies.copy_us("cuda:1", "cuda:0", 1000) == INVALID  # nothing comes back from there


def test_what_the_host_is_brought_it_waits_for_and_what_a_device_is_brought_starts_its_kernels() -> None:
    figures = DeviceFigures(
        device="cuda:0",
        to_device=CopyFigures(latency_us=2.0, bytes_per_us=1000.0),
        from_device=CopyFigures(latency_us=3.0, bytes_per_us=500.0),
        within=CopyFigures(latency_us=1.0, bytes_per_us=1e6),
        wait_us=4.0,
        start_us=6.0,
        cache_bytes=0,
    )

    graphs, eager = HostCopies.of([figures]), HostCopies.of([figures], eager=["cuda:0"])

    assert graphs.copy_us("cpu", "cuda:0", 1000) == 3.0
    assert graphs.copy_us("cuda:0", "cpu", 1000) == 3.0 + 4.0 + 2.0
    assert [graphs.start_us("cuda:0"), graphs.start_us("cpu"), eager.start_us("cuda:0")] == [6.0, 0.0, 0.0]


GRAPH = DataflowGraph(chain("Relu", "Exp", "Neg"))
COSTS = by_operator({"c": {"Relu": 9.0, "Exp": 9.0, "Neg": 2.0}, GPU.name: {"Relu": 2.0, "Exp": 2.0, "Neg": 9.0}})
EACH = [kernel(GRAPH, target, name) for target in (CPU, GPU) for name in ("relu_0", "exp_0", "neg_0")]


def test_a_plan_says_what_it_copies_and_its_prediction_counts_it() -> None:
    pool = pool_over(GRAPH, COSTS, *EACH)

    [plan] = mixes(pool, 1)

    assert [(k.target.name, k.sub_graph.names) for k in plan.kernels] == [
        ("g@cuda:0", ("relu_0",)),
        ("g@cuda:0", ("exp_0",)),
        ("c", ("neg_0",)),
    ]
    names = [str(value.name) for value, _ in shared_values(GRAPH)]
    assert [(c.value, c.source, c.destination) for c in plan.copies] == [
        (names[0], "cpu", "cuda:0"),
        (names[2], "cuda:0", "cpu"),
    ]
    assert plan.copies_us == pytest.approx(6.0, abs=1e-3)
    assert plan.predicted_us == pytest.approx(3 * 1.0 + 2 + 2 + 2 + 6, abs=1e-3)
    assert plan.predicted_us == pytest.approx(pool.engine().run().total_us)


def test_a_single_plan_of_a_device_pays_for_its_inputs_and_outputs() -> None:
    whole = kernel(GRAPH, GPU)
    pool = pool_over(GRAPH, COSTS, *EACH, whole)

    [alone] = singles(pool, [GPU])

    assert len(alone.kernels) == 1
    assert [(c.source, c.destination) for c in alone.copies] == list(BOTH)
    assert pool.alone_us(whole) == pytest.approx(alone.predicted_us)


def test_starting_kernels_on_a_device_is_paid_once_for_a_stretch_and_not_for_each_kernel() -> None:
    start_us = 40.0

    def predicted_us(starts: dict[str, float], dispatch_us: float) -> float:
        source = FakeSource(COSTS)
        copies = HostCopies(dict.fromkeys(BOTH, CopyFigures(latency_us=3.0, bytes_per_us=1e9)), starts)
        on_device = [each for each in EACH if each.target == GPU]
        pool = CandidatePool(GRAPH, Costs(source), dispatch_us, copies).with_candidates(on_device)
        source.measure(on_device)
        [plan] = singles(pool, [GPU])
        assert plan.predicted_us == pytest.approx(pool.engine().run().total_us)
        return plan.predicted_us

    # three kernels of one graph: one start; and the loop calls the graph, not them
    assert predicted_us({GPU.device: start_us}, 0.5) == pytest.approx(predicted_us({}, 0.0) + start_us)


def test_on_one_device_there_is_nothing_to_copy() -> None:
    pool = pool_over(GRAPH, COSTS, *(each for each in EACH if each.target == CPU))

    assert pool.problem().copies is None
    assert pool.copies(each for each in EACH if each.target == CPU) == ()


def test_the_record_lists_the_copies_of_a_plan() -> None:
    pool = pool_over(GRAPH, COSTS, *EACH)
    plan = as_plan(pool, "mixed", pool.engine().run(), single=False)
    copy = PlannedCopy(value="v", source="cpu", destination="cuda:0", size_bytes=24, cost_us=3.0)

    facts = device_copies(dataclasses.replace(plan, copies=(copy,)))

    assert facts == (CopyFacts(value="v", source="cpu", destination="cuda:0", size_bytes=24, cost_us=3.0),)


class Mixed:
    """Costs under which every other operator is better off on the device."""

    def __init__(self, graph: DataflowGraph) -> None:
        self._graph, self._work = graph, estimated_work_us(graph)

    def key(self, sub_graph: SubGraph) -> str:
        return hex(sub_graph.nodes)

    def cost(self, candidate: CandidateKernel, *, confirmed: bool = True) -> float:
        total = 3.0
        for name in candidate.sub_graph.names:
            index = self._graph.index_of(name)
            luck = zlib.crc32(f"{candidate.target.name} {self._graph.nodes[index].op_type} {index // 6}".encode()) % 7
            total += round(self._work[index]) % 500 * (0.5 + luck / 6)
        return total

    def rejection(self, candidate: CandidateKernel) -> None:
        return None


@pytest.mark.parametrize(("latency_us", "mixes_devices"), [(20.0, True), (1e6, False)])
def test_on_a_real_graph_the_exact_search_and_the_integer_program_agree(latency_us: float, mixes_devices: bool) -> None:
    model: onnx_ir.Model = model_from_bytes((LIGHT / "light_squeezenet.onnx").read_bytes())
    graph = DataflowGraph(prepare(model))
    figures = CopyFigures(latency_us=latency_us, bytes_per_us=12_000.0)
    pool = CandidatePool(graph, Costs(Mixed(graph)), 0.5, HostCopies(dict.fromkeys(BOTH, figures)))
    for device in ("cpu", "cuda:0"):
        target = Target(toolchain="a", device=device, fingerprint="1", joins=Joins.ANY)
        mock = MockToolchain("a", costs_us={}, operators=["*"], targets=[target])
        rule = target_rule(Toolchain("a", mock), target, {})
        bounds = CandidateBounds(max_depth=4, max_candidates=400)
        pool = pool.with_candidates(propose(rule, graph, bounds, cuts=None).candidates)

    plan = pool.engine().run()
    found = solve(pool.problem(), PoolCosts(pool))

    assert plan.exact
    assert (len(plan.copies) > 0) is mixes_devices
    assert plan.total_us == pytest.approx(found.total_us, rel=1e-9)
    assert found.proves(plan.total_us)
