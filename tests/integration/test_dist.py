"""A plugin installed as a user would install one, through the command line and in real worker processes."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sysconfig
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
import pytest

from collage.reference import discrepancy_of, evaluate
from collage_core.hookspecs import ENTRY_POINT_GROUP
from collage_core.ir.io.model_io import save_model
from collage_core.registry import Registry, load_toolchain
from collage_testing import GraphBuilder, operator_models
from collage_testing.kit import check_plugin

ROOT = Path(__file__).parents[2]
PROJECTS = sorted(
    [
        ROOT / "pyproject.toml",
        *ROOT.glob("*/pyproject.toml"),
        *ROOT.glob("plugins/*/pyproject.toml"),
        *ROOT.glob("tests/dist/*/pyproject.toml"),
    ]
)


def is_installed(distribution: str) -> bool:
    try:
        importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


needs_sampler = pytest.mark.skipif(not is_installed("collage-sampler"), reason="collage-sampler is not installed")


@pytest.mark.parametrize("project", PROJECTS, ids=lambda path: path.parent.name)
def test_installed_entry_points_are_those_of_the_project(project: Path) -> None:
    facts = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    if not is_installed(facts["name"]):
        pytest.skip(f"{facts['name']} is not installed")

    found = importlib.metadata.distribution(facts["name"]).entry_points
    installed = {entry.name: entry.value for entry in found if entry.group == ENTRY_POINT_GROUP}

    assert installed == facts.get("entry-points", {}).get(ENTRY_POINT_GROUP, {}), "install again: `tox -r`"


@needs_sampler
def test_the_good_plugin_is_found_and_the_broken_one_is_a_reason() -> None:
    registry = Registry.discover()

    assert {"reference", "sampler"} <= set(registry.toolchains)
    assert registry.toolchains["sampler"].distribution.startswith("collage-sampler ")
    [failure] = registry.failures
    assert failure.name == "sampler-broken"
    assert failure.distribution.startswith("collage-sampler ")
    assert failure.reason == "ModuleNotFoundError: No module named 'a_library_that_nobody_has'"


@pytest.mark.slow
@needs_sampler
def test_the_plugin_keeps_the_contract() -> None:
    conformance = check_plugin(load_toolchain("sampler"), operator_models())

    assert "Add of two inputs" in conformance.ran


# Through the command line


def model() -> onnx_ir.Model:
    """Mul, Add, Relu and Mul for the sampler, MatMul and Softmax for another; one value is read twice."""
    g = GraphBuilder("small")
    x = g.input("x", 8, 16)
    value = g.op("Relu", g.op("Add", g.op("Mul", x, g.weight("scale", 16)), x))
    value = g.op("Softmax", g.op("MatMul", value, g.weight("w", 16, 16)))
    value = g.op("Mul", value, value)
    return g.model(g.op("Reshape", value, g.ints(128)))


def collage(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs the installed command in a process of its own."""
    command = Path(sysconfig.get_path("scripts"), "collage")
    return subprocess.run(
        [str(command), *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "COLUMNS": "200", "COLLAGE_TUNING_DB": str(folder / "tuning.sqlite")},
        capture_output=True,
        text=True,
        check=False,
    )


def optimized(folder: Path, toolchains: str) -> Mapping[str, Any]:
    """Optimizes the model to `small.collage`; what `--json` says."""
    save_model(model(), folder / "small.onnx")
    done = collage(
        *("optimize", "small.onnx", "-o", "small.collage", "--toolchains", toolchains),
        *("--preset", "quick", "--iterations", 3, "--threads", 1, "--json", "facts.json"),
        folder=folder,
    )
    assert done.returncode == 0, done.stderr
    facts: Mapping[str, Any] = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
    return facts


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dist")


@pytest.fixture(scope="module")
def facts(folder: Path) -> Mapping[str, Any]:
    return optimized(folder, "sampler,reference")


@needs_sampler
def test_optimize_gives_the_plugin_what_it_does_best(facts: Mapping[str, Any]) -> None:
    toolchains = {node: region["toolchain"] for region in facts["regions"] for node in region["nodes"]}

    assert toolchains["matmul_0"] == toolchains["softmax_0"] == "reference"
    assert toolchains["mul_0"] == toolchains["add_0"] == toolchains["relu_0"] == toolchains["mul_1"] == "sampler"
    assert facts["max_error"] < 1e-6
    reasons = [refusal["reason"] for refusal in facts["refusals"]]
    assert "no predicate takes MatMul" in reasons


def check_package(folder: Path) -> None:
    """Runs the package in a fresh process on inputs of its own and compares."""
    x = np.random.default_rng(7).normal(size=(8, 16)).astype(np.float32)
    np.savez(folder / "x.npz", x=x)

    done = collage("run", "small.collage", "--inputs", "x.npz", "--save-outputs", "y.npz", folder=folder)

    assert done.returncode == 0, done.stderr
    expected = evaluate(model(), {"x": x}).values
    [name] = [str(value.name) for value in model().graph.outputs]
    with np.load(folder / "y.npz") as outputs:
        assert discrepancy_of(outputs[name], expected[name]).error < 1e-6


@needs_sampler
@pytest.mark.usefixtures("facts")
def test_the_package_runs_in_a_fresh_process(folder: Path) -> None:
    check_package(folder)


@needs_sampler
@pytest.mark.usefixtures("facts")
def test_explain_names_the_plugin_and_why_the_broken_one_is_none(folder: Path) -> None:
    done = collage("explain", "small.collage", folder=folder)

    assert done.returncode == 0, done.stderr
    assert "collage-sampler" in done.stdout
    assert "sampler-broken (ModuleNotFoundError" in done.stdout


@needs_sampler
def test_the_broken_plugin_named_on_purpose_is_misuse_with_its_reason(folder: Path) -> None:
    save_model(model(), folder / "other.onnx")

    done = collage("inspect", "other.onnx", "--toolchains", "sampler-broken", folder=folder)

    assert done.returncode == 2
    assert "No module named 'a_library_that_nobody_has'" in " ".join(done.stderr.split())
    assert "itself failed" not in done.stderr


@needs_sampler
@pytest.mark.plugins
@pytest.mark.slow
@pytest.mark.skipif(not is_installed("collage-onnxruntime"), reason="collage-onnxruntime is not installed")
def test_the_plugin_mixes_with_those_of_this_repository(tmp_path: Path) -> None:
    facts = optimized(tmp_path, "sampler,onnxruntime")

    assert {region["toolchain"] for region in facts["regions"]} <= {"sampler", "onnxruntime"}
    assert facts["comparison"]["best_single"] in ("onnxruntime", "onnxruntime(spin=true)")
    check_package(tmp_path)
