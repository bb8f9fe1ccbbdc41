"""Two targets of one toolchain shared cache entries, so that one was costed by what was measured on the other."""

from __future__ import annotations

from collage_core.contract import Target
from collage_core.fusion import CandidateKernel, FusionSpec, OpCallByKindRule, SubGraph
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing import chain
from tests.engine.exploring import FakeSource, empty_pool


def test_targets_of_one_toolchain_are_costed_apart() -> None:
    graph = DataflowGraph(chain("Relu", shape=(4, 4)))
    plain = Target(toolchain="t", fingerprint="t 1")
    narrow = Target(toolchain="t", fingerprint="t 1", options=(("precision", "bf16"),))
    costs = {plain: 3.0, narrow: 1.0}
    source = FakeSource(lambda candidate: costs[candidate.target])
    specs = [FusionSpec(name=each.name, rule=OpCallByKindRule(), targets=(each,)) for each in costs]
    candidates = [CandidateKernel(SubGraph(graph, graph.all_mask), spec) for spec in specs]
    old = {(each.target.toolchain, source.key(each.sub_graph)) for each in candidates}

    pool = empty_pool(graph, source).with_candidates(candidates)
    source.measure(candidates)

    assert len(old) == 1, "by toolchain and structure, as the old cache had it, they are one entry"
    assert len({pool.cache_key(each) for each in candidates}) == 2
    assert [pool.selected_us(each) for each in candidates] == [3.0, 1.0]


def test_one_spec_with_two_targets_gives_two_candidates() -> None:
    graph = DataflowGraph(chain("Relu", shape=(4, 4)))
    targets = Target(toolchain="t", fingerprint="t 1"), Target(toolchain="u", fingerprint="u 1")
    spec = FusionSpec(name="both", rule=OpCallByKindRule(), targets=targets)

    candidates = [CandidateKernel(SubGraph(graph, graph.all_mask), spec, target) for target in targets]
    pool = empty_pool(graph, FakeSource(lambda candidate: 1.0)).with_candidates(candidates)

    assert len(pool) == 2
