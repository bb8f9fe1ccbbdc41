"""A quantised model goes to the toolchains in whole operators, and what they make of it is checked as it can be."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
from click.testing import CliRunner

from benchmarks.models import MODELS as SUITE
from collage.cli import main
from collage.commands.inspect import inspect
from collage.commands.optimize import optimize
from collage.options import OptimizeOptions
from collage.prepare.steps import prepare
from collage.reference import discrepancy_of, evaluate
from collage.reference.rounded import rounded_problem
from collage.runtime.package import load_package, save_package
from collage_core.fusion import quantised_groups
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits, mask_of
from collage_core.ir.io.model_io import load_model
from collage_core.passes.call_sites import call_sites
from tests.core.fusion.qdq import brute_groups
from tests.integration.commands.conftest import BOTH, TINY
from tests.integration.commands.models import Arrays, inputs, reference, written
from tests.integration.commands.mutation import THREADS, Workshop
from tests.integration.commands.quantising import quantised

pytestmark = pytest.mark.plugins

NARROW = (onnx_ir.DataType.INT8, onnx_ir.DataType.UINT8)
INTEGER_KERNELS = {"QLinearConv", "QLinearMatMul", "QGemm", "QLinearAdd", "QLinearGlobalAveragePool"}


@pytest.fixture(scope="module")
def cnn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two convolutions with a skip, pooled and classified, quantised."""
    model = written("cnn", tmp_path_factory.mktemp("cnn"))
    return quantised(model, lambda seed: inputs(model, seed))


def right(actual: Arrays, expected: Arrays) -> None:
    """Outputs are the reference's, as far as rounding leaves them alone."""
    assert list(actual) == list(expected)
    for name, wanted in expected.items():
        assert rounded_problem(discrepancy_of(actual[name], wanted), actual[name], wanted, roundings=5) == ""


def optimized(model: Path, folder: Path, feeds: Arrays) -> Path:
    """The package of a mixed plan whose kernels hold whole quantised operators, and whose numbers are right."""
    found = optimize(model, OptimizeOptions(toolchains=BOTH, tuning_db="memory:", **TINY))
    path = folder / "plan.collage"
    found.save(path)

    graph = DataflowGraph(prepare(load_model(model)))
    groups = quantised_groups(graph)
    regions = [mask_of(map(graph.index_of, region.nodes)) for region in found.record.regions]
    assert all(not group & nodes or not group & ~nodes for group in groups for nodes in regions)
    used = {region.toolchain for region in found.record.regions}
    assert used == {"onnxruntime", "openvino"}, (found.record.refusals, found.record.comparison, found.record.notes)
    assert "fall apart" not in found.record.search.left_out
    session = found.session()
    names = [each.name for each in session.get_outputs()]
    expected = evaluate(graph.model, feeds).values
    right(dict(zip(names, session.run(None, feeds), strict=True)), {name: expected[name] for name in names})
    return path


def crossing(package: Path) -> list[onnx_ir.Value]:
    """What the kernels of a package pass each other."""
    sites = call_sites(load_package(package).plan.model)
    return [value for site in sites for value in site.outputs if not value.is_graph_output()]


@pytest.mark.guards("a quantised model in the QDQ form")
@pytest.mark.usefixtures("alternating_costs")
@pytest.mark.slow
def test_a_quantised_network_runs_on_two_toolchains_and_only_few_bits_go_between_them(
    cnn: Path, tmp_path: Path
) -> None:
    feeds = inputs(cnn)
    package = optimized(cnn, tmp_path, feeds)

    graph = DataflowGraph(prepare(load_model(cnn)))
    assert set(quantised_groups(graph)) == brute_groups(graph)
    expected = reference(cnn, feeds)
    right(dict(evaluate(graph.model, feeds, keep=expected.__contains__).values), expected)
    assert all(value.dtype in NARROW for value in crossing(package))
    opened = load_package(package)
    for site in call_sites(opened.plan.model):
        kinds = {node.op_type for node in site.kernel_function().model.graph}
        if site.toolchain == "onnxruntime" and kinds & {"Conv", "Gemm"}:
            made = onnx.load(io.BytesIO(opened.plan.artifacts[site.name].files["model.onnx"]))
            assert {node.op_type for node in made.graph.node} & INTEGER_KERNELS
    said = CliRunner().invoke(main, ["compare", str(cnn), str(package)])
    assert said.exit_code == 0, said.output


@pytest.mark.guards("nobody takes a quantised operator whole, or nobody gets it right")
def test_a_toolchain_of_single_operators_gets_the_parts_where_nobody_takes_the_whole(cnn: Path) -> None:
    report = inspect(cnn, OptimizeOptions(toolchains="reference"))

    [alone] = report.targets
    assert alone.claimed_nodes == alone.candidates == report.kernel_nodes


@pytest.mark.guards("a quantised model in the QDQ form")
@pytest.mark.slow
@pytest.mark.usefixtures("alternating_costs")
@pytest.mark.parametrize("name", ["mnist", "squeezenet"])
def test_quantised_models_of_the_suite_do_too(name: str, tmp_path: Path) -> None:
    model = tmp_path / f"{name}.onnx"
    onnx.save(SUITE[name].build(), model)
    qdq = quantised(model, SUITE[name].make_inputs)

    optimized(qdq, tmp_path, SUITE[name].make_inputs(7))


# What is wrong is seen


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    with Workshop() as workshop:
        yield workshop


@pytest.fixture(scope="module")
def package(cnn: Path, workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kernel for each quantised operator and each other node, every other one on OpenVINO."""
    graph = DataflowGraph(prepare(load_model(cnn)))
    groups = quantised_groups(graph)
    alone = [1 << index for index in iterate_bits(graph.needs_kernel & ~sum(groups))]
    toolchains = ("onnxruntime", "openvino")
    path = tmp_path_factory.mktemp("package") / "right.collage"
    workshop.package(graph, [(toolchains[n % 2], nodes) for n, nodes in enumerate((*groups, *alone))], path)
    return path


def test_what_is_right_passes(cnn: Path, package: Path) -> None:
    said = CliRunner().invoke(main, ["compare", str(cnn), str(package)])

    assert said.exit_code == 0, said.output


@pytest.mark.guards("a quantised kernel with a wrong zero point, scale, bias or channel, or that rounds down")
@pytest.mark.parametrize(
    "kind",
    ["zero point", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("channels", "scale", "bias"))],
)
def test_a_wrong_parameter_of_any_operator_is_seen(
    kind: str, cnn: Path, package: Path, workshop: Workshop, tmp_path: Path
) -> None:
    passed, tried = [], 0
    for name in [site.name for site in call_sites(load_package(package).plan.model)]:
        plan = load_package(package).plan
        model = plan.model
        site = next(site for site in call_sites(model) if site.name == name)
        inner = _concerned(site.kernel_function().model.graph, kind)
        if inner is None:
            continue
        tried += 1
        outer = next(value for value in site.constants if value.const_value is inner.const_value)
        assert outer.const_value is not None
        outer.const_value = onnx_ir.tensor(_spoiled(outer.const_value.numpy(), kind), name=outer.name)
        artifacts = {**plan.artifacts, name: workshop.lowered(plan.targets[name], site.kernel_function())}
        wrong = tmp_path / f"{name}.collage"
        save_package(wrong, model, artifacts, plan.targets, None, threads=THREADS, model_name="m", model_sha256="")
        if CliRunner().invoke(main, ["compare", str(cnn), str(wrong)]).exit_code != 1:
            passed.append((name, [node.op_type for node in site.kernel_function().model.graph]))
    assert tried >= 2
    assert passed == []


def _concerned(graph: onnx_ir.Graph, kind: str) -> onnx_ir.Value | None:
    """The parameter of a kernel's last quantizer, or of its weight or bias, that is to be wrong."""
    for node in reversed(list(graph)):
        read = node.inputs
        if kind in ("zero point", "scale") and node.op_type == "QuantizeLinear":
            wanted = read[2 if kind == "zero point" else 1]
            elsewhere = [other for other in graph if other is not node and wanted in other.inputs]
            return None if elsewhere else wanted  # what only moves values converts back and forth alike
        if node.op_type in ("Conv", "Gemm") and kind in ("channels", "bias"):
            weight = read[1 if kind == "channels" else 2]
            made = None if weight is None else weight.producer()
            return None if made is None else made.inputs[0]
    return None


def _spoiled(array: Any, kind: str) -> Any:
    match kind:
        case "zero point":
            return (array + np.where(array > 0, -1, 1)).astype(array.dtype)
        case "scale":
            return (array * 1.1).astype(array.dtype)
        case "channels":
            return array[[1, 0, *range(2, len(array))]]
    return np.zeros_like(array)
