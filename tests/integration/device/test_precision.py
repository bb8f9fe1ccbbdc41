"""A whole `optimize` in a lower precision and with the same bits each time, packaged and run elsewhere."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import onnx_ir
import pytest

from collage.commands.optimize import optimize
from collage.reference import discrepancy_of, evaluate
from collage.report.facts.record import Record
from collage.report.text.explanation import explain
from collage.runtime.package import load_package
from collage.store import open_database
from collage_core.contract import PRECISIONS, weight_named
from collage_core.ir.operators.narrowing import Narrowed, narrowed_products
from collage_testing import GraphBuilder
from tests.integration.device.models import layers
from tests.integration.device.test_optimize import X, options, ran_elsewhere

PLAIN, FP16 = "several@fake:0", "several(precision=fp16)@fake:0"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("precise")


@pytest.fixture(scope="module")
def record(folder: Path) -> Record:
    pins = tuple(f"{node}={FP16}" for node in ("matmul_*", "relu_0", "add_0"))  # who is faster is no matter here
    wanted = options(folder, "several(precision=fp16),near")
    made = optimize(layers(), dataclasses.replace(wanted, max_error=1e-3, deterministic=True, pins=pins))
    made.save(folder / "layers.collage")
    return made.record


def test_each_region_has_its_own_error_and_the_explanation_says_them(record: Record) -> None:
    errors = {node: (region.target, region.error) for region in record.regions for node in region.nodes}

    for product in ("matmul_0", "matmul_1"):
        target, error = errors[product]
        assert target == FP16
        assert 1e-5 < error < 1e-3
    assert errors["softmax_0"][0] == "near"
    assert errors["softmax_0"][1] < 1e-6
    assert 1e-6 < record.max_error < 1e-3
    assert record.deterministic
    text = " ".join(explain(record).split())
    assert f"{FP16} " in text.partition("Largest error at the boundary of a kernel: ")[2]


def test_its_kernels_are_deterministic_and_its_weights_are_the_models_own(folder: Path, record: Record) -> None:
    package = load_package(folder / "layers.collage")

    sites = [site for site, target in package.plan.targets.items() if target.name == FP16]
    variants = {package.plan.artifacts[site].variant for site in sites}
    wanted = {weight_named(key)[1] for site in sites for key in package.plan.artifacts[site].constants.values()}

    assert variants == {"steady"}
    assert {dtype.name for dtype in wanted if dtype} == {"FLOAT16"}
    assert {weight.dtype for weight in package.manifest.weights.values()} == {"FLOAT"}


def test_another_process_computes_what_the_narrowed_model_does(folder: Path, record: Record) -> None:
    ran = ran_elsewhere(folder)

    narrowed = narrowed_products(layers(), PRECISIONS["fp16"])
    assert isinstance(narrowed, Narrowed)
    rounded, exact = (evaluate(model, {"x": X}).values for model in (narrowed.model, layers()))
    assert ran.facts["substitutes"] == 0
    for name, value in ran.outputs.items():
        assert discrepancy_of(value, rounded[name]).error < 1e-6 < discrepancy_of(value, exact[name]).error


def one_stretch() -> onnx_ir.Model:
    """A product, and two operators that are none."""
    g = GraphBuilder("stretch")
    product = g.op("MatMul", g.input("x", 8, 16), g.weight("w", 16, 16))
    return g.model(g.op("Add", g.op("Relu", product), g.weight("b", 16)))


@pytest.mark.slow
def test_what_holds_no_product_is_measured_once_and_each_precision_has_a_plan_of_its_own(tmp_path: Path) -> None:
    wanted = options(tmp_path, "several(precision=fp32),several(precision=fp16)")

    made = optimize(one_stretch(), dataclasses.replace(wanted, max_error=0.02, search="exact"))

    with open_database(wanted.tuning_db) as database:
        kernels = {(record.key.target, record.key.structural_hash) for record in database.all_records()}
    proposed = {(each.target.name, made.pool.costs.source.key(each.sub_graph)) for each in made.pool}
    search, (_, *others) = made.record.search, made.record.comparison.contenders
    assert Counter(name for name, _ in proposed) == {PLAIN: 3, FP16: 3}  # so many would be measured otherwise
    assert Counter(name for name, _ in kernels) == {PLAIN: 3, FP16: 1}
    assert (search.distinct_candidates, search.exact) == (4, True)
    assert {each.name for each in others if each.kind == "single"} == {PLAIN, FP16}  # each runs the whole model
    assert not any(each.failed for each in others)
