"""Large inputs are read where the caller has them, if a kernel can read them there."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from collage.runtime import session as session_module
from collage.runtime.calling import feeds, rebinding
from collage.runtime.session import Session
from collage_core.contract import BoundCall, Buffer, ValueKind
from collage_core.errors import KernelError, KernelLoadError
from tests.engine.runtime.mocks import ExecutingMock, MockKernel, partition

Parse = Callable[[str], ir.Model]
Array = np.ndarray[Any, Any]

X = np.arange(6, dtype=np.float32).reshape(2, 3)
NEG = "g (float[2,3] x) => (float[2,3] y) { y = Neg(x) }"
CHAIN = "g (float[2,3] x, float[2,3] z) => (float[2,3] y) { a = Neg(x) b = Abs(a) c = Add(b, z) y = Sub(c, x) }"


class Watched:
    """Addresses of the inputs of kernels: those bound, and those read by each call."""

    def __init__(self) -> None:
        self.binds = 0
        self.read: list[int] = []
        self.needs_alignment = 1


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Everything is lent, and read in place at once."""
    monkeypatch.setattr(feeds, "READ_IN_PLACE_BYTES", 1)
    monkeypatch.setattr(feeds, "READ_AT_ONCE_BYTES", 1)
    monkeypatch.setattr(session_module, "LENT_BYTES", 1)
    seen, bind = Watched(), MockKernel.bind

    def bound(kernel: MockKernel, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Any) -> BoundCall:
        planned = [buffer for buffer in (*inputs, *outputs) if buffer.spec.kind is ValueKind.PLANNED]
        if any(buffer.pointer % seen.needs_alignment for buffer in planned):
            raise KernelError("a buffer is not aligned")
        call = bind(kernel, inputs, outputs, workspace)
        seen.binds += 1

        def reading() -> None:
            seen.read += [buffer.pointer for buffer in inputs]
            call()

        return reading

    monkeypatch.setattr(MockKernel, "bind", bound)
    return seen


def session_of(model: ir.Model) -> Session:
    return Session(ExecutingMock().build(partition(model)))


def address(array: Array) -> int:
    return int(array.ctypes.data)


def misaligned(array: Array, offset: int) -> Array:
    """The same values at an address that is `offset` above a multiple of 64."""
    memory = np.zeros(array.nbytes + 128, np.uint8)
    skip = -address(memory) % 64 + offset
    place = memory[skip : skip + array.nbytes].view(array.dtype).reshape(array.shape)
    place[...] = array
    return place


def test_an_input_is_read_where_it_is(parsed: Parse, watched: Watched) -> None:
    session = session_of(parsed(NEG))
    x = X.copy()

    for number in range(3):
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], -X - number)
        x += 1

    assert watched.read == [address(x)] * 3


def test_an_input_that_is_not_large_is_read_in_place_where_one_was_before(
    parsed: Parse, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "READ_AT_ONCE_BYTES", 1 << 40)
    session = session_of(parsed(NEG))
    first, second, *others = [X + number for number in range(6)]

    for x in (first, second, first, second, *others, first):
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], -x)

    own = watched.read[0]
    assert own not in (address(first), address(second))
    assert watched.read == [own, own, address(first), address(second), *[own] * 5]


def test_each_input_is_read_at_its_own_address_in_each_run(parsed: Parse, watched: Watched) -> None:
    session = session_of(parsed(CHAIN))
    arrays = [X + number for number in range(5)]
    rng = np.random.default_rng(0)

    for _ in range(60):
        x, z = (arrays[index] for index in rng.integers(0, 5, 2))
        watched.read.clear()
        np.testing.assert_array_equal(session.run(None, {"x": x, "z": z})[0], np.abs(x) + z - x)
        assert {address(x), address(z)} <= set(watched.read)


def test_a_result_can_be_fed_back(parsed: Parse, watched: Watched) -> None:
    session = session_of(parsed("g (float[2,3] x) => (float[2,3] y) { a = Add(x, x) y = Sub(a, x) }"))

    y = X
    for _ in range(10):
        [y] = session.run(None, {"x": y})

    np.testing.assert_array_equal(y, X)


@pytest.mark.parametrize(
    ("made", "in_place"),
    [
        (X.copy, True),
        (lambda: misaligned(X, 4), True),
        (lambda: misaligned(X, 1), False),
        (lambda: np.asfortranarray(X), False),
        (lambda: np.repeat(X, 2, 1)[:, ::2], False),
        (lambda: np.broadcast_to(np.float32(2), (2, 3)), False),
        (lambda: np.frombuffer(X.tobytes(), np.float32).reshape(2, 3), True),
        (lambda: X[:], True),
    ],
    ids=["plain", "aligned to the element", "not aligned", "fortran", "strided", "broadcast", "read-only", "a view"],
)
def test_only_what_kernels_can_read_is_read_in_place(
    parsed: Parse, watched: Watched, made: Callable[[], Array], in_place: bool
) -> None:
    session = session_of(parsed(NEG))
    x = made()

    np.testing.assert_array_equal(session.run(None, {"x": x})[0], -x)

    assert (watched.read == [address(x)]) is in_place


def test_a_callers_input_is_not_kept(parsed: Parse, watched: Watched) -> None:
    session = session_of(parsed(NEG))
    x = X.copy()
    session.run(None, {"x": x})
    gone = weakref.ref(x)

    del x
    gc.collect()

    assert gone() is None
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], -X)


def test_a_run_at_known_addresses_is_not_bound_again(
    parsed: Parse, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebinding, "KEPT_RUNS", 3)
    session = session_of(parsed(NEG))
    arrays = [X + number for number in range(4)]
    bound = watched.binds

    for number in (0, 1, 2, 0, 1, 2, 2, 0):
        np.testing.assert_array_equal(session.run(None, {"x": arrays[number]})[0], -arrays[number])
    assert watched.binds == bound + 3
    session.run(None, {"x": arrays[3]})  # in place of 1, not used for longest
    session.run(None, {"x": arrays[2]})
    assert watched.binds == bound + 4
    session.run(None, {"x": arrays[1]})
    assert watched.binds == bound + 5


@pytest.mark.guards(
    "a large input is not aligned as a kernel needs", "it is copied into the session's own memory", area="sessions"
)
def test_a_kernel_that_refuses_an_address_gets_a_copy(parsed: Parse, watched: Watched) -> None:
    watched.needs_alignment = 64
    session = session_of(parsed(NEG))
    aligned, other = misaligned(X, 0), misaligned(X + 1, 4)

    for x in (aligned, other, aligned):
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], -x)

    assert watched.read[0] == address(aligned)
    assert address(other) not in watched.read
    bound = watched.binds
    session.run(None, {"x": other})
    assert watched.binds == bound


def test_a_kernel_that_refuses_every_buffer_is_an_error(parsed: Parse, watched: Watched) -> None:
    session = session_of(parsed(NEG))
    watched.needs_alignment = 1 << 62

    with pytest.raises(KernelLoadError, match="it refuses its buffers: a buffer is not aligned"):
        session.run(None, {"x": X})

    watched.needs_alignment = 1
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], -X)


def test_values_without_a_planned_place_keep_theirs(parsed: Parse, watched: Watched) -> None:
    session = session_of(parsed("g (float[2,3] x, float[N] v) => (float[2,3] y, float[N] w) { y = Neg(x) w = Neg(v) }"))

    for n in (1, 5, 2):
        x, v = X + n, np.full(n, n, np.float32)
        y, w = session.run(None, {"x": x, "v": v})
        np.testing.assert_array_equal(y, -x)
        np.testing.assert_array_equal(w, -v)
        assert address(x) in watched.read


def test_inputs_for_bound_runs_are_set_apart(parsed: Parse, watched: Watched) -> None:
    session = session_of(parsed(NEG))
    session.set_inputs({"x": X})
    [bound] = session.run_bound()
    expected = bound.copy()

    session.run(None, {"x": X + 5})

    np.testing.assert_array_equal(bound, expected)
    np.testing.assert_array_equal(session.run_bound()[0], -X)
