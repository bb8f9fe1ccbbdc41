from __future__ import annotations

import dataclasses

import pytest

from collage.control.pins import Pin, Pins
from collage.decide.shortlist import mixes, singles
from collage.errors import PinError
from collage.explore.exhaustive import explore_exhaustively
from collage.explore.exploration import Explored, UncoveredError
from collage.options import PRESETS
from collage_core.candidates.explanation import refusals
from collage_core.candidates.plan import Plan
from collage_core.candidates.proposals import TargetRule
from collage_core.candidates.refusals import Refusal
from collage_core.contract import Joins
from collage_core.errors import NoCoverError, UsageError
from collage_core.fusion import Partitioning
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing.graphs import GraphBuilder
from tests.engine.exploring import FakeSource, Truth, a_target, by_operator, empty_pool, kernel, rule_of, setup_of

A, B = a_target("a"), a_target("b")
CHEAP_A = by_operator({"a": {"Relu": 1.0, "Exp": 1.0, "Tanh": 1.0}, "b": {"Relu": 9.0, "Exp": 9.0, "Tanh": 9.0}})


def chain() -> DataflowGraph:
    """`relu_0 exp_0 tanh_0`, and a view behind."""
    g = GraphBuilder()
    return DataflowGraph(
        g.model(g.op("Reshape", g.op("Tanh", g.op("Exp", g.op("Relu", g.input("x", 4)))), g.ints(2, 2)))
    )


def pins(*texts: str, graph: DataflowGraph | None = None) -> Pins:
    return Pins([Pin.parse(text) for text in texts], graph or chain(), [A, B])


def explored(graph: DataflowGraph, rules: list[TargetRule], given: Pins, *, truth: Truth = CHEAP_A) -> Explored:
    source = FakeSource(truth)
    preset = dataclasses.replace(PRESETS["quick"], operators=10)
    return explore_exhaustively(setup_of(source, given.applied(rules), preset=preset), empty_pool(graph, source, 0.0))


def said(error: UncoveredError) -> tuple[Refusal, ...]:
    return refusals(error.exploration.proposed.by_target.values(), pool=error.exploration.pool)


def test_a_pinned_node_goes_to_its_toolchain_though_another_is_cheaper_and_regions_form_around_it() -> None:
    graph = chain()
    found = explored(graph, [rule_of(A), rule_of(B)], pins("exp_*=b", graph=graph))

    pool = found.pool
    chosen = [(c.target, pool.candidate(c).sub_graph.names) for c in found.result.candidates]
    assert chosen == [("a", ("relu_0",)), ("b", ("exp_0",)), ("a", ("tanh_0",))]
    assert all("exp_0" not in c.sub_graph.names for c in pool if c.target == A)
    assert pool.rejection(kernel(graph, A)) is None  # nobody measured the whole model on a


def test_no_plan_of_one_toolchain_breaks_a_pin() -> None:
    graph = chain()
    pool = explored(graph, [rule_of(A), rule_of(B)], pins("exp_0=b", graph=graph)).pool

    plans = [*singles(pool, [A, B]), *mixes(pool, 3)]

    assert {plan.name for plan in plans} >= {"a", "b"}
    for plan in plans:
        [holder] = [each for each in plan.kernels if "exp_0" in each.sub_graph.names]
        assert holder.target == B


def test_a_pin_nobody_can_keep_names_what_its_toolchain_said() -> None:
    graph = chain()
    given = pins("*=b", graph=graph)

    with pytest.raises(UncoveredError) as caught:
        explored(graph, [rule_of(A), rule_of(B, refuses=["Exp"])], given)
    error = given.explained(caught.value, said(caught.value))

    assert isinstance(error, PinError)
    assert isinstance(error, UsageError)
    assert str(error) == (
        "--pin '*=b' cannot be kept: no kernel of that toolchain runs node 'exp_0' (Exp): b: b has no Exp. "
        "Pin less, or pin it to another toolchain."
    )


def test_what_fails_when_it_is_measured_is_named_too() -> None:
    graph = chain()
    given = pins("exp_0=b", graph=graph)
    truth = by_operator({"a": {"Relu": 1.0, "Exp": 1.0, "Tanh": 1.0}, "b": {"Relu": 9.0, "Tanh": 9.0}})

    with pytest.raises(UncoveredError) as caught:
        explored(graph, [rule_of(A), rule_of(B)], given, truth=truth)

    error = given.explained(caught.value, said(caught.value))
    assert "b: b crashes on exp_0" in str(error)


def test_an_error_about_other_nodes_stays_what_it_is() -> None:
    error = NoCoverError((0,))

    assert pins("exp_0=b").explained(error, ()) is error


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["exp_0"], "not of the form GLOB=toolchain"),
        (["exp_0=b(x)"], "not of the form option=value"),
        (["exq_0=b"], "no node of the prepared model has such a name; did you mean 'exp_0'"),
        (["reshape_0=b"], "views only"),
        (["exp_0=c"], "no such target takes part; those that do: a, b"),
        (["*=a", "exp_0=b"], "node 'exp_0' is pinned twice"),
    ],
)
def test_a_pin_that_makes_no_sense_is_one_message(texts: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        pins(*texts)


@pytest.mark.parametrize(
    ("text", "name"), [("/a/=b/Add=b", "/a/=b/Add"), ("a[0]=b", "a[0]"), ("*/Conv=b", "/x/Conv"), ("c?=b(k=v)", "c1")]
)
def test_globs_may_hold_whatever_names_hold(text: str, name: str) -> None:
    pin = Pin.parse(text)

    assert pin.holds(name)
    assert pin.spelling.toolchain == "b"


def test_a_given_plan_has_to_keep_the_pins() -> None:
    graph = chain()
    partitioning = Partitioning(graph, (kernel(graph, A),))
    plan = Plan(name="mine", single=True, partitioning=partitioning, costs_us=(1.0,), dispatch_us=0.0)

    pins("exp_0=a", graph=graph).check(plan)
    with pytest.raises(UsageError, match="gives node 'exp_0' to a, against --pin 'exp_0=b'"):
        pins("exp_0=b", graph=graph).check(plan)


def test_a_library_of_single_kernels_keeps_pins_too() -> None:
    graph = chain()
    alone = a_target("b", joins=Joins.NONE)
    found = explored(graph, [rule_of(A), rule_of(alone)], pins("tanh_0=b", graph=graph))

    assert [c.target for c in found.result.candidates] == ["a", "b"]
