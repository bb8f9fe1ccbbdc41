"""What a model makes expensive happens in a process of its own, within limits, and is told as one error."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import psutil
import pytest

from collage.errors import ModelCostError, WorkerError
from collage.measure.driver import memory
from collage.measure.driver.capture import Capture
from collage.measure.models import model_process
from collage.measure.models.model_process import MEMORY_VARIABLE, ModelProcess, memory_allowance
from collage.measure.models.preparing import prepared_apart, prepared_in
from collage.measure.wire.blobs import BlobStore
from collage.prepare.exchange import read_given, read_prepared, write_given, write_prepared
from collage.prepare.steps import prepare
from collage.setup.workload import Workload
from collage.temporary_folders import sweep
from collage_core.errors import CollageError, EvaluationError, InputShapeError, InvalidModelError, UsageError
from collage_core.fusion import SubGraph
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.io.model_io import load_model, save_model
from collage_testing import mnist
from tests.hardship import files_up_to

MESSAGE_CHARACTERS = 2000
ALLOWANCE = 300 << 20


@pytest.fixture(scope="module")
def models() -> Iterator[ModelProcess]:
    with ModelProcess(allowance_bytes=ALLOWANCE) as process:
        yield process


def text(body: str, *, inputs: str = "float[4] x", outputs: str = "float[n] y") -> ir.Model:
    return ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 21]> g ({inputs}) => ({outputs}) {{ {body} }}')


def huge(elements: int = 10**10) -> ir.Model:
    """Return a model that fills a tensor whose size is known when it runs."""
    return text(
        f"most = Constant <value = int64[1] {{{elements}}}> () peak = ReduceMax (x) size = Abs (peak) "
        "least = Constant <value = float {-1.0}> () sure = Greater (size, least) one = Cast <to = 7> (sure) "
        "n = Mul (most, one) y = ConstantOfShape (n)"
    )


def endless() -> ir.Model:
    return text(
        f"n = Constant <value = int64 {{{2**62}}}> () g = Constant <value = bool {{1}}> () "
        "y = Loop (n, g, x) <body = b (int64 i, bool c, float[4] s) => (bool d, float[4] t) "
        "{ d = Identity (c) t = Sin (s) }>"
    )


def split_into_more_than_it_says() -> ir.Model:
    return ir.from_onnx_text("""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[4, 6] x) => (float[4, 3] a, float[4, 3] b) { a, b, c = Split <axis = 1, num_outputs = 2> (x) }""")


def prepared(models: ModelProcess, model: ir.Model, shapes: Mapping[str, tuple[int, ...]] | None = None) -> ir.Model:
    return prepared_in(models, model, shapes or {}, 3600.0)


def captured(models: ModelProcess, model: ir.Model, folder: Path, **options: Any) -> Capture:
    graph = DataflowGraph(prepare(model))
    feeds = {"x": np.array([1, 2, 3, 4], np.float32)}
    return Capture.take(graph.model, feeds, BlobStore(folder), models=models, **options)


def whole(model: ir.Model) -> str:
    graph = DataflowGraph(model)
    return SubGraph(graph, graph.all_mask).structural_hash


def test_a_model_prepared_there_is_the_one_prepared_here(models: ModelProcess) -> None:
    there, here = prepared(models, mnist()), prepare(mnist())

    assert whole(there) == whole(here)
    assert [node.name for node in there.graph] == [node.name for node in here.graph]
    assert list(there.graph.initializers) == list(here.graph.initializers)


def test_weights_that_did_not_change_are_shared_and_others_outlive_the_files(models: ModelProcess) -> None:
    model = text("a = MatMul (x, kept) n = Neg (folded) y = Add (a, n)", outputs="float[400] y")
    kept, folded = np.random.default_rng(0).standard_normal((2, 4, 400)).astype(np.float32)
    for name, array in {"kept": kept, "folded": folded[0]}.items():
        value = ir.val(name, const_value=ir.tensor(array, name=name))
        for node in model.graph:
            for index, used in enumerate(node.inputs):
                if used is not None and used.name == name:
                    node.replace_input_with(index, value)
        model.graph.register_initializer(value)

    found = prepared(models, model).graph.initializers

    assert found["kept"].const_value is model.graph.initializers["kept"].const_value
    [made] = [value.const_value for name, value in found.items() if name != "kept"]
    assert made is not None
    np.testing.assert_array_equal(made.numpy(), -folded[0])


@pytest.mark.parametrize(
    "array",
    [
        np.arange(2000, dtype=np.int64),
        np.ones((40, 40), ml_dtypes.bfloat16),
        np.arange(4000, dtype=np.int8).reshape(2, 2000).astype(ml_dtypes.int4),
        np.zeros((3000, 0), np.float32),
    ],
)
def test_weights_of_each_type_arrive_as_they_were(array: np.ndarray[Any, Any], tmp_path: Path) -> None:
    model = mnist()
    model.graph.register_initializer(ir.val("w", const_value=ir.tensor(array, name="w")))

    known = write_given(model, tmp_path)
    given = read_given(tmp_path)
    for value in given.graph.initializers.values():  # as if preparing had made them
        assert value.const_value is not None
        value.const_value = ir.Tensor(value.const_value.numpy(), dtype=value.const_value.dtype, name=value.name)
    write_prepared(given, tmp_path)
    found = read_prepared(tmp_path, known).graph.initializers["w"].const_value

    assert found is not None
    assert found.numpy().dtype == array.dtype
    np.testing.assert_array_equal(found.numpy(), array)


def test_weights_in_files_of_their_own_are_not_copied(
    models: ModelProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collage_core.ir.io.model_io.EXTERNAL_THRESHOLD_BYTES", 0)
    save_model(mnist(), tmp_path / "m.onnx")
    model = load_model(tmp_path / "m.onnx")
    folder = tmp_path / "exchanged"
    folder.mkdir()

    write_given(model, folder)

    assert (folder / "given.data").stat().st_size == 0
    assert whole(prepared(models, model)) == whole(prepare(mnist()))


def test_an_error_keeps_its_type_and_facts(models: ModelProcess) -> None:
    model = text("y = Neg (x)", inputs="float[n] x")

    with pytest.raises(InputShapeError, match="dimension n of") as found:
        prepared(models, model)

    assert found.value.input_name == "x"


@pytest.mark.guards(
    "a model on which ONNX's own C++ ends the process, or never ends",
    "the process in which it is prepared dies instead; one message",
    area="input",
)
def test_what_ends_the_process_is_an_error() -> None:
    with pytest.raises(InvalidModelError, match="preparing the model ends the process: killed by SIGABRT"):
        Workload(split_into_more_than_it_says())


@pytest.mark.guards("a model on which ONNX's own C++ ends the process, or never ends")
def test_what_takes_too_long_to_prepare_is_an_error() -> None:
    with ModelProcess() as process:
        prepared_in(process, mnist(), {}, 3600.0)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)  # it never answers, however fast the machine is

        with pytest.raises(ModelCostError, match=r"did not finish within .* --budget"):
            prepared_in(process, mnist(), {}, -1.0 - model_process._GRACE_S)


@pytest.mark.guards(
    "a model asks for a tensor of 40 GB when it runs",
    "one message with the node, the limit and how to raise it; the driver takes no memory",
    area="input",
)
def test_a_huge_tensor_is_refused_by_the_name_of_its_node(models: ModelProcess, tmp_path: Path) -> None:
    with pytest.raises(ModelCostError) as found:
        captured(models, huge(), tmp_path, deadline_s=3600.0)

    message = str(found.value)
    assert "(ConstantOfShape)" in message
    assert f"{MEMORY_VARIABLE}=" in message
    assert len(message) <= MESSAGE_CHARACTERS
    assert captured(models, text("y = Neg (x)"), tmp_path, deadline_s=3600.0).value("y").tolist() == [-1, -2, -3, -4]


def test_a_tensor_whose_size_is_known_is_refused_before_anything_runs(models: ModelProcess) -> None:
    model = text("n = Constant <value = int64[1] {10000000000}> () f = ConstantOfShape (n) y = Add (x, f)")

    with pytest.raises(ModelCostError, match=r"\(ConstantOfShape\).*its outputs take 40\.0 GB"):
        prepared(models, model)


def test_a_tensor_within_the_limit_is_computed(models: ModelProcess, tmp_path: Path) -> None:
    values = captured(models, huge(10**6), tmp_path, deadline_s=3600.0, keep={"y"})

    assert values.value("y").shape == (10**6,)
    assert "peak" not in values


@pytest.mark.guards("a model's loop never ends", "it is ended after its deadline; one message", area="input")
def test_a_loop_that_never_ends_is_an_error(models: ModelProcess, tmp_path: Path) -> None:
    with pytest.raises(
        ModelCostError,
        match=r"the reference run of the model did not finish within 0\.2 s: it was at node '\w+' \(Loop\)",
    ):
        captured(models, endless(), tmp_path, deadline_s=0.2)


@pytest.mark.guards(
    "the system's memory runs out while a model is prepared or evaluated, and Linux kills the process",
    "one message says so, and at which node",
    area="input",
)
@pytest.mark.parametrize(
    ("before", "after", "why"),
    [("oom_kill 3", "oom_kill 4", "the system"), ("oom_kill 3", "oom_kill 3", "probably"), ("", "", "probably")],
)
def test_a_process_that_is_killed_from_outside_lacked_memory(
    before: str, after: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = tmp_path / "vmstat"
    counts.write_text(before, encoding="ascii")
    monkeypatch.setattr(memory, "_VMSTAT", counts)
    model = ir.from_onnx_text("""<ir_version: 10, opset_import: ["" : 21, "vendor" : 1]>
        g (float[4] x) => (float[4] y) { y = vendor.Twice (x) }""")

    with ModelProcess() as process:

        def kill(model: ir.Model, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
            assert process.pid is not None
            counts.write_text(after, encoding="ascii")
            os.kill(process.pid, signal.SIGKILL)
            return {"y": inputs["x"]}

        ended = rf"was ended by SIGKILL; {why}.* memory ran out: it was at node '\w+' \(Twice\)\. Free memory"
        with pytest.raises(ModelCostError, match=ended):
            captured(process, model, tmp_path / "blobs", fallback=kill, deadline_s=3600.0)


def test_values_are_computed_where_memory_is_short_for_what_rounding_does(models: ModelProcess, tmp_path: Path) -> None:
    forty_mb = "n = Constant <value = int64[2] {2500000, 4}> () a = Expand (x, n)"
    model = text(f"{forty_mb} b = Neg (a) c = Add (a, b) d = Sub (a, b) e = Max (a, b, c, d) y = ReduceMax (e)")

    found = captured(models, model, tmp_path, deadline_s=3600.0).evaluation()

    assert found.values["y"] == 8.0
    assert "a" in found.conditioning
    assert "y" not in found.conditioning


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ("; its last words: at node 'det' (Det)", "at node 'det' (Det)"),
        ("; its last words: a warning | at node 'a' (Det)", "at node 'a' (Det)"),
        ("; its last words: a warning", ""),
        ("", ""),
    ],
)
def test_the_node_at_which_it_was_killed_is_known(words: str, place: str) -> None:
    assert model_process._place(WorkerError("reference", "deadline", f"it was killed{words}")) == place


def test_what_the_reference_cannot_compute_is_computed_by_the_fallback(models: ModelProcess, tmp_path: Path) -> None:
    model = ir.from_onnx_text("""<ir_version: 10, opset_import: ["" : 21, "vendor" : 1]>
        g (float[4] x) => (float[4] y) { a = Neg (x) b = vendor.Twice (a) y = Neg (b) }""")
    asked = []

    def fallback(model: ir.Model, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        asked.append(model.graph[0].op_type)
        return {"b": 2 * inputs["a"]}

    values = captured(models, model, tmp_path, fallback=fallback, deadline_s=3600.0)

    assert values.value("y").tolist() == [2, 4, 6, 8]
    assert asked == ["Twice"]
    assert len(values.unchecked) == 1


def test_where_the_fallback_fails_too_the_error_says_both(models: ModelProcess, tmp_path: Path) -> None:
    model = ir.from_onnx_text("""<ir_version: 10, opset_import: ["" : 21, "vendor" : 1]>
        g (float[4] x) => (float[4] y) { y = vendor.Twice (x) }""")

    def fallback(model: ir.Model, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        raise EvaluationError("n", "Twice", "no such operator here")

    with pytest.raises(EvaluationError, match=r"no implementation for domain 'vendor'.*no such operator here") as found:
        captured(models, model, tmp_path, fallback=fallback, deadline_s=3600.0)
    assert found.value.op_type == "vendor::Twice"


@pytest.mark.guards(
    "the driver is killed while it prepares a model or verifies the winner",
    "no process outlives it: Linux ends them, or they see that the driver's end of their input is closed",
    area="kills and databases",
)
def test_the_process_ends_with_the_driver(tmp_path: Path) -> None:
    program = f"""
import sys
from tests.engine.measure.test_model_process import endless, captured
from collage.measure.models.model_process import ModelProcess
from pathlib import Path

class Noting(ModelProcess):
    def _started(self, known):
        child = super()._started(known)
        print(child.pid, flush=True)
        return child

captured(Noting(), endless(), Path({str(tmp_path)!r}), deadline_s=3600.0)
"""
    driver = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=os.getcwd())
    assert driver.stdout is not None
    child = psutil.Process(int(driver.stdout.readline()))

    driver.send_signal(signal.SIGKILL)
    driver.wait()

    psutil.wait_procs([child], timeout=60)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    driver.stdout.close()


@pytest.mark.guards("a run is killed with SIGKILL: its temporary folders stay behind")
def test_the_folder_of_a_preparation_that_was_killed_goes_with_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = """
import time
from collage.measure.models.model_process import ModelProcess
from collage.measure.models.preparing import prepared_in
from collage_testing import mnist

class Waiting(ModelProcess):
    def ask(self, *_):
        print("written", flush=True)
        time.sleep(3600)

prepared_in(Waiting(), mnist(), {}, 60.0)
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    driver = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment)
    assert driver.stdout is not None
    assert driver.stdout.readline() == "written\n"
    assert len(list(tmp_path.iterdir())) == 1
    driver.kill()
    driver.communicate()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    swept = sweep()

    assert swept.folders == 1
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_system_keeps_its_number(tmp_path: Path) -> None:
    with ModelProcess() as process, files_up_to(1 << 20), pytest.raises(CollageError, match="reference run") as found:
        captured(process, huge(10**6), tmp_path, deadline_s=3600.0)

    assert isinstance(found.value.__cause__, OSError)
    assert found.value.__cause__.errno == errno.EFBIG


@pytest.mark.parametrize("text", ["many", "0", "-1", "nan", "inf"])
def test_a_limit_that_is_none_is_misuse(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MEMORY_VARIABLE, text)

    with pytest.raises(UsageError, match=MEMORY_VARIABLE):
        memory_allowance()


def test_the_limit_is_given_in_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MEMORY_VARIABLE, "2.5")

    assert memory_allowance() == 5 << 29


@pytest.mark.guards(
    "a library writes bytes that are not text before it ends the process that prepares the model",
    "they are shown as far as they are text",
    area="toolchains",
)
def test_words_that_are_no_text_are_shown_as_far_as_they_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nprintf 'broken \\377 library\\n' >&2\nkill -ABRT $$\n", encoding="ascii")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))

    with pytest.raises(WorkerError, match=r"SIGABRT.*broken \uFFFD library"):
        prepared_apart(mnist(), {})
