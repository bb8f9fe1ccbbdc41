from __future__ import annotations

import dataclasses

import pytest

from collage.decide.decision import decide
from collage.decide.races.saved_races import EndToEndTimings
from collage.decide.recording import comparison, latency_facts, options_explained, regions
from collage.decide.shortlist import mixes
from collage.decide.timed import Timed
from collage.measure.wire.outcomes import Refused
from collage.setup.facts import toolchain_facts
from collage.setup.targets import ToolchainStatus
from collage_core.candidates.explanation import refusals
from collage_core.candidates.plan import Plan
from collage_core.candidates.proposals import propose
from collage_core.contract import Target
from collage_core.entry_points import PluginFailure
from collage_core.fusion import CandidateBounds, Partitioning
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.registry import Registry, Toolchain
from collage_testing import MockToolchain, chain
from tests.engine.exploring import a_target, by_operator, kernel, pool_of, rule_of

A, B = a_target("a"), a_target("b")
SPIN = a_target("a", options=(("spin", "true"),), mixable=False)
GRAPH = DataflowGraph(chain("Relu", "Exp", "Neg"))
COSTS = by_operator({"a": {"Relu": 2.0, "Exp": 20.0, "Neg": 2.0}, "b": {"Relu": 10.0, "Exp": 4.0}})


def plan_of(name: str, *parts: tuple[Target, tuple[str, ...]], single: bool = False) -> Plan:
    kernels = tuple(kernel(GRAPH, target, *names) for target, names in parts)
    costs = tuple(float(len(names) or len(GRAPH)) for _, names in parts)
    return Plan(name=name, single=single, partitioning=Partitioning(GRAPH, kernels), costs_us=costs, dispatch_us=0.0)


ALONE = plan_of("a", (A, ()), single=True)
OTHER = plan_of("b", (B, ()), single=True)
MIXED = plan_of("mixed-1", (A, ("relu_0",)), (B, ("exp_0",)), (A, ("neg_0",)))


def timings(
    *timed: tuple[Plan, float], dropped: tuple[Plan, ...] = (), failed: dict[str, str] | None = None
) -> EndToEndTimings:
    def samples(plan: Plan, time_us: float, rounds: int) -> Timed:
        return Timed(
            name=plan.name,
            single=plan.single,
            kernels=len(plan.kernels),
            toolchains=len(plan.toolchains),
            rounds_us=((time_us * 0.999, time_us, time_us * 1.001),) * rounds,
        )

    return EndToEndTimings(
        timed=(
            *(samples(plan, time_us, 8) for plan, time_us in timed),
            *(samples(plan, 9000.0, 3) for plan in dropped),
        ),
        failed=failed or {},
    )


def test_latencies_are_milliseconds_over_all_samples() -> None:
    facts = latency_facts([[1000.0, 2000.0, 3000.0], [4000.0, 5000.0]])

    assert (facts.p50, facts.min, facts.mean, facts.n) == (3.0, 1.0, 3.0, 5)
    assert facts.ci95[0] <= facts.p50 <= facts.ci95[1]
    assert facts.p50 <= facts.p90 <= facts.p99 <= 5.0


def test_the_plan_that_was_kept_comes_first_as_collage() -> None:
    plans = [ALONE, OTHER, MIXED]
    result = timings((ALONE, 2000.0), (MIXED, 1000.0), dropped=(OTHER,))

    found = comparison(plans, result, decide(result.timed, 0), None)

    assert [(each.name, each.kind, each.regions) for each in found.contenders] == [
        ("collage", "mixed", 3),
        ("a", "single", 1),
        ("b", "single", 1),
    ]
    assert found.best_single == "a"
    assert found.speedup_vs_best_single is not None
    assert found.speedup_ci95 is not None
    assert found.speedup_vs_best_single == pytest.approx(2.0, rel=0.01)
    assert found.speedup_ci95[0] <= found.speedup_vs_best_single <= found.speedup_ci95[1]
    [collage, _, dropped] = found.contenders
    assert collage.ratio == pytest.approx(0.5, rel=0.01)
    assert collage.predicted_ms == MIXED.predicted_us / 1000
    assert dropped.latency_ms is not None
    assert dropped.latency_ms.p50 == 9.0
    assert dropped.ratio == 4.5


def test_a_single_toolchain_that_was_kept_is_there_under_both_names() -> None:
    result = timings((ALONE, 1000.0), (MIXED, 1500.0))

    found = comparison([ALONE, MIXED], result, decide(result.timed, 0), None)

    assert [(each.name, each.kind) for each in found.contenders] == [
        ("collage", "single"),
        ("a", "single"),
        ("mixed-1", "mixed"),
    ]
    assert found.speedup_vs_best_single == 1.0


def test_runs_as_users_call_them_have_ratios_of_their_own() -> None:
    found = timings((ALONE, 100.0), (OTHER, 110.0), (MIXED, 80.0))
    called = {"a": 150.0, "b": 120.0, "mixed-1": 90.0}
    timed = tuple(
        dataclasses.replace(each, called_us=((called[each.name],) * 3,) * len(each.rounds_us)) for each in found.timed
    )
    found = dataclasses.replace(found, timed=timed)

    made = comparison([ALONE, OTHER, MIXED], found, decide(found.timed, seed=0), None)

    ratios = {each.name: each.as_called.ratio for each in made.contenders if each.as_called is not None}
    assert (made.best_single, made.best_single_as_called) == ("a", "b")
    assert ratios == {"collage": 0.75, "a": 1.25, "b": 1.0}
    assert made.contenders[0].as_called is not None
    assert made.contenders[0].as_called.latency_ms.p50 == pytest.approx(0.09)


def test_predictions_compare_with_times_at_the_usual_speed() -> None:
    """The calibration kernel took four times as long throughout, which kernels feel by the root."""
    found = timings((ALONE, 8.0), (MIXED, 6.0), failed={"b": "crash: signal 11"})
    timed = tuple(dataclasses.replace(each, calibrations_us=(40.0,) * len(each.rounds_us)) for each in found.timed)

    made = comparison(
        [ALONE, OTHER, MIXED], dataclasses.replace(found, timed=timed), decide(timed, 0), usual_calibration_us=10.0
    )

    assert [each.usual_ms for each in made.contenders] == [0.003, 0.004, None]
    assert [each.predicted_ms for each in made.contenders] == [0.003] * 3
    assert [each.prediction_error for each in made.contenders] == [0.0, pytest.approx(1 / 3), None]
    assert made.contenders[0].latency_ms is not None
    assert made.contenders[0].latency_ms.p50 == 0.006


def test_a_failed_contender_says_why() -> None:
    result = timings((ALONE, 1000.0), failed={"b": "crash: signal 11"})

    found = comparison([ALONE, OTHER], result, decide(result.timed, 0), None)

    assert found.contenders[-1].failed == "crash: signal 11"
    assert found.contenders[-1].latency_ms is None


def test_a_mixed_plan_of_the_same_kernels_as_a_single_toolchains_is_no_contender_of_its_own() -> None:
    single = plan_of("b", (A, ("relu_0",)), (B, ("exp_0",)), (A, ("neg_0",)), single=True)
    result = timings((single, 1000.0))

    found = comparison([single, MIXED], result, decide(result.timed, 0), None)

    assert [each.name for each in found.contenders] == ["collage", "b"]
    assert not any(each.failed for each in found.contenders)


def test_single_toolchains_whose_plans_have_the_same_kernels_share_their_time() -> None:
    parts = ((A, ("relu_0",)), (B, ("exp_0",)), (A, ("neg_0",)))
    one, other = plan_of("a", *parts, single=True), plan_of("b", *parts, single=True)
    result = timings((one, 1000.0))

    found = comparison([one, other], result, decide(result.timed, 0), None)

    assert [each.name for each in found.contenders] == ["collage", "a", "b"]
    assert found.contenders[2].latency_ms == found.contenders[1].latency_ms


def test_without_a_single_toolchain_there_is_nothing_to_compare_with() -> None:
    result = timings((MIXED, 1000.0))

    found = comparison([MIXED], result, decide(result.timed, 0), None)

    assert [each.name for each in found.contenders] == ["collage"]
    assert (found.best_single, found.speedup_vs_best_single) == (None, None)


def test_each_region_says_what_every_other_target_would_have_done() -> None:
    truth = by_operator(
        {
            "a": {"Relu": 2.0, "Exp": 20.0, "Neg": 2.0},
            "b": {"Relu": 10.0, "Exp": 4.0},
            "a(spin=true)": {"Relu": 1.0, "Exp": 30.0, "Neg": 1.0},
        }
    )
    each = [kernel(GRAPH, target, name) for target in (A, B) for name in GRAPH.names if (target, name) != (B, "neg_0")]
    pool = pool_of(GRAPH, truth, *each, kernel(GRAPH, A), kernel(GRAPH, SPIN)).pool
    [plan] = mixes(pool, 1)

    facts = regions(plan, pool, [A, B, SPIN], {"k0001": 1e-6}, {"k0000": 3.5})

    assert [(f.id, f.target, f.nodes, f.operators, f.cost_us) for f in facts] == [
        ("k0000", "a", ("relu_0",), ("Relu",), 3.0),
        ("k0001", "b", ("exp_0",), ("Exp",), 5.0),
        ("k0002", "a", ("neg_0",), ("Neg",), 3.0),
    ]
    assert (facts[0].measured_us, facts[1].error) == (3.5, 1e-6)
    assert [(a.target, a.cost_us, a.reason) for a in facts[1].alternatives] == [
        ("a", 21.0, "as one kernel"),
        ("a(spin=true)", None, "it runs whole models only"),
    ]
    assert facts[2].alternatives[0].reason == "it does not take these nodes"


def test_an_alternative_that_cannot_share_the_plan_names_what_excludes_it() -> None:
    left, right = a_target("left", excludes=frozenset({"right"})), a_target("right")
    truth = by_operator({"a": {"Relu": 4.0, "Exp": 4.0, "Neg": 4.0}, "left": {"Exp": 1.0}, "right": {"Relu": 3.5}})
    each = [kernel(GRAPH, A, name) for name in GRAPH.names]
    pool = pool_of(GRAPH, truth, *each, kernel(GRAPH, left, "exp_0"), kernel(GRAPH, right, "relu_0")).pool
    [plan] = mixes(pool, 1)

    facts = regions(plan, pool, [A, left, right], {}, {})

    assert [f.target for f in facts] == ["a", "left", "a"]
    assert [(a.target, a.excluded_by) for a in facts[0].alternatives] == [("left", ()), ("right", ("left",))]
    assert facts[1].alternatives[0].excluded_by == ()


def test_a_region_that_failed_elsewhere_says_how() -> None:
    each = [kernel(GRAPH, A, name) for name in GRAPH.names]
    pool = pool_of(GRAPH, COSTS, *each, kernel(GRAPH, B, "neg_0")).pool
    [plan] = mixes(pool, 1)

    facts = regions(plan, pool, [A, B], {}, {})

    assert facts[2].alternatives[0].reason == "b crashes on neg_0"


def test_several_kernels_of_another_target_are_added_up() -> None:
    each = [kernel(GRAPH, B, name) for name in GRAPH.names[:2]]
    rest = [kernel(GRAPH, A, "relu_0", "exp_0"), kernel(GRAPH, A, "neg_0")]
    truth = by_operator({"a": {"Relu": 1.0, "Exp": 1.0, "Neg": 1.0}, "b": {"Relu": 4.0, "Exp": 4.0}})
    pool = pool_of(GRAPH, truth, *each, *rest).pool
    [plan] = mixes(pool, 1)

    alternative = regions(plan, pool, [A, B], {}, {})[0].alternatives[0]

    assert (alternative.cost_us, alternative.reason) == (10.0, "as 2 kernels")


def test_refusals_are_told_by_stage_and_reason_with_all_their_nodes() -> None:
    graph = DataflowGraph(chain("Relu", "Exp", "Exp", "Neg"))
    rule = rule_of(A, refuses=["Exp"], query={graph.index_of("neg_0"): "the library has no Neg"})
    proposals = propose(rule, graph, CandidateBounds.preset("quick"))
    pool = pool_of(graph, lambda candidate: Refused(reason="needs k % 8 == 0"), kernel(graph, A, "relu_0")).pool

    found = refusals([proposals], pool=pool)

    assert [(fact.stage, fact.nodes, fact.reason) for fact in found] == [
        ("lower", ("relu_0",), "needs k % 8 == 0"),
        ("predicate", ("exp_0", "exp_1"), "a has no Exp"),
        ("query", ("neg_0",), "the library has no Neg"),
    ]


def test_a_failure_says_where_it_happened() -> None:
    pool = pool_of(GRAPH, COSTS, kernel(GRAPH, B, "neg_0")).pool

    [fact] = refusals([], pool=pool)

    assert (fact.target, fact.stage, fact.reason) == ("b", "run", "b crashes on neg_0")


def test_every_toolchain_is_told_of_usable_or_not() -> None:
    chains = {name: Toolchain(name, MockToolchain(name, costs_us={})) for name in ("a", "b", "c")}
    broken = PluginFailure(name="broken", distribution="broken-1", reason="no module named x")
    statuses = [
        ToolchainStatus(toolchain=chains["a"], targets=(A, SPIN), selected=(A, SPIN)),
        ToolchainStatus(toolchain=chains["b"], targets=(B,), selected=(B,)),
        ToolchainStatus(toolchain=chains["c"], unusable="no NVIDIA device"),
    ]
    proposals = {
        target.name: propose(rule_of(target, refuses=refused), GRAPH, CandidateBounds.preset("quick"))
        for target, refused in ((A, ["Exp"]), (B, []), (SPIN, ["Exp"]))
    }

    facts = toolchain_facts(Registry(chains, (broken,)), statuses, proposals, MIXED)

    assert [(f.name, f.claimed_nodes, f.chosen_nodes, f.unusable) for f in facts] == [
        ("a", 2, 2, ""),
        ("b", 3, 1, ""),
        ("c", 0, 0, "no NVIDIA device"),
        ("broken", 0, 0, "no module named x"),
    ]
    assert facts[0].targets == ("a", "a(spin=true)")
    assert facts[0].fingerprint == "a 1"


def test_options_are_explained_where_their_toolchain_does() -> None:
    """Of every plan, whoever won; and a target that says more is the same target."""
    spin = dataclasses.replace(SPIN, about="its threads go on")
    plans = [ALONE, plan_of("spin", (spin, ()), single=True), MIXED]

    assert options_explained(plans) == ["a(spin=true): its threads go on"]
    assert spin == SPIN


def test_what_a_kernel_takes_in_place_is_not_compared_with_what_others_take_alone() -> None:
    kernels = [kernel(GRAPH, each, name) for each in (A, B) for name in GRAPH.names]
    truth = by_operator({"a": {"Relu": 1.0, "Exp": 1.0, "Neg": 1.0}, "b": {"Relu": 1.1, "Exp": 4.0, "Neg": 4.0}})
    pool = pool_of(GRAPH, truth, *kernels).pool
    pool = pool.with_costs(pool.costs.in_place({pool.cache_key(kernels[0]): 2.6, pool.cache_key(kernels[3]): 9.0}))
    plan = next(plan for plan in mixes(pool, 9) if plan.kernels[0] == kernels[0])

    region = regions(plan, pool, [A, B], {}, {})[0]

    # alone: an operator and a launch
    assert (region.cost_us, region.alone_us, region.alternatives[0].cost_us) == (2.6, 2.0, 2.1)
