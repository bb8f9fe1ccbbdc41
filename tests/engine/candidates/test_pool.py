from __future__ import annotations

import dataclasses

import pytest

from collage_core.candidates.chosen_plan import as_plan
from collage_core.candidates.pool import CandidatePool
from collage_core.contract import INVALID, UNMEASURED
from collage_core.errors import NoCoverError
from collage_core.fusion import SubGraph
from collage_core.ir.graph.canonical import Composite
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.search import SearchResult
from collage_testing import chain
from collage_testing.graphs import GraphBuilder
from tests.engine.exploring import a_target, by_operator, kernel, pool_of

A, B = a_target("a"), a_target("b")
COSTS = by_operator({"a": {"Relu": 2.0, "Exp": 20.0}, "b": {"Relu": 10.0, "Exp": 4.0}})


@pytest.fixture
def graph() -> DataflowGraph:
    return DataflowGraph(chain("Relu", "Exp", "Relu"))


def test_equal_candidates_are_one_and_a_label_makes_a_difference(graph: DataflowGraph) -> None:
    pool = pool_of(graph, COSTS, kernel(graph, A, "relu_0"), kernel(graph, A, "relu_0")).pool
    pool = pool.with_candidates([kernel(graph, A, "relu_0", label="epilogue")])

    assert len(pool) == 2


def test_a_candidate_with_a_librarys_composite_inside_has_a_price_of_its_own(graph: DataflowGraph) -> None:
    """`[Relu Exp] Relu` costs 1, and `Relu Exp Relu` 25, whichever of them is proposed first."""
    plain = kernel(graph, A)
    first = sum(1 << graph.index_of(name) for name in ("relu_0", "exp_0"))
    parts = (Composite("lib.relu_exp", first),)
    fused = dataclasses.replace(plain, sub_graph=dataclasses.replace(plain.sub_graph, composites=parts))

    for order in ((plain, fused), (fused, plain)):
        pool = pool_of(graph, lambda each: 1.0 if each.sub_graph.composites else 25.0, *order).pool
        result = pool.engine().run()

        assert len(pool) == 2
        assert result.total_us == 1.0
        [chosen] = result.candidates
        assert pool.candidate(chosen) == fused
        [packaged] = as_plan(pool, "mixed", result, single=False).kernels
        assert packaged.sub_graph.composites == parts


def test_structurally_equal_candidates_are_measured_as_one_for_each_target(graph: DataflowGraph) -> None:
    alike = [kernel(graph, target, name) for target in (A, B) for name in ("relu_0", "relu_1")]

    pool = pool_of(graph, COSTS, *alike).pool

    assert (len(pool), pool.distinct()) == (4, 2)


def test_a_search_takes_the_cheapest_of_each_target(graph: DataflowGraph) -> None:
    each = [kernel(graph, target, name) for target in (A, B) for name in ("relu_0", "exp_0", "relu_1")]
    pool = pool_of(graph, COSTS, *each, kernel(graph, A), kernel(graph, B), dispatch_us=0.25).pool

    result = pool.engine().run()

    assert [chosen.target for chosen in result.candidates] == ["a", "b", "a"]
    assert [pool.candidate(chosen).sub_graph.names for chosen in result.candidates] == [
        ("relu_0",),
        ("exp_0",),
        ("relu_1",),
    ]
    assert result.total_us == pytest.approx(3.0 + 5.0 + 3.0 + 3 * 0.25)


def test_targets_that_differ_in_products_alone_share_the_rest_and_the_exact_one_comes_first() -> None:
    g = GraphBuilder()
    graph = DataflowGraph(g.model(g.op("Relu", g.op("MatMul", g.input("x", 4, 4), g.weight("w", 4, 4)))))
    plain = a_target("a", device="cuda:0")
    half = dataclasses.replace(plain, options=(("precision", "fp16"),), exact=False, rounds=frozenset({"MatMul"}))
    costs = by_operator({plain.name: {"Relu": 2.0, "MatMul": 9.0}, half.name: {"MatMul": 4.0}})
    each = [kernel(graph, target, name) for target in (half, plain) for name in ("matmul_0", "relu_0")]

    made = pool_of(graph, costs, *each)
    mixed, alone = (as_plan(made.pool, "plan", found, single=False) for found in _both(made.pool, half.name))

    assert made.source.counts.measured == made.pool.distinct() == 3
    assert half.name < plain.name  # so it is not by name that of two of one cost the exact one is taken
    assert [kernel.target.name for kernel in mixed.kernels] == [half.name, plain.name]
    assert [kernel.target.name for kernel in alone.kernels] == [half.name, half.name]
    assert mixed.predicted_us == alone.predicted_us == pytest.approx(5.0 + 3.0)
    assert mixed.key == alone.key  # they run the same, so one is timed
    whole = as_plan(made.pool, "plan", made.pool.engine(target=plain.name).run(), single=True)
    assert whole.key != mixed.key


def _both(pool: CandidatePool, target: str) -> list[SearchResult]:
    """The best plan, and the best of one target."""
    return [pool.engine().run(), pool.engine(target=target).run()]


def test_a_search_can_be_kept_to_some_nodes_and_one_target(graph: DataflowGraph) -> None:
    each = [kernel(graph, target, name) for target in (A, B) for name in ("relu_0", "exp_0", "relu_1")]
    pool = pool_of(graph, COSTS, *each, kernel(graph, B)).pool
    within = kernel(graph, A, "relu_0", "exp_0").sub_graph.nodes

    result = pool.engine(within=within, target="b").run()

    assert [(chosen.target, chosen.nodes) for chosen in result.candidates] == [("b", 0b01), ("b", 0b10)]
    with pytest.raises(NoCoverError):
        pool.engine(within=within, target="c").run()


def test_what_is_unmeasured_or_failed_is_in_no_plan(graph: DataflowGraph) -> None:
    known = [kernel(graph, B, name) for name in ("relu_0", "exp_0", "relu_1")]
    made = pool_of(graph, by_operator({"a": {}, "b": {"Relu": 1.0, "Exp": 1.0}}), kernel(graph, A), *known)
    unmeasured = kernel(graph, B)
    pool = made.pool.with_candidates([unmeasured])

    result = pool.engine().run()

    assert pool.cost(kernel(graph, A)) == INVALID
    assert pool.cost(unmeasured) is UNMEASURED
    assert pool.selected_us(kernel(graph, A)) is None
    assert pool.selected_us(unmeasured) is None
    assert len(result.candidates) == 3


def test_costs_are_asked_for_once_until_something_was_measured(graph: DataflowGraph) -> None:
    made = pool_of(graph, COSTS, kernel(graph, A))
    before = made.source.asked

    first = [made.pool.cost(kernel(graph, A)) for _ in range(3)]
    asked = made.source.asked - before
    later = made.pool.costs.reaching([made.pool.cache_key(kernel(graph, A))])
    later.cost(kernel(graph, A))

    assert asked == 1
    assert made.source.asked - before == 2
    assert first == [25.0] * 3


def test_only_what_this_run_confirmed_goes_by_fresh_samples(graph: DataflowGraph) -> None:
    whole = kernel(graph, A)
    made = pool_of(graph, COSTS, whole)
    # an earlier run over the same database confirmed it, and found it slower
    made.source.known[made.pool.cache_key(whole)].append(40.0)

    assert made.pool.cost(whole) == 25.0
    pool = made.pool.with_costs(made.pool.costs.confirming([made.pool.cache_key(whole)]))
    assert pool.cost(whole) == 40.0
    assert pool.selected_us(whole) == 25.0
    assert pool.engine().run().total_us == pytest.approx(40.0)


def test_the_whole_model_is_everything_that_needs_a_kernel_with_the_views_between() -> None:
    g = GraphBuilder()
    value = g.op("Reshape", g.op("Relu", g.input("x", 4, 4)), g.ints(16))
    graph = DataflowGraph(g.model(g.op("Exp", value)))

    pool = pool_of(graph, COSTS, kernel(graph, A), kernel(graph, A, "exp_0")).pool

    assert pool.whole == graph.all_mask
    assert [pool.is_whole(candidate) for candidate in pool] == [True, False]


def test_before_anything_is_reached_no_candidate_is_keyed(graph: DataflowGraph) -> None:
    made = pool_of(graph, COSTS, kernel(graph, A))
    pool = made.pool.with_costs(made.pool.costs.afresh())
    made.source.key = _unkeyed  # type: ignore[method-assign]  # it may take a run of the model, which may fail

    assert pool.rejection(kernel(graph, A)) is None


def test_rejections_of_what_was_reached_are_the_sources(graph: DataflowGraph) -> None:
    made = pool_of(graph, by_operator({"a": {}}), kernel(graph, A), kernel(graph, A, "relu_0"))
    pool = made.pool.with_costs(made.pool.costs.afresh().reaching([made.pool.cache_key(kernel(graph, A))]))

    rejection = pool.rejection(kernel(graph, A))
    assert rejection is not None
    assert rejection.stage == "run"
    assert pool.rejection(kernel(graph, A, "relu_0")) is None


def _unkeyed(sub_graph: SubGraph) -> str:
    raise AssertionError("keyed")


def test_a_pool_and_its_costs_stay_what_they_were(graph: DataflowGraph) -> None:
    made = pool_of(graph, COSTS, kernel(graph, A))
    before = made.pool.with_costs(made.pool.costs.afresh())

    key = before.cache_key(kernel(graph, A))
    after = before.with_candidates([kernel(graph, B)]).with_costs(before.costs.reaching([key]).confirming([key]))

    assert (len(before), before.costs.reached, before.costs.confirmed) == (1, frozenset(), frozenset())
    assert before.cost(kernel(graph, A)) is UNMEASURED
    assert (len(after), after.costs.reached, after.costs.confirmed) == (2, frozenset({key}), frozenset({key}))
    assert before.with_candidates([kernel(graph, A)]) is before
