"""What Python code gets besides the commands: models in memory, keywords, progress, reports that show themselves."""

from __future__ import annotations

import dataclasses
import html
import io
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
import rich.console
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console

import collage
from collage.keywords import BenchKeywords, OptimizeKeywords
from collage.options import BenchOptions, OptimizeOptions
from collage.report.facts.compare_facts import CompareReport, ValueComparison
from collage.report.progress import BarProgress, LineProgress, SilentProgress, progress_wanted
from collage.report.shown import Explanation, ShownCompareReport
from collage.report.text.explanation import explain
from collage_core.errors import ExternalDataError, ModelFileError
from collage_core.ir.io.model_io import model_given
from tests.engine.report.records import RECORD


def proto(*, sparse: bool = False) -> onnx.ModelProto:
    """y = x + w."""
    values = {"x": helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])}
    weight = numpy_helper.from_array(np.array([1, 0, 2], np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "sum",
        [values["x"]],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])],
        [] if sparse else [weight],
    )
    if sparse:
        elements = helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0])
        places = helper.make_tensor("places", TensorProto.INT64, [2], [0, 2])
        graph.sparse_initializer.append(helper.make_sparse_tensor(elements, places, [3]))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@dataclasses.dataclass
class Program:
    """What `torch.onnx.export` returns, as far as it is read."""

    model: Any
    model_proto: onnx.ModelProto


def weight_of(model: Any) -> list[float]:
    assert isinstance(model, onnx_ir.Model)
    tensor = model.graph.initializers["w"].const_value
    assert tensor is not None
    return [float(each) for each in tensor.numpy()]


@pytest.mark.parametrize("sparse", [False, True])
def test_a_model_is_taken_in_every_form_that_python_has_it_in(sparse: bool) -> None:
    given = proto(sparse=sparse)
    read = onnx_ir.serde.deserialize_model(proto())

    for form in (given, given.SerializeToString(), Program("of another library", given)):
        assert weight_of(model_given(form)) == [1.0, 0.0, 2.0]
    assert model_given(read) is read
    assert model_given(Program(read, given)) is read
    assert model_given(Path("model.onnx")) == Path("model.onnx")
    assert given == proto(sparse=sparse)  # the caller's own, which reading would have changed


def test_what_is_no_model_is_refused_and_said_what_one_is() -> None:
    with pytest.raises(ModelFileError, match=r"'<list>' .* give a path, bytes, an onnx.ModelProto"):
        model_given([1, 2])
    with pytest.raises(ModelFileError, match="<bytes>"):
        model_given(b"no model at all")
    with pytest.raises(ModelFileError, match="holds no graph"):
        model_given(onnx.ModelProto())


def test_weights_in_another_file_need_the_path_of_the_model() -> None:
    outside = proto()
    outside.graph.initializer[0].data_location = TensorProto.EXTERNAL
    outside.graph.initializer[0].external_data.add(key="location", value="weights.bin")

    with pytest.raises(ExternalDataError, match=r"must hold its weights itself; give the path of its file"):
        model_given(outside)


@pytest.mark.parametrize(
    ("keywords", "options", "named"),
    [
        (OptimizeKeywords, OptimizeOptions, {"toolchains", "exclude", "input_shapes", "beside_others"}),
        (BenchKeywords, BenchOptions, {"toolchains", "exclude", "plans"}),
    ],
)
def test_keywords_are_the_fields_of_the_options_in_name_and_type(keywords: Any, options: Any, named: set[str]) -> None:
    fields = {field.name: field.type for field in dataclasses.fields(options) if field.name not in named}

    assert {name: each.__forward_arg__ for name, each in keywords.__annotations__.items()} == fields


@pytest.mark.parametrize(
    ("function", "option", "said"),
    [
        (collage.optimize, "presett", "optimize() has no option 'presett'; did you mean 'preset'?"),
        (collage.bench, "round", "bench() has no option 'round'; did you mean 'rounds'?"),
    ],
)
def test_a_misspelt_option_is_named_before_anything_is_read(function: Any, option: str, said: str) -> None:
    with pytest.raises(TypeError) as caught:
        function("no_such.onnx", **{option: 1})

    assert str(caught.value) == said


def test_progress_is_shown_where_somebody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    own = LineProgress(io.StringIO())

    assert progress_wanted(own) is own
    assert isinstance(progress_wanted(None), SilentProgress)  # standard error is no terminal here
    assert isinstance(progress_wanted(False), SilentProgress)
    assert isinstance(progress_wanted(True), LineProgress)
    for owner, place, shown in ((Console, "is_terminal", True), (rich.console, "_is_jupyter", lambda: True)):
        with monkeypatch.context() as patch:
            patch.setattr(owner, place, shown)
            assert isinstance(progress_wanted(None), BarProgress)
            assert isinstance(progress_wanted(False), SilentProgress)


def compared() -> CompareReport:
    value = ValueComparison(name="y<0>", place="output", error=0.25, passed=False, reason="it is 4 instead of 3")
    return CompareReport(model="m.onnx", package="m.collage", rtol=1e-3, atol=0.0, values=(value,))


def test_a_report_shows_itself_as_text_and_in_a_notebook() -> None:
    shown = ShownCompareReport.of(compared())

    assert shown == ShownCompareReport.of(compared())
    assert not shown.passed
    assert "y<0>" in str(shown)
    assert "it is 4 instead of 3" in str(shown)
    assert "y&lt;0&gt;" in shown._repr_html_()
    assert shown._repr_html_().startswith("<pre")


def test_an_explanation_is_that_of_the_command_for_a_record_or_a_package() -> None:
    explained = collage.explain(RECORD)

    assert isinstance(explained, Explanation)
    assert str(explained) == explain(RECORD).rstrip("\n")
    assert html.escape(str(explained)) in explained._repr_html_()
    with pytest.raises(collage.CollageError, match=r"no_such.collage"):
        collage.explain("no_such.collage")
