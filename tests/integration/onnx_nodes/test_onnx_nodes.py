"""ONNX's own node tests through Collage: a few always, all of them in the slow run."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from onnx.backend.base import Backend
from onnx.backend.test import loader

from benchmarks.onnx_nodes.__main__ import BACKENDS, run
from benchmarks.onnx_nodes.backends import backend
from benchmarks.onnx_nodes.cases import Cases, operators
from benchmarks.onnx_nodes.table import document, page
from collage import onnx_backend
from collage_core.errors import FeedError, UsageError

pytestmark = pytest.mark.plugins

FEW = {
    "test_add": "a tensor",
    "test_nonzero_example": "a shape that depends on data",
    "test_nonmaxsuppression_suppress_by_IOU_and_scores": "as many results as scores ask for",
    "test_string_concat": "strings",
    "test_sequence_insert_at_back": "sequences",
    "test_loop11": "a body",
    "test_optional_get_element_optional_sequence": "an optional sequence",
    "test_reduce_sum_empty_set": "nothing to add",
    "test_gelu_tanh_1_expanded": "a function's body",
    "test_ai_onnx_ml_label_encoder_string_int": "another domain",
}
MODULES = (
    "adam",
    "add",
    "ai_onnx_ml.label_encoder",
    "gelu",
    "loop",
    "nonmaxsuppression",
    "nonzero",
    "optionalgetelement",
    "reducesum",
    "sequenceinsert",
    "string_concat",
)
"""Those of `onnx.backend.test.case.node` that make the few."""
AT_LEAST = 1750


def few(tested: type[Backend], toolchains: Callable[[], tuple[str, ...]]) -> Cases:
    """Cases of a few modules: to make all of them takes ten seconds."""

    def import_few(package: ModuleType) -> None:
        for name in MODULES:
            importlib.import_module(f"{package.__name__}.{name}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loader, "import_recursive", import_few)
        return Cases(tested, toolchains)


@pytest.fixture(scope="module")
def cases() -> Iterator[Cases]:
    with backend("collage") as (tested, toolchains):
        yield few(tested, toolchains)


@pytest.mark.guards(
    "strings, sequences, optionals, bodies, data-dependent shapes, empty tensors through the backend",
    "work",
    area="input",
)
@pytest.mark.parametrize("name", FEW)
def test_a_case_passes(name: str, cases: Cases) -> None:
    outcome = cases.run(name)

    assert (outcome.status, outcome.reason) == ("pass", "")
    assert set(outcome.toolchains) <= {"onnxruntime", "openvino", "reference"}


def test_what_one_toolchain_refuses_another_runs(cases: Cases) -> None:
    with backend("onnxruntime") as alone:
        refused = few(*alone).run("test_adam")
    outcome = cases.run("test_adam")

    assert refused.status == "error"
    assert (outcome.status, outcome.toolchains) == ("pass", ("reference",))


@pytest.mark.slow
def test_a_node_and_a_model_run_by_onnx_own_functions() -> None:
    x = np.array([[1, -2], [3, -4]], np.float32)
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    info = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 2]) for name in "xy"]
    graph = onnx.helper.make_graph([node], "relu", info[:1], info[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)])

    prepared = onnx_backend.prepare(model)

    [by_node] = onnx_backend.run_node(node, [x], opset_version=21)
    [whole], [part] = prepared.run([x]), prepared.run({"x": x[:1]})
    for found, wanted in ((by_node, x), (whole, x), (part, x[:1])):
        np.testing.assert_array_equal(found, np.maximum(wanted, 0))
    with pytest.raises(FeedError, match="2 values for the 1 inputs"):
        prepared.run([x, x])
    with pytest.raises(UsageError, match="on the CPU, not on CUDA"):
        onnx_backend.prepare(model, "CUDA")


@pytest.mark.guards("ONNX's 1,884 node tests", "1,867 pass: [onnx-node-tests.md](onnx-node-tests.md)", area="input")
@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_most_pass_and_more_than_by_either_alone(tmp_path: Path) -> None:
    found = document(operators(), {name: run(name, tmp_path) for name in BACKENDS})

    passed = {name: each["passed"] for name, each in found["backends"].items()}
    assert passed["collage"] >= AT_LEAST
    assert passed["collage"] > max(passed["onnxruntime"], passed["reference"])
    assert f"| Collage | {passed['collage']} |" in page(found)
