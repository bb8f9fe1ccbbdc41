"""Pages and readable models of real plans, mixed of two toolchains."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result

from collage.cli import main
from collage.runtime.package import load_package
from tests.integration.commands.conftest import BOTH, TINY_ARGUMENTS, alternating
from tests.integration.commands.models import inputs, reference, written

pytestmark = [pytest.mark.plugins]


def collage(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, its package of several kernels, its page and its JSON."""
    folder = tmp_path_factory.mktemp("reports")
    model = written("transformer", folder)
    with alternating():
        done = collage(
            *("optimize", model, "-o", folder / "out.collage", "--toolchains", BOTH, "--json", folder / "out.json"),
            *("--report", folder / "out.html", "--tuning-db", "memory:", *TINY_ARGUMENTS),
        )
    assert done.exit_code == 0, done.stderr
    assert len(record(folder)["regions"]) > 2
    return folder


def record(folder: Path) -> Any:
    return load_package(folder / "out.collage").plan.record


def data_of(page: Path) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    [plan] = json.loads(found[1])
    return plan


def test_a_page_has_the_kernels_of_the_plan_with_their_operators(made: Path) -> None:
    plan = data_of(made / "out.html")

    regions = record(made)["regions"]
    assert list(plan["regions"]) == [region["id"] for region in regions]
    drawn = {box["region"]: box for box in plan["levels"]["model"]["boxes"] if box["kind"] == "kernel"}
    assert set(drawn) == set(plan["regions"])
    for region in regions:
        boxes = plan["levels"][drawn[region["id"]]["opens"]]["boxes"]
        assert sorted(box["detail"] for box in boxes if box["kind"] == "operator") == sorted(region["nodes"])


def test_the_page_of_a_package_is_that_of_optimize(made: Path, tmp_path: Path) -> None:
    again = collage("report", made / "out.collage", "-o", tmp_path / "again.html")

    assert again.exit_code == 0, again.output
    assert (tmp_path / "again.html").read_bytes() == (made / "out.html").read_bytes()


def test_a_record_has_a_page_without_the_graph(made: Path, tmp_path: Path) -> None:
    done = collage("report", made / "out.json", "-o", tmp_path / "record.html")

    assert done.exit_code == 0, done.output
    assert data_of(tmp_path / "record.html")["levels"] == {}
    assert record(made)["decision"] in (tmp_path / "record.html").read_text()


@pytest.mark.parametrize("content", [b"nonsense", b"[1, 2]", b'{"schema_version": 99}', b"PK\x05\x06" + bytes(18)])
def test_what_is_neither_package_nor_record_is_refused_and_nothing_is_written(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "odd").write_bytes(content)

    done = collage("report", tmp_path / "odd", "-o", tmp_path / "out.html")

    assert done.exit_code == 1
    assert done.stderr.startswith("Error: ")
    assert len(done.stderr.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["odd"]


@pytest.mark.parametrize("command", ["report", "export"])
def test_a_package_is_not_overwritten_by_what_is_made_of_it(made: Path, command: str) -> None:
    before = (made / "out.collage").read_bytes()

    done = collage(command, made / "out.collage", "-o", made / "out.collage")

    assert done.exit_code == 2
    assert (made / "out.collage").read_bytes() == before


@pytest.fixture(scope="module")
def exported(made: Path) -> Path:
    path = made / "exported.onnx"
    done = collage("export", made / "out.collage", "-o", path)
    assert done.exit_code == 0, done.output
    assert "kernels as calls of functions" in done.stdout
    return path


def test_an_exported_model_passes_onnxs_checker_and_runs_in_onnx_runtime(made: Path, exported: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    onnx.checker.check_model(str(exported), full_check=True)
    feeds = inputs(made / "transformer.onnx")

    session = onnxruntime.InferenceSession(exported, providers=["CPUExecutionProvider"])
    got = session.run(None, feeds)

    expected = reference(made / "transformer.onnx", feeds)
    for output, value in zip(session.get_outputs(), got, strict=True):
        np.testing.assert_allclose(value, expected[output.name], rtol=1e-3, atol=1e-4)


def test_functions_say_what_they_do_and_calls_what_they_hold(made: Path, exported: Path) -> None:
    model = onnx.load(exported)
    regions = {region["id"]: region for region in record(made)["regions"]}
    functions = {function.name for function in model.functions}
    calls = [node for node in model.graph.node if node.domain == "collage"]

    assert [call.name.split()[0] for call in calls] == list(regions)
    for call in calls:
        region = regions[call.name.split()[0]]
        facts = {entry.key: entry.value for entry in call.metadata_props}
        assert call.op_type in functions
        assert re.fullmatch(rf"{region['toolchain']} · .*\S", call.op_type)
        assert not re.search(r"[0-9a-f]{10}", call.op_type), "a hash is nothing to read"
        assert facts["collage.target"] == region["target"]
        assert facts["collage.predicted"].endswith(" us")
        assert facts["collage.share"].endswith(" %")
        assert sorted(json.loads(facts["collage.nodes"])) == sorted(region["nodes"])
    assert {entry.key: entry.value for entry in model.metadata_props}["collage.decision"] == record(made)["decision"]


def test_versions_of_collage_and_of_plugins_are_shown() -> None:
    lines = collage("--version").stdout.splitlines()

    assert lines[0].startswith("collage ")
    assert "onnxruntime: collage-onnxruntime 0.1.0" in lines
    assert "reference: collage-engine 0.1.0" in lines
