from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from collage.control.plan_file import plan_document, read_plan, write_plan
from collage.control.plan_of_file import planned
from collage.errors import PlanFileError
from collage.explore.fixed_plan import measured_plan
from collage.report.progress import SilentProgress
from collage_core.candidates.all_proposals import propose_all
from collage_core.candidates.chosen_plan import as_plan
from collage_core.candidates.plan import Plan
from collage_core.candidates.proposals import propose
from collage_core.fusion import CandidateBounds, CandidateKernel, Partitioning, SubGraph
from collage_core.ir.graph.canonical import Composite
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.passes.apply import apply_partitioning
from collage_core.passes.call_sites import call_sites
from collage_testing.graphs import GraphBuilder
from tests.engine.exploring import a_target, by_operator, kernel, pool_of, rule_of

A, B = a_target("a"), a_target("b")
COSTS = {"a": {"Relu": 1.0, "Exp": 1.0, "Tanh": 9.0}, "b": {"Relu": 9.0, "Exp": 9.0, "Tanh": 1.0}}


def chain() -> DataflowGraph:
    """`relu_0`, a view, `exp_0`, `tanh_0`."""
    g = GraphBuilder()
    return DataflowGraph(
        g.model(g.op("Tanh", g.op("Exp", g.op("Reshape", g.op("Relu", g.input("x", 4)), g.ints(2, 2)))))
    )


def saved(graph: DataflowGraph, path: Path) -> Plan:
    """The plan `relu_0 exp_0` on a, `tanh_0` on b, written with five known costs."""
    chosen = [kernel(graph, A, "relu_0", "exp_0"), kernel(graph, B, "tanh_0")]
    others = [kernel(graph, A), kernel(graph, A, "tanh_0"), kernel(graph, B)]
    measured = pool_of(graph, by_operator(COSTS), *chosen, *others)
    plan = Plan(
        name="mixed-1",
        single=False,
        partitioning=Partitioning(graph, tuple(chosen)),
        costs_us=(3.0, 2.0),
        dispatch_us=0.0,
    )
    write_plan(path, plan_document(plan, measured.pool, model="m.onnx", nodes=4))
    return plan


def edited(path: Path, change: Any) -> Path:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return path


def kernels(plan: Plan) -> list[tuple[str, tuple[str, ...]]]:
    return [(each.target.name, each.sub_graph.names) for each in plan.kernels]


def test_a_plan_that_was_saved_is_the_plan_that_is_loaded(tmp_path: Path) -> None:
    graph, path = chain(), tmp_path / "mine.json"
    plan = saved(graph, path)

    file = read_plan(path)
    again = planned(file, graph, [A, B], dispatch_us=0.5)

    assert again.key == plan.key
    assert (again.costs_us, again.dispatch_us, again.name) == ((3.0, 2.0), 0.5, "mine")
    assert len(file.costs) == 5
    assert file.model == "m.onnx"


def test_a_person_reads_one_kernel_or_cost_a_line(tmp_path: Path) -> None:
    saved(chain(), tmp_path / "plan.json")

    lines = (tmp_path / "plan.json").read_text().splitlines()

    assert '  {"target": "b", "cost_us": 2.0, "nodes": ["tanh_0"]}' in lines
    assert '  {"target": "a", "cost_us": 12.0, "nodes": ["relu_0", "reshape_0", "exp_0", "tanh_0"]},' in lines
    assert len(lines) == 2 + 4 + 7


def test_an_edited_placement_is_forced(tmp_path: Path) -> None:
    graph, path = chain(), tmp_path / "plan.json"
    saved(graph, path)
    mine = [{"target": "b", "nodes": ["relu_0"]}, {"target": "a", "nodes": ["exp_0", "tanh_0"], "comment": "mine"}]

    plan = planned(read_plan(edited(path, lambda d: d.update(kernels=mine))), graph, [A, B])

    assert kernels(plan) == [("b", ("relu_0",)), ("a", ("exp_0", "tanh_0"))]


def test_edited_costs_decide_where_no_placement_is_given(tmp_path: Path) -> None:
    graph, path = chain(), tmp_path / "plan.json"
    saved(graph, path)

    as_measured = planned(read_plan(edited(path, lambda d: d.pop("kernels"))), graph, [A, B])
    edited(path, lambda d: d["costs"][2].update(cost_us=0.25))
    as_edited = planned(read_plan(path), graph, [A, B])

    assert kernels(as_measured) == [("a", ("relu_0", "reshape_0", "exp_0")), ("b", ("tanh_0",))]
    assert kernels(as_edited) == [("a", ("relu_0", "reshape_0", "exp_0", "tanh_0"))]
    assert as_edited.single
    assert as_edited.costs_us == (0.25,)


def test_the_loop_counts_where_costs_decide(tmp_path: Path) -> None:
    graph, path = chain(), tmp_path / "plan.json"
    saved(graph, path)
    edited(path, lambda d: d.update(kernels=None))

    assert len(planned(read_plan(path), graph, [A, B], dispatch_us=100.0).kernels) == 1


def test_a_kernel_of_a_pattern_keeps_its_label_and_what_goes_with_it() -> None:
    graph = chain()
    labelled = CandidateKernel(kernel(graph, A, "exp_0").sub_graph.labelled("blas.exp", {"k": "v"}), rule_of(A).spec)
    plan = Plan(
        name="p",
        single=True,
        partitioning=Partitioning(graph, (kernel(graph, A, "relu_0"), labelled, kernel(graph, A, "tanh_0"))),
        costs_us=(1.0, 1.0, 1.0),
        dispatch_us=0.0,
    )

    document = plan_document(plan, None, model="m", nodes=4)

    assert "costs" not in document
    assert document["kernels"][1]["composite"] == "blas.exp"


def made_of_kernels(graph: DataflowGraph) -> list[CandidateKernel]:
    """The whole on target A: as it is, of two kernels of its library, and of two of which one holds two more."""
    relu, exp, tanh = (1 << graph.index_of(name) for name in ("relu_0", "exp_0", "tanh_0"))
    view = 1 << graph.index_of("reshape_0")
    pair = Composite("a.pair", relu | view | exp, parts=(Composite("a.one", relu), Composite("a.one", exp)))
    forms: list[tuple[Composite, ...]] = [
        (),
        (Composite("a.one", relu), Composite("a.two", exp | tanh)),
        (Composite("a.three", relu | view | exp | tanh, parts=(pair,)),),
    ]
    [whole] = [kernel(graph, A)]
    return [CandidateKernel(SubGraph(graph, whole.sub_graph.nodes, "", form), rule_of(A).spec) for form in forms]


def by_form(candidate: CandidateKernel) -> float:
    """What a kernel costs: 1 with composites three deep, 25 with others or none."""
    return 1.0 if any(part.parts for part in candidate.sub_graph.composites) else 25.0


@pytest.mark.parametrize("place", range(3))
def test_a_kernel_made_of_a_librarys_own_kernels_is_the_one_that_is_loaded(tmp_path: Path, place: int) -> None:
    graph, path = chain(), tmp_path / "plan.json"
    forms = made_of_kernels(graph)
    proposals = dataclasses.replace(propose(rule_of(A), graph, CandidateBounds()), candidates=tuple(forms))
    plan = Plan(
        name="mixed-1", single=True, partitioning=Partitioning(graph, (forms[place],)), costs_us=(1.0,), dispatch_us=0.0
    )
    write_plan(path, plan_document(plan, None, model="m", nodes=4))

    [loaded] = planned(read_plan(path), graph, [A], [proposals]).kernels

    assert loaded == forms[place]


def test_of_forms_of_one_kernel_the_cheapest_in_a_file_is_taken(tmp_path: Path) -> None:
    graph, path = chain(), tmp_path / "plan.json"
    forms = made_of_kernels(graph)
    proposals = dataclasses.replace(propose(rule_of(A), graph, CandidateBounds()), candidates=tuple(forms))
    measured = pool_of(graph, by_form, *forms)
    found = as_plan(measured.pool, "mixed", measured.pool.engine().run(), single=True)
    assert (found.costs_us, found.kernels) == ((1.0,), (forms[2],))
    write_plan(path, plan_document(found, measured.pool, model="m", nodes=4))
    edited(path, lambda d: d.pop("kernels"))

    plan = planned(read_plan(path), graph, [A], [proposals])

    assert (plan.costs_us, plan.kernels) == ((1.0,), (forms[2],))
    [site] = call_sites(apply_partitioning(plan.partitioning))
    labels = [each.metadata_props["collage.composite"] for each in site.kernel_function().model.functions.values()]
    assert sorted(labels) == ["a.one", "a.one", "a.pair", "a.three"]


def deeper(parts: Any, times: int) -> Any:
    return deeper([{"composite": "x", "nodes": ["relu_0"], "parts": parts}], times - 1) if times else parts


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["kernels"][0].update(parts={}), r'"parts" of kernels\[0\] is not a list'),
        (lambda d: d["kernels"][0].update(parts=[7]), r'kernels\[0\].parts\[0\] needs a "composite"'),
        (
            lambda d: d["kernels"][0].update(parts=[{"composite": "x", "nodes": []}]),
            r'kernels\[0\].parts\[0\] needs "nodes"',
        ),
        (
            lambda d: d["kernels"][0].update(parts=[{"composite": "x", "nodes": ["rely_0"]}]),
            "no node 'rely_0'; did you mean 'relu_0'",
        ),
        (
            lambda d: d["kernels"][0].update(parts=[{"composite": "x", "nodes": ["relu_0"]}]),
            "a has no kernel 'x' of relu_0",
        ),
        (lambda d: d["kernels"][0].update(parts=deeper([], 300)), "are more than 50 deep"),
        (lambda d: d["kernels"][0].update(target="c"), "target 'c' takes no part here; those that do: a, b"),
        (lambda d: d["kernels"][0].update(nodes=["rely_0"]), "no node 'rely_0'; did you mean 'relu_0'"),
        (lambda d: d["kernels"].pop(), "no kernel holds 'tanh_0'"),
        (lambda d: d["kernels"][1].update(nodes=["exp_0", "tanh_0"]), "two kernels hold 'exp_0'"),
        (lambda d: d["kernels"][1].update(composite="x.y"), "b has no kernel 'x.y' of tanh_0"),
        (lambda d: d["kernels"][0].update(nodes="relu_0"), r'kernels\[0\] needs "nodes", a list of names'),
        (lambda d: d["kernels"][0].pop("target"), r'kernels\[0\] needs a "target"'),
        (lambda d: d["costs"][0].update(cost_us=-1), r'"cost_us" of costs\[0\] is a number'),
        (lambda d: d["costs"][0].pop("cost_us"), r'costs\[0\] needs a "cost_us"'),
        (lambda d: d.update(schema_version=9), '"schema_version": 1, as --save-plan writes it'),
        (lambda d: d.update(kernels=None, costs=[]), 'neither "kernels" nor "costs"'),
        (lambda d: d.update(kernels=None, costs=d["costs"][1:2]), "no set of the candidates in its costs runs"),
        (lambda d: d.update(kernels={}), '"kernels" is not a list'),
    ],
)
def test_what_is_wrong_with_a_file_is_one_message(tmp_path: Path, change: Any, message: str) -> None:
    graph, path = chain(), tmp_path / "plan.json"
    saved(graph, path)

    with pytest.raises(PlanFileError, match=message) as error:
        planned(read_plan(edited(path, change)), graph, [A, B])
    assert str(path) in str(error.value)


@pytest.mark.parametrize("content", ["", "[1]", "no", "\udcff", "[" * 100_000])
def test_what_is_no_plan_file_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))

    with pytest.raises(PlanFileError):
        read_plan(path)
    with pytest.raises(PlanFileError, match="No such file"):
        read_plan(tmp_path / "none.json")


def test_kernels_that_wait_for_each_other_are_refused(tmp_path: Path) -> None:
    g = GraphBuilder()
    x, z = g.input("x", 4), g.input("z", 4)
    a1, a2 = g.op("Relu", x), g.op("Exp", z)
    graph = DataflowGraph(g.model(g.op("Neg", a1), g.op("Abs", a2)))
    circle = [{"target": "a", "nodes": ["relu_0", "abs_0"]}, {"target": "b", "nodes": ["exp_0", "neg_0"]}]
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"schema_version": 1, "kernels": circle}))

    with pytest.raises(PlanFileError, match="wait for each other in a circle"):
        planned(read_plan(path), graph, [A, B])


def test_targets_that_cannot_share_a_process_cannot_share_a_plan(tmp_path: Path) -> None:
    graph, path = chain(), tmp_path / "plan.json"
    saved(graph, path)
    alone = a_target("b", mixable=False)

    with pytest.raises(PlanFileError, match="a and b cannot share a plan"):
        planned(read_plan(path), graph, [A, alone])


def test_a_given_plan_is_measured_and_nothing_else_is(tmp_path: Path) -> None:
    graph, path = chain(), tmp_path / "plan.json"
    saved(graph, path)
    proposed = propose_all([rule_of(A), rule_of(B)], graph, CandidateBounds())
    measured = pool_of(graph, by_operator(COSTS))
    plan = planned(read_plan(path), graph, [A, B], proposed.by_target.values())

    explored, known = measured_plan(plan, proposed, measured.pool, measured.source, SilentProgress())  # type: ignore[arg-type]

    assert measured.source.measured == [("a", ("relu_0", "reshape_0", "exp_0")), ("b", ("tanh_0",))]
    assert known.costs_us == (3.0, 2.0)
    assert (explored.result.method, explored.result.exact) == ("given plan", False)
    assert len(explored.pool) == 2
