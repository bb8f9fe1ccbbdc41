"""What a session hands out is never written while anybody has it, and is written again afterwards."""

from __future__ import annotations

import copy
import gc
import pickle  # noqa: TID251  users pickle results
import random
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage.runtime import session as session_module
from collage.runtime.calling.lending import IDLE_BLOCKS, LENT_BYTES
from collage.runtime.session import Session
from collage.runtime.shapes.ranged_session import RangedSession
from collage_core.contract import BoundCall, Buffer
from collage_core.errors import KernelRunError
from collage_core.ir.values.size_range import SizeRange
from collage_core.ir.values.symbolic_sizes import say_sizes
from collage_testing.kit import FakeDevice
from tests.engine.runtime.fakes import build, on, split
from tests.engine.runtime.mocks import ExecutingMock, MockKernel, partition

Parse = Callable[[str], ir.Model]
Array = np.ndarray[Any, Any]

NEG = "g (float[2,3] x) => (float[2,3] y) { y = Neg(x) }"
NBYTES = 24
X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(autouse=True)
def everything_is_lent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "LENT_BYTES", 1)


def session_of(model: ir.Model, toolchain: ExecutingMock | None = None) -> Session:
    return Session((toolchain or ExecutingMock()).build(partition(model)))


def run(session: Session, number: int) -> Array:
    [y] = session.run(None, {"x": X + number})
    assert isinstance(y, np.ndarray)
    return y


VIEWS: dict[str, Callable[[Array], Any]] = {
    "itself": lambda y: y,
    "a slice": lambda y: y[1:],
    "a view of a view": lambda y: y.reshape(-1)[::2][1:],
    "its transpose": lambda y: y.T,
    "other bytes": lambda y: y.view(np.int32),
    "its memory": lambda y: y.data,
    "a DLPack import": np.from_dlpack,
    "an array over its memory": lambda y: np.frombuffer(y, np.float32),
    "its iterator": lambda y: y.flat,
}


@pytest.mark.guards(
    "results of `run` are held for random times, as arrays, views, slices, memoryviews or DLPack imports",
    "no later run writes them; memory is what callers hold and two idle blocks of each output",
    area="sessions",
)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_nothing_held_is_overwritten_in_any_order(data: st.DataObject) -> None:
    draw: Callable[..., Any] = data.draw
    session = session_of(ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 21]> {NEG}'))
    held: list[tuple[Any, bytes]] = []
    for number in range(draw(st.integers(1, 12), label="runs")):
        y = run(session, number)
        np.testing.assert_array_equal(y, -(X + number))
        kept = VIEWS[draw(st.sampled_from(sorted(VIEWS)), label="kept")](y)
        held.append((kept, bytes_of(kept)))
        del y, kept
        while held and draw(st.booleans(), label="release"):
            del held[draw(st.integers(0, len(held) - 1), label="which")]
        assert [bytes_of(kept) for kept, _ in held] == [expected for _, expected in held]
        assert session.output_bytes <= (len(held) + IDLE_BLOCKS) * NBYTES
    held.clear()
    assert session.output_bytes <= IDLE_BLOCKS * NBYTES


def bytes_of(kept: Any) -> bytes:
    return bytes(np.ascontiguousarray(kept.base if isinstance(kept, np.flatiter) else kept))


@pytest.mark.parametrize("name", VIEWS)
def test_whatever_shares_a_results_memory_keeps_it(parsed: Parse, name: str) -> None:
    session = session_of(parsed(NEG))
    kept = VIEWS[name](run(session, 0))
    expected = bytes_of(kept)

    for number in range(1, 5):
        run(session, number)
    gc.collect()

    assert bytes_of(kept) == expected
    held = session.output_bytes
    del kept
    for number in range(1, 5):
        run(session, number)
    assert session.output_bytes <= held


def test_a_released_result_is_written_again(parsed: Parse) -> None:
    session = session_of(parsed(NEG))

    addresses = {run(session, number).ctypes.data for number in range(20)}

    assert len(addresses) == 1
    assert session.output_bytes == NBYTES


def test_a_loop_that_keeps_its_last_result_takes_two_blocks(parsed: Parse) -> None:
    session = session_of(parsed(NEG))

    y = run(session, 0)
    for number in range(1, 20):
        y = run(session, number)

    np.testing.assert_array_equal(y, -(X + 19))
    assert session.output_bytes == 2 * NBYTES


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda y: pickle.loads(pickle.dumps(y))],  # noqa: S301
    ids=["copy", "deepcopy", "pickle"],
)
def test_a_copy_of_a_result_does_not_hold_it(parsed: Parse, copied: Callable[[Array], Array]) -> None:
    session = session_of(parsed(NEG))

    copies = [copied(run(session, number)) for number in range(5)]

    assert session.output_bytes == NBYTES
    for number, each in enumerate(copies):
        np.testing.assert_array_equal(each, -(X + number))


def test_a_result_is_its_holders_to_change(parsed: Parse) -> None:
    session = session_of(parsed(NEG))

    first = run(session, 0)
    first += 100
    second = run(session, 1)

    np.testing.assert_array_equal(first, 100 - X)
    np.testing.assert_array_equal(second, -(X + 1))


def test_a_result_in_a_cycle_is_released_by_the_garbage_collector(parsed: Parse) -> None:
    session = session_of(parsed(NEG))
    gc.disable()  # or it runs within the loop, when other tests have left it near its threshold
    try:
        for number in range(10):
            cycle: list[Any] = [run(session, number)]
            cycle.append(cycle)
        del cycle
        assert session.output_bytes == 10 * NBYTES
    finally:
        gc.enable()

    gc.collect()

    assert session.output_bytes == IDLE_BLOCKS * NBYTES


def test_a_result_outlives_its_session(parsed: Parse) -> None:
    session = session_of(parsed(NEG))
    y = run(session, 3)
    gone = weakref.ref(session)

    del session
    gc.collect()

    assert gone() is None
    np.testing.assert_array_equal(y, -(X + 3))


def test_another_librarys_tensor_keeps_a_result(parsed: Parse) -> None:
    torch = pytest.importorskip("torch")
    session = session_of(parsed(NEG))
    tensors = [torch.from_dlpack(run(session, 0)), torch.from_numpy(run(session, 1))]

    for number in range(2, 6):
        run(session, number)

    assert [tensor.tolist() for tensor in tensors] == [(-X).tolist(), (-(X + 1)).tolist()]
    tensors.clear()
    assert session.output_bytes <= (1 + IDLE_BLOCKS) * NBYTES


@pytest.mark.guards(
    "a kernel fails while a session runs", "its outputs' memory is used by the next run", area="sessions"
)
def test_a_failing_kernel_gives_its_block_back(parsed: Parse, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels: list[MockKernel] = []
    bind = MockKernel.bind

    def bound(kernel: MockKernel, *buffers: Any) -> BoundCall:
        kernels.append(kernel)
        return bind(kernel, *buffers)

    monkeypatch.setattr(MockKernel, "bind", bound)
    session = session_of(parsed(NEG))
    for kernel in kernels:
        kernel.fail = True

    errors = []
    for number in range(5):
        with pytest.raises(KernelRunError) as error:
            run(session, number)
        errors.append(error)  # their tracebacks hold the frames of the runs

    assert session.output_bytes == NBYTES
    for kernel in kernels:
        kernel.fail = False
    np.testing.assert_array_equal(run(session, 7), -(X + 7))


def test_a_result_released_while_the_session_runs_blocks_nobody(parsed: Parse, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finalizer that took the session's lock would wait for itself here."""
    held: list[Array] = []
    bind = MockKernel.bind

    def bound(kernel: MockKernel, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Any) -> BoundCall:
        call = bind(kernel, inputs, outputs, workspace)

        def releasing() -> None:
            held.clear()
            call()

        return releasing

    monkeypatch.setattr(MockKernel, "bind", bound)
    session = session_of(parsed(NEG))

    for number in range(5):
        held += [run(session, number)]

    np.testing.assert_array_equal(held[0], -(X + 4))
    assert session.output_bytes == 2 * NBYTES


def test_an_output_nobody_asked_for_is_held_by_nobody(parsed: Parse) -> None:
    session = session_of(
        parsed("g (float[2,3] x) => (float[2,3] y, float[3,2] t) { y = Neg(x) t = Transpose<perm = [1, 0]>(x) }")
    )

    held = [session.run(["t"], {"x": X + number})[0] for number in range(6)]

    assert session.output_bytes == (1 + 6) * NBYTES
    for number, t in enumerate(held):
        np.testing.assert_array_equal(t, (X + number).T)


@pytest.mark.parametrize(
    "text",
    [
        "g (float[2,3] x) => (float[2,3] y, float[2,3] y) { y = Neg(x) }",
        "g (float[2,3] x) => (float[2,3] y, float[2,3] z) { y = Neg(x) z = Identity(y) }",
        "g (float[2,3] x) => (float[2,3] y, float[2,3] z) { y = Identity(x) z = Identity(x) }",
        "g (float[2,3] x) => (float[2,3] x, float[6] z) <int64[1] s = {6}> { z = Reshape(x, s) }",
        "g (float[2,3] x) => (float[2,3] y, float[2] w) <float[2] w = {1, 2}> { y = Neg(x) }",
    ],
    ids=["one output twice", "an output and a view of it", "an input twice", "an input and a view", "a constant"],
)
def test_results_share_no_memory(parsed: Parse, text: str) -> None:
    session = session_of(parsed(text))
    x = X.copy()

    arrays = [array for _ in range(4) for array in session.run(None, {"x": x})]
    values = [array.copy() for array in arrays]

    for one in range(len(arrays)):
        assert not np.shares_memory(arrays[one], x)
        arrays[one].fill(one)
        values[one].fill(one)
        for array, value in zip(arrays, values, strict=True):
            np.testing.assert_array_equal(array, value)
    again = session.run(None, {"x": x})
    np.testing.assert_array_equal(again[0], X if "=> (float[2,3] x" in text or "Identity(x)" in text else -X)


def test_an_output_asked_for_twice_comes_twice(parsed: Parse) -> None:
    session = session_of(parsed(NEG))

    one, other = session.run(["y", "y"], {"x": X})
    one.fill(0)

    np.testing.assert_array_equal(other, -X)


def test_values_without_a_planned_place_are_copied(parsed: Parse) -> None:
    session = session_of(
        parsed("g (float[N] x) => (float[N] y, seq(float[N]) q) { y = Neg(x) q = SequenceConstruct(x) }")
    )

    results = [session.run(None, {"x": np.full(n, n, np.float32)}) for n in (1, 4, 2)]

    for n, (y, [member]) in zip((1, 4, 2), results, strict=True):
        np.testing.assert_array_equal(y, np.full(n, -n))
        np.testing.assert_array_equal(member, np.full(n, n))
    assert session.output_bytes == 0


def test_small_outputs_and_those_of_devices_are_copied(parsed: Parse, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = on("fake:0")
    model = parsed("g (float[2,3] x) => (float[2,3] y) { [neg] y = Neg(x) }")
    on_device = Session(build(split(model, {"neg": fake}), [fake], FakeDevice()))
    monkeypatch.setattr(session_module, "LENT_BYTES", LENT_BYTES)
    small = session_of(parsed(NEG))

    for session in (on_device, small):
        results = [run(session, number) for number in range(4)]
        for number, y in enumerate(results):
            np.testing.assert_array_equal(y, -(X + number))
            assert y.flags.owndata
        assert session.output_bytes == 0


@pytest.mark.guards(
    "eight threads hold their results for random times, of one session and of clones",
    "every result stays as it was",
    area="sessions",
)
@pytest.mark.parametrize("part", [lambda session: session, Session.clone], ids=["one session", "clones"])
def test_eight_threads_hold_their_results_for_random_times(parsed: Parse, part: Callable[[Session], Session]) -> None:
    session = session_of(parsed("g (float[2,3] x) => (float[2,3] y, float[2,3] z) { y = Neg(x) z = Add(y, y) }"))
    wrong: list[int] = []

    def work(thread: int) -> None:
        mine, rng = part(session), random.Random(thread)
        held: list[tuple[int, Array, Array]] = []
        for turn in range(30):
            number = 1000 * thread + turn
            y, z = mine.run(None, {"x": X + number})
            held.append((number, *rng.choice([(y, z), (y[:], z.T.T), (y.reshape(2, 3), np.from_dlpack(z))])))
            del y, z
            while held and rng.random() < 0.45:
                del held[rng.randrange(len(held))]
            wrong.extend(
                number
                for number, y, z in held
                if not (np.array_equal(y, -(X + number)) and np.array_equal(z, -2 * (X + number)))
            )

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert session.output_bytes <= 2 * IDLE_BLOCKS * NBYTES


def test_a_small_result_of_a_plan_for_a_range_holds_no_large_block(parsed: Parse) -> None:
    model = parsed("g (float[n,4] x) => (float[n,4] y) { a = Neg(x) y = Neg(a) }")
    say_sizes(model.graph.inputs[0], (SizeRange(1, 4096, 8), 4))
    session = RangedSession(ExecutingMock().build(partition(model)))
    large = np.zeros((4096, 4), np.float32)
    held: list[Array] = []

    for turn in range(40):
        session.run(None, {"x": large})
        held += session.run(None, {"x": np.full((5 + turn % 7, 4), turn, np.float32)})

    assert session.output_bytes <= 2 * sum(y.nbytes for y in held) + 8 * large.nbytes
    for turn, y in enumerate(held):
        np.testing.assert_array_equal(y, np.full((5 + turn % 7, 4), turn, np.float32))
    held.clear()
    assert session.output_bytes <= 8 * large.nbytes
