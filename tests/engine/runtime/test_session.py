from __future__ import annotations

import copy
import pickle  # noqa: TID251  to see that it is refused
import threading
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from collage.runtime import NodeArg
from collage.runtime.session import Session
from collage_core.errors import FeedError
from tests.engine.runtime.mocks import ExecutingMock, MockKernel, partition

Parse = Callable[[str], ir.Model]

X = np.arange(6, dtype=np.float32).reshape(2, 3)
TWO_KERNELS = "g (float[2,3] x, int64[2] n) => (float[2,3] y, int64[2] m) { a = Neg(x) y = Exp(a) m = Neg(n) }"
N = np.array([1, 2])


def session_of(model: ir.Model) -> Session:
    return Session(ExecutingMock().build(partition(model)))


def test_inputs_and_outputs_are_described_as_onnxruntime_does(parsed: Parse) -> None:
    session = session_of(
        parsed("""g (string[2] s, float16[1,3] h, bool b, double[N,2] d) => (string[2] t, seq(float16[1,3]) q, bool c,
        double[N,2] e) { t = Identity(s) q = SequenceConstruct(h) c = Not(b) e = Neg(d) }""")
    )

    assert session.get_inputs() == [
        NodeArg("s", [2], "tensor(string)"),
        NodeArg("h", [1, 3], "tensor(float16)"),
        NodeArg("b", [], "tensor(bool)"),
        NodeArg("d", ["N", 2], "tensor(double)"),
    ]
    assert [output.type for output in session.get_outputs()] == [
        "tensor(string)",
        "seq(tensor(float16))",
        "tensor(bool)",
        "tensor(double)",
    ]


def test_outputs_come_in_the_order_asked_for_and_as_copies(parsed: Parse) -> None:
    session = session_of(parsed(TWO_KERNELS))

    m, y = session.run(["m", "y"], {"x": X, "n": N})
    again = session.run(["y"], {"x": X + 1, "n": N})

    np.testing.assert_array_equal(m, -N)
    np.testing.assert_array_equal(y, np.exp(-X))
    np.testing.assert_array_equal(again[0], np.exp(-X - 1))


class Exported:
    """Another library's tensor: it speaks DLPack and nothing else."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array = array.copy()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "value",
    [X, X.T.copy().T, X[::-1][::-1], np.repeat(X, 2, 1)[:, ::2], read_only(X), X.tolist(), Exported(X)],
    ids=["array", "fortran", "reversed", "strided", "read-only", "list", "dlpack"],
)
def test_anything_like_an_array_can_be_fed(parsed: Parse, value: Any) -> None:
    session = session_of(parsed("g (float[2,3] x) => (float[2,3] y) { y = Neg(x) }"))

    np.testing.assert_array_equal(session.run(None, {"x": value})[0], -X)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint32", "uint64", "float"])
def test_lists_of_numbers_take_the_dtype_of_the_input(parsed: Parse, dtype: str) -> None:
    session = session_of(parsed(f"g ({dtype}[2] x) => ({dtype}[2] y) {{ y = Add(x, x) }}"))

    [y] = session.run(None, {"x": [3, 60]})

    np.testing.assert_array_equal(y, np.array([6, 120], "float32" if dtype == "float" else dtype), strict=True)


@pytest.mark.parametrize("value", [[0, 256], [-1, 0], [0.5, 1.0], [None, 1]], ids=str)
def test_lists_of_what_does_not_fit_the_dtype_of_the_input_are_refused(parsed: Parse, value: Any) -> None:
    session = session_of(parsed("g (uint8[2] x) => (uint8[2] y) { y = Add(x, x) }"))

    with pytest.raises(FeedError, match=r"'x': expected uint8\[2\]"):
        session.run(None, {"x": value})


def test_low_precision_inputs(parsed: Parse) -> None:
    session = session_of(parsed("g (bfloat16[2,3] x) => (bfloat16[2,3] y) { y = Neg(x) }"))
    x = X.astype(ml_dtypes.bfloat16)

    np.testing.assert_array_equal(session.run(None, {"x": x})[0], -x)


@pytest.mark.parametrize(
    ("names", "feeds", "reason"),
    [
        (["z"], {"x": X, "n": N}, "'z': the model has no such output; it has y, m"),
        (None, {"x": X, "n": N, "k": X}, "'k': the model has no such input; it has x, n"),
        (None, {"x": X, "k": N}, "'k': the model has no such input; it has x, n"),
        (None, {"x": X}, r"'n': no value given for this input \(int64\[2\]\)"),
        (None, {"x": X.astype(np.float64), "n": N}, r"expected float32\[2, 3\], got float64\[2, 3\]"),
        (None, {"x": X[0], "n": N}, r"expected float32\[2, 3\], got float32\[3\]"),
        (None, {"x": X, "n": [1.5, 2.0]}, r"expected int64\[2\], got float64\[2\]"),
        (None, {"x": [[1, 2], [3]], "n": N}, "list cannot be read as one"),
        (None, {"x": X, "n": [1, 1 << 70]}, r"'n': expected int64\[2\]"),
        (None, {"x": None, "n": N}, r"expected float32\[2, 3\], got object\[\]"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_is_expected(
    parsed: Parse, names: Any, feeds: dict[str, Any], reason: str
) -> None:
    session = session_of(parsed(TWO_KERNELS))

    with pytest.raises(FeedError, match=reason):
        session.run(names, feeds)


def test_a_session_runs_on_after_a_refusal(parsed: Parse) -> None:
    session = session_of(parsed("g (float[2,3] x) => (float[2,3] y) { y = Neg(x) }"))

    with pytest.raises(FeedError):
        session.run(None, {})
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], -X)


def test_many_threads_get_the_same_answers(parsed: Parse) -> None:
    session = session_of(parsed("g (float[2,3] x) => (float[2,3] y) { a = Neg(x) b = Mul(a, x) y = Sub(b, a) }"))
    failures = []

    def work(number: int) -> None:
        x = X + number
        for _ in range(10):
            [y] = session.run(None, {"x": x})
            if not np.array_equal(y, -x * x + x):
                failures.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_clone_shares_nothing_that_runs(parsed: Parse) -> None:
    toolchain = ExecutingMock()
    session = Session(toolchain.build(partition(parsed(TWO_KERNELS))))

    clone = session.clone()
    one = session.bind()
    other = clone.bind()

    assert toolchain.loaded == 6
    assert not any(np.shares_memory(one.inputs[name], other.inputs[name]) for name in ("x", "n"))
    assert not {id(step.call) for step in one.steps} & {id(step.call) for step in other.steps}
    np.testing.assert_array_equal(clone.run(["y"], {"x": X, "n": N})[0], np.exp(-X))


@pytest.mark.guards("a session is cloned")
def test_a_clone_shares_kernels_that_are_reentrant(parsed: Parse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MockKernel, "reentrant", True, raising=False)
    toolchain = ExecutingMock()
    session = Session(toolchain.build(partition(parsed(TWO_KERNELS))))

    clone = session.clone()

    assert toolchain.loaded == 3
    assert not any(np.shares_memory(session.bind().inputs[name], clone.bind().inputs[name]) for name in ("x", "n"))
    np.testing.assert_array_equal(clone.run(["y"], {"x": X, "n": N})[0], np.exp(-X))


def test_a_bound_run_returns_its_own_memory(parsed: Parse) -> None:
    session = session_of(parsed(TWO_KERNELS))
    session.run(None, {"x": X, "n": N})

    first, _ = session.run_bound()
    second, _ = session.run_bound()

    assert first is second
    np.testing.assert_array_equal(first, np.exp(-X))


class Tensor(Exported):
    """A tensor whose DLPack is older than version 1, which says what may be written, as of PyTorch."""

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__()

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.array


@pytest.mark.parametrize("kind", [Exported, Tensor])
def test_tensors_of_other_libraries_are_bound_where_they_are(parsed: Parse, kind: type[Exported]) -> None:
    session = session_of(parsed("g (float[2,3] x) => (float[2,3] y) { y = Neg(x) }"))
    x, y = X.copy(), np.zeros_like(X)

    run = session.bind({"x": kind(x)}, {"y": kind(y)})
    x += 1
    run.call()

    np.testing.assert_array_equal(y, -X - 1)


def test_tensors_of_other_libraries_may_not_overlap_either(parsed: Parse) -> None:
    session = session_of(parsed("g (float[2,3] x) => (float[2,3] y) { y = Neg(x) }"))
    x = X.copy()

    with pytest.raises(FeedError, match="shares memory"):
        session.bind({"x": Exported(x)}, {"y": Exported(x)})


def test_a_tensor_that_numpy_cannot_read_is_not_bound(parsed: Parse) -> None:
    session = session_of(parsed("g (float[2,3] x) => (float[2,3] y) { y = Neg(x) }"))

    class Unreadable(Exported):
        def __dlpack__(self, **options: Any) -> Any:
            raise BufferError("its type is bfloat16")

    with pytest.raises(FeedError, match=r"this Unreadable cannot be bound.*bfloat16"):
        session.bind({"x": Unreadable(X)})


def test_run_options_of_onnx_runtime_are_taken_and_left_alone(parsed: Parse) -> None:
    session = session_of(parsed("g (float[2,3] x) => (float[2,3] y) { y = Neg(x) }"))

    [y] = session.run(output_names=["y"], input_feed={"x": X}, run_options=object())

    np.testing.assert_array_equal(y, -X)


def test_a_session_says_what_it_runs_on_what(parsed: Parse) -> None:
    session = session_of(parsed("g (float[2,3] x) => (float[2,3] y) { y = Neg(x) }"))

    said = repr(session)

    assert said.startswith("<Session of 1 kernel on ")
    assert said.endswith(": x: tensor(float)[2, 3] -> y: tensor(float)[2, 3]>")


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_session_cannot_be_pickled_and_says_what_to_do(copied: Callable[[object], object], parsed: Parse) -> None:
    session = session_of(parsed("g (float[2,3] x) => (float[2,3] y) { y = Neg(x) }"))

    with pytest.raises(TypeError, match=r"collage\.load.*clone\(\)"):
        copied(session)


def test_a_bound_run_is_untouched_by_other_runs(parsed: Parse) -> None:
    session = session_of(parsed(TWO_KERNELS))
    x = X.copy()
    bound = session.bind({"x": x})
    bound.inputs["n"][:] = N

    y, m = bound.run()
    session.run(None, {"x": X + 5, "n": N + 5})

    np.testing.assert_array_equal(y, np.exp(-X))
    np.testing.assert_array_equal(m, -N)


def test_a_profile_runs_on_what_it_is_given(parsed: Parse) -> None:
    session = session_of(parsed(TWO_KERNELS))

    profile = session.profile({"x": X, "n": N}, runs=3, warmup=0)

    assert [len(step.samples_us) for step in profile.steps] == [3, 3, 3]


def test_constant_strings_given_out_are_text(parsed: Parse) -> None:
    model = parsed('g (float[2,3] x) => (float[2,3] y) <string[2] s = {"a", "bc"}> { y = Neg(x) }')
    model.graph.outputs.append(model.graph.initializers["s"])

    assert session_of(model).run(["s"], {"x": X})[0].tolist() == ["a", "bc"]
