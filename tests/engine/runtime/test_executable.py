from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir
import pytest

from collage.runtime import Executable
from collage.runtime.session import Session
from collage_core.contract import (
    Artifact,
    BoundCall,
    Buffer,
    Kernel,
    RunContext,
    Target,
    Unsupported,
)
from collage_core.errors import KernelRunError
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from tests.engine.runtime.mocks import MOCK, ExecutingMock, partition, reference
from tests.engine.runtime.running import X, assert_same, run

Parse = Callable[[str], ir.Model]


@pytest.mark.parametrize("seed", range(25))
def test_a_random_partitioning_computes_what_the_model_does(random_model: Callable[..., ir.Model], seed: int) -> None:
    model = random_model(seed, 10)
    rng = random.Random(seed)
    graph = DataflowGraph(model)
    order = list(iterate_bits(graph.needs_kernel))
    groups: list[list[str]] = []
    covered = 0
    while order:  # runs of neighbours in topological order never depend on each other in a cycle
        size = rng.choice([1, 1, 2, 3, 5])
        mask = graph.completed(sum(1 << index for index in order[:size]))
        groups.append([graph.names[index] for index in iterate_bits(mask)])
        covered |= mask
        del order[:size]
    toolchain = ExecutingMock(embed=rng.random() < 0.5, workspace_bytes=rng.choice([0, 100]))
    session = Session(toolchain.build(partition(model, groups)))

    for _ in range(2):
        draw = np.random.default_rng(rng.randrange(1000))
        feeds = {name: draw.normal(size=(4, 4)).astype(np.float32) for name in ("x", "z")}
        assert_same(session.run(None, feeds), reference(model, feeds))


def test_values_inside_share_one_arena(parsed: Parse) -> None:
    chain = "\n".join(f"v{step + 1} = Neg(v{step})" for step in range(10))
    model = parsed(f"g (float[64] v0) => (float[64] v10) {{ {chain} }}")

    executable = ExecutingMock().build(partition(model))

    assert executable.arena_bytes == 2 * 256


def test_views_cost_nothing_and_share_memory(parsed: Parse) -> None:
    model = partition(
        parsed("""g (float[2,3] x) => (float[2,3] y) <int64[1] flat = {6}, int64[2] back = {3,2}, int64[2] same = {2,3}>
        { a = Neg(x) b = Reshape(a, flat) c = Reshape(b, back) d = Abs(c) y = Reshape(d, same) }""")
    )
    executable = ExecutingMock().build(model)
    bound = executable.bind()

    assert [step.name for step in bound.steps] == ["k0000", "k0001"]
    assert executable.arena_bytes == 64
    assert_same(Session(executable).run(None, {"x": X}), [np.abs(X.reshape(3, 2)).reshape(2, 3)])


@pytest.mark.parametrize(
    "graph",
    [
        # an output that is a view of an input, of a constant, of another output
        "g (float[2,3] x) => (float[6] y) <int64[1] flat = {6}> { y = Reshape(x, flat) }",
        "g (float[2,3] x) => (float[2,3] y, float[2] z) <float[2] w = {1.0, 2.0}> { y = Neg(x) z = Identity(w) }",
        """g (float[2,3] x) => (float[2,3] y, float[6] z) <int64[1] flat = {6}>
        { y = Neg(x) z = Reshape(y, flat) }""",
        # an inside value and its view both read on, the view being an output
        """g (float[2,3] x) => (float[6] y, float[2,3] z) <int64[1] flat = {6}>
        { a = Neg(x) y = Reshape(a, flat) b = Abs(a) c = Exp(y) d = Reshape(c, two) z = Add(b, d) }""".replace(
            "{6}>", "{6}, int64[2] two = {2,3}>"
        ),
        # a value read twice by one kernel, and a view of an input read by a kernel
        "g (float[2,3] x) => (float[2,3] y) { a = Neg(x) y = Mul(a, a) }",
        "g (float[2,3] x) => (float[3,2] y) <int64[2] s = {3,2}> { a = Reshape(x, s) y = Neg(a) }",
    ],
)
def test_outputs_that_are_views(parsed: Parse, graph: str) -> None:
    model = parsed(graph)

    assert_same(run(partition(model), {"x": X}), reference(model, {"x": X}))


def test_an_input_passed_through_and_a_weight_given_out(parsed: Parse) -> None:
    model = parsed("g (float[2,3] x) => (float[2,3] y) <float[2] w = {1.0, 2.0}> { y = Neg(x) }")
    model.graph.outputs.extend([model.graph.inputs[0], model.graph.initializers["w"]])
    session = Session(ExecutingMock().build(partition(model)))

    for scale in (1, 2):
        y, x, w = session.run(None, {"x": X * scale})
        assert_same([y, x, w], [-X * scale, X * scale, np.array([1, 2], np.float32)])
        w[:] = 0  # what a caller does to its copies stays with the caller


def test_an_output_listed_twice(parsed: Parse) -> None:
    model = parsed("g (float[2,3] x) => (float[2,3] y) { y = Neg(x) }")
    partitioned = partition(model)
    partitioned.graph.outputs.append(partitioned.graph.outputs[0])

    assert_same(run(partitioned, {"x": X}), [-X, -X])


def test_scalars_and_tensors_without_elements(parsed: Parse) -> None:
    model = parsed("""g (float x, float[0,3] e) => (float y, float[0,3] z, float[3] s)
    <int64[1] zero = {0}> { a = Neg(x) y = Exp(a) b = Neg(e) z = Abs(b) s = ReduceSum<keepdims=0>(b, zero) }""")
    feeds = {"x": np.float32(2), "e": np.zeros((0, 3), np.float32)}

    assert_same(run(partition(model), feeds), reference(model, feeds))


def test_a_shape_known_only_after_running(parsed: Parse) -> None:
    model = parsed("""g (float[1,6,4] boxes, float[1,2,6] scores) => (int64[n,3] y, int64[m,3] z)
    <int64[1] most = {4}, float[1] iou = {0.5}, float[1] score = {0.4}>
    { y = NonMaxSuppression(boxes, scores, most, iou, score) a = Add(y, y) b = Identity(a) z = Neg(b) }""")
    session = Session(ExecutingMock().build(partition(model)))
    rng = np.random.default_rng(0)
    shapes = set()
    for _ in range(6):
        corner = rng.random((1, 6, 2)).astype(np.float32) * 4
        boxes = np.concatenate([corner, corner + 1], -1)
        feeds = {"boxes": boxes, "scores": rng.random((1, 2, 6)).astype(np.float32)}
        got = session.run(None, feeds)
        assert_same(got, reference(model, feeds))
        shapes.add(got[0].shape)
    assert len(shapes) > 1


def test_strings_and_sequences_pass_between_kernels(parsed: Parse) -> None:
    model = parsed("""g (string[2] s, float[2,3] x) => (string[2] t, seq(float[2,3]) q, float[2,3] y)
    <int64 one = {1}> { u = Identity(s) t = Identity(u) a = Neg(x) q = SequenceConstruct(a, x) b = Neg(a)
      y = SequenceAt(q, one) }""")
    feeds = {"s": np.array(["p", "qr"], object), "x": X}

    assert_same(run(partition(model), feeds), reference(model, feeds))


def test_control_flow_reads_what_it_captures(parsed: Parse) -> None:
    model = parsed("""g (float[2,3] x, bool c) => (float[2,3] y) <float[3] w = {1.0, 2.0, 3.0}> {
    a = Neg(x)
    y = If(c) <then_branch = t () => (float[2,3] p) { p = Add(a, w) },
    else_branch = e () => (float[2,3] q) { q = Abs(a) }>
    }""")
    session = Session(ExecutingMock(embed=False).build(partition(model)))

    for condition in (True, False):
        feeds = {"x": X, "c": np.array(condition)}
        assert_same(session.run(None, feeds), reference(model, feeds))


def test_a_plan_of_one_kernel_is_that_kernels_own_call(parsed: Parse) -> None:
    toolchain = ExecutingMock()
    made: list[BoundCall] = []

    class Recorded:
        def __init__(self, kernel: Kernel) -> None:
            self.kernel = kernel

        def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
            made.append(self.kernel.bind(inputs, outputs, workspace))
            return made[-1]

    def load(target: Target, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
        kernel = toolchain.load(target, artifact, run)
        return kernel if isinstance(kernel, Unsupported) else Recorded(kernel)

    model = parsed("g (float[2,3] x) => (float[2,3] y) { a = Neg(x) y = Exp(a) }")
    model = partition(model, [DataflowGraph(model).names])
    artifacts = toolchain.lower_all(model)
    executable = Executable.build(model, artifacts, {"k0000": MOCK}, load, threads=1)

    assert executable.bind().call is made[-1]


def test_a_failing_kernel_is_named(parsed: Parse) -> None:
    model = parsed("g (float[2,3] x) => (float[2,3] y) { a = Neg(x) y = Exp(a) }")
    for groups, site in ((None, "k0001"), ([DataflowGraph(model).names], "k0000")):
        with pytest.raises(KernelRunError, match="out of luck") as caught:
            run(partition(model, groups), {"x": X}, ExecutingMock(fail=site))
        assert (caught.value.site, caught.value.target) == (site, "mock")
        assert caught.value.nodes


def test_a_profile_names_every_step(parsed: Parse) -> None:
    model = parsed("""g (float[2,3] x) => (float[2,3] y, float[6] z) <int64[1] flat = {6}>
    { a = Neg(x) y = Exp(a) z = Reshape(x, flat) }""")

    profile = ExecutingMock().build(partition(model)).bind().profile(runs=4)

    assert [(step.name, step.target) for step in profile.steps] == [
        ("k0000", "mock"),
        ("k0001", "mock"),
        ("copy z", "host"),
    ]
    assert all(len(step.samples_us) == 4 and step.median_us > 0 for step in profile.steps)
    events = profile.chrome_trace()["traceEvents"]
    assert [event["ph"] for event in events].count("X") == 12
    assert {event["tid"] for event in events} == {0, 1}


def test_views_of_values_that_move_are_made_in_every_run(parsed: Parse) -> None:
    model = partition(
        parsed("""g (float[2,3] x, string[2] s) => (int64[2,n] y, string[2] t)
        { y = NonZero(x) t = Identity(s) }""")
    )
    graph = model.graph
    [y, t] = graph.outputs
    axis = ir.Value(name="axes", const_value=ir.tensor(np.array([0]), name="axes"), shape=ir.Shape([1]))
    axis.dtype = ir.DataType.INT64
    graph.register_initializer(axis)
    views = [
        ir.Node("", "Unsqueeze", [y, axis], name="of_bounded"),
        ir.Node("", "Identity", [t], name="of_foreign"),
        ir.Node("", "Identity", [graph.inputs[0]], name="foreign_of_planned"),
    ]
    bounded, foreign, kept = (view.outputs[0] for view in views)
    bounded.name, bounded.type, bounded.shape = "p", y.type, ir.Shape([1, 2, None])
    bounded.metadata_props["collage.bound"] = "[1, 2, 6]"
    foreign.name, foreign.type, foreign.shape = "q", t.type, t.shape
    kept.name, kept.type = "r", graph.inputs[0].type
    graph.extend(views)
    graph.outputs.extend([bounded, foreign, kept])
    executable = ExecutingMock().build(model)
    bound = executable.bind()

    assert [step.target for step in bound.steps[-3:]] == ["host"] * 3
    for x in (X, np.abs(X)):
        text = np.array(["a", "b"], object)
        bound.input_buffers["x"].put(x)
        bound.input_buffers["s"].put(text)
        bound.run()
        np.testing.assert_array_equal(bound.outputs["p"], np.stack(np.nonzero(x))[None])
        assert bound.outputs["q"].tolist() == ["a", "b"]
        np.testing.assert_array_equal(bound.outputs["r"], x)
        assert not np.shares_memory(bound.outputs["r"], bound.inputs["x"])


def test_views_are_told_apart_without_names(parsed: Parse) -> None:
    model = parsed("""g (float[n] x, float[m] y) => (float[n] p, float[m] q)
    { a = Identity(x) b = Identity(y) c = Identity(a) d = Identity(b) p = Identity(c) q = Identity(d) }""")
    x, y = np.ones(2, np.float32), np.zeros(3, np.float32)

    assert not any(node.name for node in model.graph)
    assert_same(run(model, {"x": x, "y": y}), [x, y])


def test_a_view_named_as_a_kernel_is_takes_nothing_from_it(parsed: Parse) -> None:
    model = parsed("""g (float[2,3] x, string[2] s) => (float[2,3] y, string[2] t)
    { a = Neg(x) b = Abs(a) y = Exp(b) t = Identity(s) }""")
    partitioned = partition(model)
    *_, text = partitioned.graph.outputs
    for kernel in list(partitioned.graph):
        view = ir.Node("", "Identity", [text], name=kernel.name)
        [text] = view.outputs
        text.name, text.type, text.shape = f"of {kernel.name}", ir.TensorType(ir.DataType.STRING), ir.Shape([2])
        partitioned.graph.append(view)
    partitioned.graph.outputs.append(text)
    s = np.array(["a", "b"], object)

    got = run(partitioned, {"x": X, "s": s}, ExecutingMock(workspace_bytes=64))

    assert_same(got, [np.exp(np.abs(X)), s, s])
