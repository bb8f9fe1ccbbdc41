"""The contenders of `benchmarks/gpu.py` without a GPU: real libraries on the CPU, or stand-ins that note calls."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from benchmarks.contenders import collage_package, tensorrt_engine
from benchmarks.judge.contender import CONTENDERS, Contender
from benchmarks.judge.rounds import Protocol, compete
from benchmarks.judge.statistics import disagreement
from benchmarks.judge.worker import load_setup
from benchmarks.models import MODELS
from collage.runtime.kernels.launching import Launch

QUICK = Protocol(threads=1, rounds=1, seconds=0.0, min_runs=2, warmup_s=0.0, settle_s=0.0, deadline_s=120.0)
INPUTS = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}


class Calls(list[str]):
    """What was called, in order."""

    def note(self, name: str, result: Any = None) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            given = [*map(str, arguments), *(f"{key}={value}" for key, value in named.items())]
            self.append(f"{name}({', '.join(given)})")
            return result() if callable(result) else result

        return called


class Array:
    """A device's array: the values and an address."""

    def __init__(self, values: np.ndarray[Any, Any], pointer: int) -> None:
        self.values, self.data = values, types.SimpleNamespace(ptr=pointer)

    def get(self) -> np.ndarray[Any, Any]:
        return self.values


def fake_cupy(calls: Calls, capture_fails: bool = False) -> types.ModuleType:
    """CuPy as far as TensorRT's contender uses it, with the names of its documentation."""
    pointers = iter(range(1000, 9000, 1000))
    graph = types.SimpleNamespace(launch=lambda stream: calls.append(f"launch on {stream.ptr}"))

    def begin() -> None:
        calls.append("begin")
        if capture_fails:
            raise RuntimeError("operation not permitted\nwhen stream is capturing")

    stream = types.SimpleNamespace(
        ptr=77, synchronize=calls.note("wait"), begin_capture=begin, end_capture=calls.note("end", lambda: graph)
    )
    module: Any = types.ModuleType("cupy")
    module.asarray = lambda values: Array(values, next(pointers))
    module.empty = lambda shape, dtype: Array(np.full(shape, 5, dtype), next(pointers))
    module.cuda = types.SimpleNamespace(
        Device=lambda number: types.SimpleNamespace(use=calls.note(f"use {number}")),
        Stream=lambda non_blocking: stream,
        runtime=types.SimpleNamespace(deviceSynchronize=calls.note("deviceSynchronize")),
    )
    return module


def fake_tensorrt(calls: Calls, refuses: bool = False) -> types.ModuleType:
    """TensorRT as far as its contender uses it, with the names of its documentation."""

    class Logger:
        ERROR = 1

        def __init__(self, severity: int) -> None:
            self.severity = severity

    class OnnxParser:
        num_errors = 2

        def __init__(self, network: object, logger: Logger) -> None:
            self.network = network

        def parse(self, model: bytes) -> bool:
            calls.append(f"parse {model.decode()}")
            return not refuses

        def get_error(self, index: int) -> Any:
            return types.SimpleNamespace(desc=lambda: f"node {index} is not known")

    class Config:
        builder_optimization_level = 3
        set_flag = staticmethod(calls.note("set_flag"))
        clear_flag = staticmethod(calls.note("clear_flag"))

    class Builder:
        def __init__(self, logger: Logger) -> None:
            self.logger = logger

        create_network = staticmethod(calls.note("create_network", lambda: "network"))
        create_builder_config = staticmethod(Config)

        def build_serialized_network(self, network: str, config: Config) -> bytes:
            calls.append(f"build {network} at level {config.builder_optimization_level}")
            return b"plan"

    context = types.SimpleNamespace(
        set_tensor_address=calls.note("at"), execute_async_v3=calls.note("enqueue", lambda: True)
    )
    engine = types.SimpleNamespace(
        num_io_tensors=2,
        get_tensor_name=lambda index: "xy"[index],
        get_tensor_dtype=lambda name: "FLOAT",
        get_tensor_shape=lambda name: [2, 4],
        create_execution_context=lambda: context,
    )
    module: Any = types.ModuleType("tensorrt")
    module.Logger, module.OnnxParser, module.Builder = Logger, OnnxParser, Builder
    module.Runtime = lambda logger: types.SimpleNamespace(deserialize_cuda_engine=lambda plan: engine)
    module.NetworkDefinitionCreationFlag = types.SimpleNamespace(STRONGLY_TYPED=2)
    module.BuilderFlag = types.SimpleNamespace(TF32="TF32")
    module.nptype = lambda dtype: {"FLOAT": np.float32}[dtype]
    return module


def tensorrt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: Calls, *, tf32: str = "false", **fails: bool
) -> Any:
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(calls, fails.get("capture_fails", False)))
    monkeypatch.setitem(sys.modules, "tensorrt", fake_tensorrt(calls, fails.get("refuses", False)))
    model = tmp_path / "model.onnx"
    model.write_bytes(b"onnx")
    return tensorrt_engine.setup(str(model), INPUTS, 1, device="cuda:1", tf32=tf32)


def test_tensorrt_builds_with_the_files_own_dtypes_and_replays_one_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls()
    call = tensorrt(tmp_path, monkeypatch, calls)

    assert calls == [
        *("use 1()", "create_network(4)", "parse onnx", "clear_flag(TF32)", "build network at level 5"),
        *("at(x, 1000)", "at(y, 2000)", "deviceSynchronize()"),
        *("enqueue(77)", "wait()", "begin", "enqueue(77)", "end()", "launch on 77", "wait()"),
    ]
    calls.clear()
    call()
    assert calls == ["launch on 77", "wait()"]
    assert call.note == "one CUDA graph"
    assert {name: value.shape for name, value in call.outputs().items()} == {"y": (2, 4)}


def test_tensorrt_is_allowed_tf32_only_where_everybody_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls()
    tensorrt(tmp_path, monkeypatch, calls, tf32="true")

    assert "set_flag(TF32)" in calls
    assert "clear_flag(TF32)" not in calls


def test_tensorrt_that_cannot_be_captured_runs_without_a_graph_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls()
    call = tensorrt(tmp_path, monkeypatch, calls, capture_fails=True)
    calls.clear()
    call()

    assert calls == ["enqueue(77)", "wait()"]
    assert call.note.endswith("(operation not permitted when stream is capturing)")


def test_tensorrt_that_refuses_a_model_says_at_which_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="does not take the model: node 0 is not known; node 1 is not known"):
        tensorrt(tmp_path, monkeypatch, Calls(), refuses=True)


def test_without_a_tensorrt_that_builds_each_ones_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tensorrt_rtx", "tensorrt_rtx_bindings"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "tensorrt", types.ModuleType("tensorrt"))

    with pytest.raises(RuntimeError, match=r"tensorrt has no builder; tensorrt_rtx: .*; tensorrt_rtx_bindings: "):
        tensorrt_engine.library()


@pytest.fixture(scope="module")
def mnist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mnist") / "mnist.onnx"
    onnx.save(MODELS["mnist"].build(), path)
    return path


@pytest.mark.plugins
def test_onnxruntime_runs_on_placed_values_and_agrees_with_a_plain_session(mnist: Path) -> None:
    """On the CPU, where the library is the same and the provider another."""
    onnxruntime = pytest.importorskip("onnxruntime")
    inputs = MODELS["mnist"].make_inputs(0)
    plain = onnxruntime.InferenceSession(mnist, providers=["CPUExecutionProvider"])
    expected = dict(zip([o.name for o in plain.get_outputs()], plain.run(None, inputs), strict=True))

    call = load_setup(CONTENDERS / "onnxruntime_cuda.py")(str(mnist), inputs, 1, device="cpu")
    call()

    assert disagreement(expected, call.outputs()) < 1e-6  # type: ignore[attr-defined]


@pytest.mark.plugins
def test_an_onnxruntime_without_cuda_says_what_to_install(mnist: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has the provider")

    (outcome,) = compete(
        mnist,
        MODELS["mnist"].make_inputs(0),
        ["y"],
        [Contender(name="onnxruntime-cuda", file=CONTENDERS / "onnxruntime_cuda.py", options={"device": "cuda:0"})],
        QUICK,
    )

    assert outcome.failed is not None
    assert "has no CUDA provider" in outcome.failed
    assert "pip install onnxruntime-gpu" in outcome.failed


class Graphless:
    """ONNX Runtime with a CUDA provider that computes on the CPU and, in one of its ways, takes no graph."""

    def __init__(self, onnxruntime: Any, refuses_in: str) -> None:
        self._onnxruntime = onnxruntime
        self._refuses_in = refuses_in
        self.asked: list[str] = []
        for name in ("SessionOptions", "OrtValue"):
            setattr(self, name, getattr(onnxruntime, name))

    def get_available_providers(self) -> list[str]:
        return ["CUDAExecutionProvider", "CPUExecutionProvider"]

    def InferenceSession(self, path: str, options: Any, providers: list[Any]) -> Any:  # noqa: N802
        [(_, cuda)] = providers
        self.asked.append(cuda["enable_cuda_graph"])
        if cuda["enable_cuda_graph"] == "1" and self._refuses_in == "session":
            raise RuntimeError("all compute graph nodes have not been\npartitioned to the CUDAExecutionProvider")
        session = self._onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        runs = _failing if cuda["enable_cuda_graph"] == "1" else session.run_with_iobinding
        return types.SimpleNamespace(
            get_providers=lambda: ["CUDAExecutionProvider"],
            get_outputs=session.get_outputs,
            io_binding=session.io_binding,
            run_with_iobinding=runs,
        )


def _failing(binding: Any) -> None:
    raise RuntimeError("an operation is not permitted when stream is capturing")


@pytest.mark.plugins
@pytest.mark.parametrize(("where", "words"), [("session", "partitioned to the CUDA"), ("run", "not permitted when")])
def test_an_onnxruntime_that_refuses_the_graph_runs_without_and_says_why(
    where: str, words: str, mnist: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    setup = load_setup(CONTENDERS / "onnxruntime_cuda.py")
    library = Graphless(onnxruntime, where)
    monkeypatch.setitem(setup.__globals__, "onnxruntime", library)
    bound = setup.__globals__["_bound"]
    monkeypatch.setitem(
        setup.__globals__, "_bound", lambda session, inputs, kind, at: bound(session, inputs, "cpu", at)
    )

    call = setup(str(mnist), MODELS["mnist"].make_inputs(0), 1, device="cuda:0")
    call()

    assert library.asked == ["1", "0"]
    assert call.note.startswith("kernels launched one by one: its graph failed (")  # type: ignore[attr-defined]
    assert words in call.note  # type: ignore[attr-defined]


def test_errors_are_against_what_is_expected_and_a_contenders_word_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "doubles.py"
    file.write_text(
        "def setup(model_path, inputs, threads):\n"
        "    call = lambda: [inputs['x'] * 2]\n"
        "    call.note = 'one CUDA graph'\n"
        "    return call\n"
    )
    (outcome,) = compete(
        tmp_path / "none.onnx",
        INPUTS,
        ["y"],
        [Contender(name="doubles", file=file)],
        QUICK,
        expected={"y": INPUTS["x"] * np.float32(2.5)},
    )

    assert outcome.max_error == pytest.approx(0.2)
    assert outcome.note == "one CUDA graph"


class Session:
    """A session of a plan on a device, as far as the contender uses one."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        device = types.SimpleNamespace(synchronize=lambda: self.calls.append("wait"))
        x = types.SimpleNamespace(set=lambda array: self.calls.append(("set", array.tolist())), device=device)
        self.inputs = {"x": x}
        self.outputs = {"y": Array(np.ones(2, np.float32), 1000)}
        self.launches = (Launch(device="cuda:0", steps=("a", "b"), kernels=2, mode="graph"),)

    def get_outputs(self) -> list[Any]:
        return [types.SimpleNamespace(name="y")]

    def bind(self, inputs: Any, outputs: Any = None) -> Session:
        self.calls.append(("bind", inputs, outputs))
        return self

    def call(self) -> None:
        self.calls.append("run")


def test_a_package_on_a_device_has_inputs_and_outputs_there_before_it_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session()
    monkeypatch.setattr("collage.load", lambda path: session)
    call: Any = collage_package.setup("x.collage", {"x": np.array([1, 2], np.float32)}, 1, device="cuda:0")

    assert session.calls[:3] == [("bind", {"x": "cuda:0"}, {"y": "cuda:0"}), ("set", [1.0, 2.0]), "wait"]
    assert session.calls[3:] == ["run"] * collage_package.WARM_UP
    assert call.note == "1 CUDA graphs of 2 steps"
    np.testing.assert_array_equal(call.outputs()["y"], np.ones(2))


def test_how_a_plan_is_launched_is_told_with_the_reasons_against_a_graph() -> None:
    launches = [
        Launch(device="cuda:0", steps=("a", "b"), kernels=2, mode="graph"),
        Launch(device="cuda:0", steps=("c",), kernels=1, mode="eager", reason="its artifact is not capturable"),
    ]

    assert collage_package.launched(launches) == (
        "1 CUDA graphs of 2 steps, 1 steps launched one by one: its artifact is not capturable"
    )
    assert collage_package.launched([]) == ""
