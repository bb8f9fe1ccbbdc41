from __future__ import annotations

import math
import zlib

import onnx
import onnx_ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_ir.passes.common import InlinePass

from collage_core.contract import INVALID, Cost, Joins, Supported, Target, Unsupported
from collage_core.errors import NoCoverError
from collage_core.fusion import FusionRule, default_rule
from collage_core.patterns import FusionPattern, NodeContext, PatternTable, is_constant, is_op, wildcard
from collage_testing import (
    CandidateView,
    GraphBuilder,
    MockToolchain,
    NoFit,
    OutPriced,
    PartitionResult,
    Refused,
    Unbuildable,
    Unusable,
    chain,
    crossed,
    dense,
    diamond,
    partition,
    per_operator,
    random_model,
    single_matmul,
)
from collage_testing.strategies import models


def kernels(result: PartitionResult) -> list[tuple[str, tuple[str, ...]]]:
    return [(kernel.toolchain, kernel.nodes) for kernel in result.kernels]


def one_each(candidate: CandidateView) -> float:
    """Every kernel costs the same, so fewer are better."""
    return 1.0


def test_the_cheaper_toolchain_wins_and_the_other_is_explained() -> None:
    fast = MockToolchain("fast", costs_us={"MatMul": 10.0})
    slow = MockToolchain("slow", costs_us={"MatMul": 25.0})

    result = partition(single_matmul(m=16, n=16, k=16), [fast, slow])

    assert [kernel.toolchain for kernel in result.kernels] == ["fast"]
    assert result.why_not("slow") == [OutPriced(region=0, cost_us=25.0, chosen_us=10.0)]
    assert result.why_not("fast") == []
    assert result.total_us == 10.0
    assert result.exact


def test_what_the_loop_adds_counts_for_every_kernel() -> None:
    single = MockToolchain("single", costs_us={"Relu": 1.0, "Exp": 1.0}, operators=["Relu", "Exp"])
    fused = MockToolchain("fused", costs_us={"Relu": 1.2, "Exp": 1.2})
    model = chain("Relu", "Exp")

    cheap = partition(model, [single, fused])
    dear = partition(model, [single, fused], dispatch_us=1.0)

    assert (kernels(cheap), cheap.total_us) == ([("single", ("relu_0",)), ("single", ("exp_0",))], 2.0)
    assert (kernels(dear), dear.total_us) == ([("fused", ("relu_0", "exp_0"))], 3.4)
    assert dear.why_not("single") == [OutPriced(region=0, cost_us=4.0, chosen_us=3.4)]


def test_a_tie_goes_to_fewer_kernels_then_to_the_name() -> None:
    toolchains = [
        MockToolchain("b", costs_us={"Relu": 1.0, "Exp": 1.0}),
        MockToolchain("a", costs_us={"Relu": 1.0, "Exp": 1.0}),
        MockToolchain("0", costs_us={"Relu": 1.0, "Exp": 1.0}, operators=["Relu", "Exp"]),
    ]

    assert kernels(partition(chain("Relu", "Exp"), toolchains)) == [("a", ("relu_0", "exp_0"))]


def test_costs_may_depend_on_names_size_and_target() -> None:
    targets = [
        Target(toolchain="mock", fingerprint="1"),
        Target(toolchain="mock", options=(("precision", "low"),), fingerprint="1"),
    ]

    def cost(candidate: CandidateView) -> float:
        if candidate.nodes == ("relu_1",):
            return 7.0
        return candidate.elements / (2 if candidate.target.options else 1)

    mock = MockToolchain("mock", costs_us=cost, operators=["Relu"], targets=targets)
    result = partition(chain("Relu", "Relu", shape=(3, 5)), [mock])

    assert [(kernel.target, kernel.cost_us) for kernel in result.kernels] == [
        ("mock(precision=low)", 7.5),
        ("mock", 7.0),
    ]


def test_patterns_are_composites_and_may_be_checked() -> None:
    def enough(rows: int) -> FusionPattern:
        root = is_op("Add")(is_op("MatMul")(wildcard(), is_constant()).named("product"), is_constant())
        return FusionPattern(
            name="blas.dense",
            pattern=root,
            check=lambda match: (
                Supported() if match.node("product").outputs[0].static_shape[0] >= rows else Unsupported("too few rows")
            ),
        )

    mock = MockToolchain("blas", costs_us=one_each, patterns=[enough(4)])
    strict = MockToolchain("strict", costs_us=one_each, patterns=[enough(5)])

    result = partition(dense(m=4), [mock, strict])

    [kernel] = result.kernels
    assert (kernel.composite, kernel.operators) == ("blas.dense", ("MatMul", "Add"))
    assert result.why_not("strict") == [
        Refused(node="matmul_0", reason="no pattern of it matches around this node"),
        Refused(node="add_0", reason="blas.dense: too few rows"),
    ]


def test_predicates_refuse_with_a_reason() -> None:
    def square(node: NodeContext) -> Supported | Unsupported:
        shape = node.outputs[0].static_shape
        return Supported() if shape[0] == shape[1] else Unsupported(f"{shape} is not square")

    mock = MockToolchain("mock", costs_us=one_each, predicates={"Relu": square}, operators=["Exp"])
    native = MockToolchain("native", costs_us=per_operator({"Relu": 3.0, "Exp": 3.0}))

    result = partition(chain("Relu", "Exp", shape=(2, 3)), [mock, native])

    assert kernels(result) == [("native", ("relu_0",)), ("mock", ("exp_0",))]
    assert result.why_not("mock") == [Refused(node="relu_0", reason="(2, 3) is not square")]


def test_the_library_s_own_refusals_count() -> None:
    mock = MockToolchain("mock", costs_us=one_each, operators=["Relu"], query={"relu_0": "this one is odd"})
    native = MockToolchain("native", costs_us={"Relu": 3.0})

    result = partition(chain("Relu", "Relu"), [mock, native])

    assert kernels(result) == [("native", ("relu_0",)), ("mock", ("relu_1",))]
    assert result.why_not("mock") == [Refused(node="relu_0", reason="this one is odd")]


def test_how_far_a_toolchain_joins_says_which_regions_it_is_offered() -> None:
    g = GraphBuilder()
    value = g.input("x", 4, 4)
    for name in ("w0", "w1"):
        value = g.op("Relu", g.op("MatMul", value, g.weight(name, 4, 4)))
    model = g.model(value)

    def regions(joins: Joins) -> int:
        mock = MockToolchain("mock", costs_us=one_each, operators=["MatMul", "Relu"], joins=joins)
        return len(partition(model, [mock]).kernels)

    assert (regions(Joins.NONE), regions(Joins.NATIVE), regions(Joins.ANY)) == (4, 2, 1)


def test_a_toolchain_may_bring_its_own_rule() -> None:
    def keep_none(target: Target, default: FusionRule) -> FusionRule:
        table = PatternTable()
        table.predicate("*", lambda node: Unsupported("not today"))
        return default_rule(table, target)

    mock = MockToolchain("mock", costs_us=one_each, rule=keep_none)
    other = MockToolchain("other", costs_us=one_each)

    assert partition(chain("Relu"), [mock, other]).why_not("mock") == [Refused(node="relu_0", reason="not today")]


def test_what_cannot_be_built_costs_its_candidates_only() -> None:
    def cost(candidate: CandidateView) -> Cost | Unsupported:
        if "exp_0" in candidate.nodes:
            return Unsupported("exp overflows the compiler")
        return INVALID if "tanh_0" in candidate.nodes else 1.0

    mock = MockToolchain("mock", costs_us=cost)
    slow = MockToolchain("slow", costs_us=lambda _: 9.0, operators=["Relu", "Exp", "Tanh"])

    result = partition(chain("Relu", "Exp", "Tanh"), [mock, slow])

    assert kernels(result) == [("mock", ("relu_0",)), ("slow", ("exp_0",)), ("slow", ("tanh_0",))]
    assert result.why_not("mock") == [
        Unbuildable(region=1, nodes=("exp_0",), reason="exp overflows the compiler"),
        Unbuildable(region=2, nodes=("tanh_0",), reason="its cost is INVALID"),
    ]


def test_an_operator_without_a_cost_is_refused_and_named() -> None:
    mock = MockToolchain("mock", costs_us={"Relu": 1.0})

    with pytest.raises(NoCoverError, match=r"exp_0.*mock: no cost is given for Exp"):
        partition(chain("Relu", "Exp"), [mock])


def test_a_node_nobody_takes_is_an_error_with_everybody_s_reasons() -> None:
    picky = MockToolchain("picky", costs_us={}, operators=["Relu"])
    absent = MockToolchain("absent", costs_us={}, unusable="no such device")

    with pytest.raises(NoCoverError, match=r"absent: no such device; .*picky: no predicate takes MatMul"):
        partition(single_matmul(2, 2, 2), [picky, absent])


def test_an_unusable_or_failing_toolchain_costs_nothing_else() -> None:
    def fail(target: Target, default: FusionRule) -> FusionRule:
        raise OSError("the licence expired")

    toolchains = [
        MockToolchain("absent", costs_us=one_each, unusable="no such device"),
        MockToolchain("failing", costs_us=one_each, rule=fail),
        MockToolchain("good", costs_us=one_each),
    ]

    result = partition(chain("Relu"), toolchains)

    assert kernels(result) == [("good", ("relu_0",))]
    assert result.why_not("absent") == [Unusable(reason="no such device")]
    [reason] = result.why_not("failing")
    assert isinstance(reason, Unusable)
    assert "OSError: the licence expired" in reason.reason
    with pytest.raises(KeyError, match="'nobody' was not asked"):
        result.why_not("nobody")


def test_targets_that_do_not_mix_share_no_plan() -> None:
    alone = MockToolchain(
        "alone", costs_us={"Relu": 1.0}, targets=[Target(toolchain="alone", fingerprint="1", mixable=False)]
    )
    hostile = MockToolchain(
        "hostile",
        costs_us={"Relu": 1.5},
        operators=["Relu"],
        targets=[Target(toolchain="hostile", fingerprint="1", excludes=frozenset({"other"}))],
    )
    other = MockToolchain("other", costs_us={"Relu": 2.0, "Exp": 2.0}, operators=["Relu", "Exp"])

    result = partition(chain("Relu", "Exp"), [alone, hostile, other])

    assert kernels(result) == [("other", ("relu_0",)), ("other", ("exp_0",))]
    assert NoFit(region=0, reason="hostile cannot share a plan with other") in result.why_not("hostile")
    assert all(isinstance(reason, NoFit) for reason in result.why_not("alone"))


def test_kernels_that_would_wait_for_each_other_are_not_both_taken() -> None:
    pairs = {("b1", "b2"), ("a1", "a2")}

    def cost(candidate: CandidateView) -> Cost | Unsupported:
        return 1.0 if tuple(sorted(candidate.nodes)) in pairs else 10.0

    def regions(name: str, first: str, second: str) -> MockToolchain:
        names = {first, second}
        return MockToolchain(
            name,
            costs_us=cost,
            joins=Joins.ANY,
            predicates={"*": lambda node: Supported() if node.name in names else Unsupported("not mine")},
        )

    result = partition(crossed(), [regions("a", "a1", "a2"), regions("b", "b1", "b2")])

    chosen = [names for _, names in kernels(result)]
    assert result.total_us == 21.0
    assert sorted(map(len, chosen)) == [1, 1, 2]


def test_a_value_that_flows_out_and_back_in_splits_a_region() -> None:
    ends = MockToolchain("ends", costs_us={"Relu": 1.0, "Add": 1.0}, operators=["Relu", "Add"], joins=Joins.ANY)
    middle = MockToolchain("middle", costs_us={"Exp": 1.0, "Tanh": 1.0}, operators=["Exp", "Tanh"], joins=Joins.ANY)

    result = partition(diamond(), [ends, middle])

    assert kernels(result) == [
        ("ends", ("relu_0",)),
        ("middle", ("exp_0", "tanh_0")),
        ("ends", ("add_0",)),
    ]


def test_host_work_costs_nothing_and_lies_inside_or_between() -> None:
    g = GraphBuilder()
    value = g.op("Reshape", g.op("Relu", g.input("x", 2, 3)), g.ints(6))
    model = g.model(g.op("Exp", value))

    fused = partition(model, [MockToolchain("mock", costs_us=per_operator({"Relu": 1, "Exp": 1}, launch_us=1))])
    split = partition(model, [MockToolchain("mock", costs_us={"Relu": 1, "Exp": 1}, operators=["Relu", "Exp"])])

    assert kernels(fused) == [("mock", ("relu_0", "reshape_0", "exp_0"))]
    assert fused.kernels[0].operators == ("Relu", "Reshape", "Exp")
    assert kernels(split) == [("mock", ("relu_0",)), ("mock", ("exp_0",))]
    assert [node.name for node in split.model.graph] == ["k0000", "reshape_0", "k0001"]


def test_a_protobuf_model_is_taken_too_and_neither_is_changed() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[2, 3] x) => (float[2, 3] y) { two = Constant<value_float = 2.0>() a = Mul(x, two) y = Relu(a) }"""
    )
    before = proto.SerializeToString()
    model = onnx_ir.from_proto(proto)
    nodes = [node.op_type for node in model.graph]
    mock = MockToolchain("mock", costs_us={"Mul": 1.0, "Relu": 1.0})

    for given_model in (proto, model):
        [kernel] = partition(given_model, [mock]).kernels
        assert kernel.operators == ("Mul", "Relu")
    assert proto.SerializeToString() == before
    assert [node.op_type for node in model.graph] == nodes


def test_the_model_is_partitioned_as_it_is() -> None:
    g = GraphBuilder()
    model = g.model(g.op("Relu", g.op("Identity", g.input("x", "batch", 3))))
    mock = MockToolchain("mock", costs_us={"Relu": 1.0}, operators=["Relu"])

    with pytest.raises(NoCoverError, match="identity_0"):  # its shape is open, so it is no view
        partition(model, [mock])


def test_names_of_toolchains_are_unique() -> None:
    mock = MockToolchain("mock", costs_us={})
    with pytest.raises(ValueError, match="unique names"):
        partition(chain("Relu"), [mock, mock])


@pytest.mark.parametrize("cost", [-1.0, math.nan])
def test_a_cost_is_a_number_of_microseconds(cost: float) -> None:
    with pytest.raises(ValueError, match="a cost is a number of microseconds"):
        partition(chain("Relu"), [MockToolchain("mock", costs_us=lambda _: cost)])


@given(models(max_operators=8), st.integers(0, 1_000))
@settings(max_examples=25, deadline=None)
def test_any_model_partitions_and_inlines_back(model: onnx_ir.Model, salt: int) -> None:
    def cost(candidate: CandidateView) -> float:
        return 1 + zlib.crc32(repr((salt, candidate.nodes, candidate.target.name)).encode()) % 50 / 10

    single = MockToolchain("single", costs_us=cost, predicates={"*": lambda node: Supported()})
    whole = MockToolchain("whole", costs_us=cost, predicates={"*": lambda node: Supported()}, joins=Joins.ANY)

    result = partition(model, [single, whole])

    inlined = result.model.clone()
    InlinePass()(inlined)
    assert sorted(node.op_type for node in inlined.graph) == sorted(node.op_type for node in model.graph)
    assert result.total_us == pytest.approx(sum(kernel.cost_us for kernel in result.kernels))
    assert len([name for kernel in result.kernels for name in kernel.nodes]) <= len(list(model.graph))


def test_a_seed_gives_one_model() -> None:
    assert str(random_model(3, 12)) == str(random_model(3, 12))
