"""Plans of one kernel for a range: values of sizes that are new are passed by reference, others are bound."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from collage.runtime.session import Session
from collage.runtime.shapes import ranged_session
from collage.runtime.shapes.ranged_session import _BOUND_AT, RangedSession
from collage_core.contract import Artifact, BoundCall, Buffer, Kernel, RunContext, Target, Unsupported, ValueKind
from collage_core.errors import FeedError, KernelError
from collage_core.ir.values.size_range import SizeRange
from collage_core.ir.values.symbolic_sizes import say_sizes
from tests.engine.runtime.mocks import ExecutingMock, partition, reference

Arrays = dict[str, np.ndarray[Any, Any]]


@dataclasses.dataclass
class CountingMock(ExecutingMock):
    """Remembers what kinds of values its kernels are bound to.

    Attributes:
        bound: Kinds of all inputs and outputs, one set for each binding.
        buffers: These inputs and outputs.
        takes_references: Whether its kernels can be bound to values of unknown size.
    """

    bound: list[set[ValueKind]] = dataclasses.field(default_factory=list)
    buffers: list[Buffer] = dataclasses.field(default_factory=list)
    takes_references: bool = True

    def load(self, target: Target, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
        kernel = super().load(target, artifact, run)
        assert not isinstance(kernel, Unsupported)
        bind = kernel.bind

        def noted(inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
            kinds = {buffer.spec.kind for buffer in (*inputs, *outputs)}
            if ValueKind.FOREIGN in kinds and not self.takes_references:
                raise KernelError("addresses, please")
            self.bound.append(kinds)
            self.buffers += [*inputs, *outputs]
            return bind(inputs, outputs, workspace)

        kernel.bind = noted  # type: ignore[method-assign]
        return kernel


@pytest.fixture
def model(parsed: Callable[[str], ir.Model]) -> ir.Model:
    found = parsed("g (float[n,4] x, float[n,4] past) => (float[n,4] y, float[4,n] z) {"
                   " s = Add(x, past) y = Relu(s) z = Transpose<perm=[1,0]>(s) }")  # fmt: skip
    for value in found.graph.inputs:
        say_sizes(value, (SizeRange(1, 40, 8), 4))
    for number, node in enumerate(found.graph):
        node.name = f"node_{number}"
    return found


def opened(model: ir.Model, toolchain: ExecutingMock, *, kernels: int = 1) -> Session:
    names = [node.name or "" for node in model.graph]
    groups = [names] if kernels == 1 else [[name] for name in names]
    session = RangedSession(toolchain.build(partition(model, groups)))
    if isinstance(toolchain, CountingMock):
        toolchain.bound.clear()
    return session


def feeds_of(count: int, seed: int = 0) -> Arrays:
    draw = np.random.default_rng(seed)
    return {name: draw.normal(size=(count, 4)).astype(np.float32) for name in ("x", "past")}


def test_a_size_is_bound_once_it_came_several_times(model: ir.Model) -> None:
    toolchain = CountingMock()
    session = opened(model, toolchain)
    for count in (3, 8, 40, 1):
        for turn in range(_BOUND_AT + 2):
            before = len(toolchain.bound)
            feeds = feeds_of(count, turn)
            for found, right in zip(session.run(None, feeds), reference(model, feeds), strict=True):
                np.testing.assert_array_equal(found, right)
            is_new = count != 8  # the typical size is bound from the beginning
            assert len(toolchain.bound) - before == (is_new and turn == _BOUND_AT)
    assert toolchain.bound == [{ValueKind.PLANNED}] * 3
    assert session.runs_until_bound == _BOUND_AT + 1


def test_many_values_are_never_bound(parsed: Callable[[str], ir.Model]) -> None:
    inputs, outputs = ([f"{stem}{number}" for number in range(5)] for stem in "xy")
    body = " ".join(f"{y} = Neg({x})" for x, y in zip(inputs, outputs, strict=True))
    read, written = (", ".join(f"float[n,4] {name}" for name in names) for names in (inputs, outputs))
    many = parsed(f"g ({read}) => ({written}) {{ {body} }}")
    for value in many.graph.inputs:
        say_sizes(value, (SizeRange(1, 40, 8), 4))
    for number, node in enumerate(many.graph):
        node.name = f"node_{number}"
    toolchain = CountingMock()
    session = opened(many, toolchain)
    for count in (8, 3):  # the typical size is one of them
        for turn in range(_BOUND_AT + 2):
            feeds = {x: np.full((count, 4), turn + place, np.float32) for place, x in enumerate(inputs)}
            for found, x in zip(session.run(None, feeds), inputs, strict=True):
                np.testing.assert_array_equal(found, -feeds[x])

    assert toolchain.bound == []
    assert session.runs_until_bound == 1


def test_results_are_the_callers(model: ir.Model) -> None:
    session = opened(model, ExecutingMock())
    held = []
    for turn in range(60):
        feeds = feeds_of(1 + turn % 7, turn)
        held.append((feeds, session.run(None, feeds)))
        held[-1][1][0][:] += 1
    for feeds, (y, z) in held:
        right = reference(model, feeds)
        np.testing.assert_array_equal(y, right[0] + 1)
        np.testing.assert_array_equal(z, right[1])


def test_nothing_of_a_call_stays_behind(model: ir.Model) -> None:
    session = opened(model, ExecutingMock())
    feeds = feeds_of(5)
    [z] = session.run(["z"], feeds)
    alive = [weakref.ref(array) for array in (*feeds.values(), z)]
    del feeds, z

    assert [each() for each in alive] == [None] * len(alive)


def test_an_error_leaves_nothing_behind_either(model: ir.Model) -> None:
    toolchain = ExecutingMock()
    [site] = toolchain.lower_all(partition(model, [[node.name or "" for node in model.graph]]))
    toolchain.fail = site
    session = opened(model, toolchain)
    feeds = feeds_of(5)
    with pytest.raises(KernelError, match="out of luck"):
        session.run(None, feeds)
    alive = [weakref.ref(array) for array in feeds.values()]
    del feeds

    assert [each() for each in alive] == [None, None]


@pytest.mark.parametrize(
    "form",
    [
        np.asfortranarray,
        lambda array: np.repeat(array, 2, axis=0)[::2],
        lambda array: np.frombuffer(b"\0" + array.tobytes(), np.uint8)[1:].view(np.float32).reshape(array.shape),
        lambda array: array.tolist(),
    ],
    ids=["fortran", "strides", "unaligned", "lists"],
)
def test_arrays_of_any_form_are_read_as_they_are(form: Callable[[Any], Any], model: ir.Model) -> None:
    bound: list[Any] = []

    @dataclasses.dataclass
    class Looking(CountingMock):
        def load(self, target: Target, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
            kernel = super().load(target, artifact, run)
            assert not isinstance(kernel, Unsupported)
            bind = kernel.bind

            def looking(inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
                call = bind(inputs, outputs, workspace)

                def look() -> None:
                    bound.extend(buffer.array.flags for buffer in inputs)
                    call()

                return look

            kernel.bind = looking  # type: ignore[method-assign]
            return kernel

    session = opened(model, Looking())
    feeds = feeds_of(6)
    found = session.run(None, {"x": form(feeds["x"]), "past": feeds["past"]})

    for one, right in zip(found, reference(model, feeds), strict=True):
        np.testing.assert_array_equal(one, right)
    assert bound
    assert all(flags.c_contiguous and flags.aligned for flags in bound)


def test_an_output_asked_for_twice_is_two_arrays(model: ir.Model) -> None:
    session = opened(model, ExecutingMock())
    feeds = feeds_of(6)
    first, z, second = session.run(["y", "z", "y"], feeds)

    assert not np.shares_memory(first, second)
    right = reference(model, feeds)
    np.testing.assert_array_equal(first, right[0])
    np.testing.assert_array_equal(second, right[0])
    np.testing.assert_array_equal(z, right[1])


def test_what_is_wrong_with_an_input_is_said(model: ir.Model) -> None:
    session = opened(model, ExecutingMock())
    right = feeds_of(6)
    for wrong, said in (
        (np.ones((6, 5), np.float32), r"'past'.*expected float32\[\?, 4\], got float32\[6, 5\]"),
        (np.ones((6, 4)), r"'past'.*got float64\[6, 4\]"),
        (np.ones((5, 4), np.float32), r"'past'.*makes n 5, which is 6"),
    ):
        with pytest.raises(FeedError, match=said):
            session.run(None, right | {"past": wrong})


def test_a_kernel_that_needs_addresses_is_bound(model: ir.Model) -> None:
    toolchain = CountingMock(takes_references=False)
    session = opened(model, toolchain)
    feeds = feeds_of(6)
    np.testing.assert_array_equal(session.run(None, feeds)[0], reference(model, feeds)[0])

    assert toolchain.bound == [{ValueKind.PLANNED}]


def test_plans_of_several_kernels_are_bound(model: ir.Model) -> None:
    toolchain = CountingMock()
    session = opened(model, toolchain, kernels=3)
    feeds = feeds_of(6)
    np.testing.assert_array_equal(session.run(None, feeds)[1], reference(model, feeds)[1])

    assert toolchain.bound == [{ValueKind.PLANNED}] * 3


def test_what_works_on_set_inputs_is_bound(model: ir.Model) -> None:
    toolchain = CountingMock()
    session = opened(model, toolchain)
    feeds = feeds_of(6)
    right = reference(model, feeds)
    session.set_inputs(feeds)
    feeds["x"][:] = 0

    np.testing.assert_array_equal(session.run_bound()[0], right[0])
    assert toolchain.bound == [{ValueKind.PLANNED}]


def test_a_size_that_follows_from_another_is_checked_each_time(parsed: Callable[[str], ir.Model]) -> None:
    model = parsed("g (float[n,4] x, float[m,4] past) => (float[k,4] y) { y = Concat<axis=0>(x, past) }")
    x, past = model.graph.inputs
    past.shape = ir.Shape([ir.SymbolicDim("n + 1"), 4])
    say_sizes(x, (SizeRange(1, 40, 8), 4))
    say_sizes(past, (SizeRange(2, 41, 9), 4))
    for number, node in enumerate(model.graph):
        node.name = f"node_{number}"
    session = opened(model, ExecutingMock())
    for _ in range(_BOUND_AT + 2):
        with pytest.raises(FeedError, match=r"'past'.*its shape \[9, 4\] is not \[7, 4\], as the other inputs make it"):
            session.run(None, {"x": np.ones((6, 4), np.float32), "past": np.ones((9, 4), np.float32)})
        [y] = session.run(None, {"x": np.ones((6, 4), np.float32), "past": np.ones((7, 4), np.float32)})
        assert y.shape == (13, 4)


def test_what_is_a_view_of_an_output_is_handed_over(parsed: Callable[[str], ir.Model]) -> None:
    model = parsed("g (float[n,4] x) => (float[1,4] y) <int64[1] axes = {0}> {"
                   " s = ReduceSum<keepdims=0>(x, axes) y = Unsqueeze(s, axes) }")  # fmt: skip
    say_sizes(model.graph.inputs[0], (SizeRange(1, 40, 8), 4))
    for number, node in enumerate(model.graph):
        node.name = f"node_{number}"
    toolchain = CountingMock()
    executable = toolchain.build(partition(model))
    assert executable.by_reference().handed_over == {"y"}
    session = RangedSession(executable)
    toolchain.bound.clear()
    x = feeds_of(5)["x"]
    held = [session.run(None, {"x": x + turn})[0] for turn in range(3)]

    assert toolchain.bound == [], "it is passed by reference"
    for turn, y in enumerate(held):
        np.testing.assert_allclose(y, (x + turn).sum(0, keepdims=True), rtol=1e-6)
    alive = [weakref.ref(array) for each in (x, *held) for array in (each, each.base) if array is not None]
    del x, y, held
    assert [each() for each in alive] == [None] * len(alive)


def test_what_passes_between_kernels_is_kept_no_longer_than_the_run(model: ir.Model) -> None:
    toolchain = CountingMock()
    names = [node.name or "" for node in model.graph]
    executable = toolchain.build(partition(model, [[name] for name in names])).by_reference()
    session = Session(executable)
    feeds = feeds_of(5)

    for found, right in zip(session.run(None, feeds), reference(model, feeds), strict=True):
        np.testing.assert_array_equal(found, right)

    passed = [buffer for buffer in toolchain.buffers if buffer.spec.kind is ValueKind.FOREIGN]
    assert {buffer.spec.name for buffer in passed} == {"x", "past", "s", "y", "z"}
    assert [buffer.value for buffer in passed] == [None] * len(passed)


def test_nothing_of_a_run_that_fails_is_kept(model: ir.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second output's kernel fails once the first one's has put what it made."""
    names = [node.name or "" for node in model.graph]
    executable = ExecutingMock().build(partition(model, [names[:2], names[2:]])).by_reference()
    session = Session(executable)
    put: list[weakref.ref[Any]] = []
    first, second = session._default.steps

    def failing() -> None:
        first.call()
        put.append(weakref.ref(session._default.output_buffers["y"].value))
        raise RuntimeError("no more")

    monkeypatch.setattr(session._default, "call", failing)
    with pytest.raises(KernelError, match="no more"):
        session.run(None, feeds_of(5))

    assert second.name
    assert [each() for each in put] == [None]


def test_what_was_set_is_there_again_after_a_run(model: ir.Model) -> None:
    """Of a plan whose input sizes do not follow from any symbol, inputs are foreign where they are bound, too."""
    executable = ExecutingMock().build(partition(model, [[node.name or "" for node in model.graph]]))
    session = Session(executable.by_reference())
    first, second = feeds_of(5, 1), feeds_of(7, 2)
    session.set_inputs(first)
    alive = [weakref.ref(array) for array in second.values()]
    right = reference(model, first)

    session.run(None, second)
    del second

    assert [each() for each in alive] == [None, None]
    np.testing.assert_array_equal(session.run_bound()[0], right[0])


def test_sizes_that_are_bound_no_more_are_passed_by_reference_again(
    model: ir.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranged_session, "_KEPT_SIZES", 2)
    toolchain = CountingMock()
    session = opened(model, toolchain)
    for _ in range(_BOUND_AT + 1):
        for count in (3, 5, 7, 9):
            session.run(None, feeds_of(count))
    toolchain.bound.clear()

    session.run(None, feeds_of(3))  # which was bound, and made room for others

    assert toolchain.bound == []
