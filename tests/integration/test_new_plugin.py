"""`collage new-plugin`: what it writes is built offline, keeps the contract, and takes part in a search."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

from collage.cli import main
from collage.commands.new_plugin import KINDS, new_plugin
from collage_core.errors import UsageError
from collage_core.ir.io.model_io import save_model
from collage_testing import GraphBuilder
from tests.integration.short import COMMAND

ROOT = Path(__file__).parents[2]
MOST_LINES = 150


def written(folder: Path, name: str, kind: str) -> Path:
    return new_plugin(name, folder / f"collage-{name}", kind=kind)


def installed(plugin: Path, site: Path) -> dict[str, str]:
    """Build and install a plugin without a network; the environment of processes that find it."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(
        [*command, "--disable-pip-version-check", "--target", str(site), str(plugin)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    known = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT), *([known] if known else [])])}


def said(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow  # builds a distribution, checks it by the kit and searches
@pytest.mark.parametrize("kind", ["runtime", "operators"])
def test_it_is_built_keeps_the_contract_and_takes_part_in_a_search(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="builds the plugin without a network")
    plugin = written(tmp_path, "my_lib", kind)
    environment = installed(plugin, tmp_path / "site")

    assert "1 passed" in said(["-m", "pytest", "-p", "no:cacheprovider", "tests"], plugin, environment)

    g = GraphBuilder("small")
    x = g.input("x", 8, 16)
    save_model(g.model(g.op("Softmax", g.op("Relu", g.op("Add", x, g.weight("b", 16))))), tmp_path / "m.onnx")
    arguments = ["optimize", "m.onnx", "-o", "m.collage", "--toolchains", "my_lib,reference", "--tuning-db", "memory:"]
    tiny = ["--preset", "quick", "--warmup", "1", "--iterations", "3", "--duration", "0.001", "--pin", "add_0=my_lib"]
    report = said(["-P", "-c", COMMAND, *arguments, *tiny], tmp_path, environment)

    assert "my_lib" in report
    np.savez(tmp_path / "in.npz", x=np.ones((8, 16), np.float32))
    said(["-P", "-c", COMMAND, "run", "m.collage", "--inputs", "in.npz"], tmp_path, environment)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_short_and_speaks_of_its_own_name_only(kind: str, tmp_path: Path) -> None:
    plugin = written(tmp_path, "my_lib", kind)

    files = [path for path in plugin.rglob("*") if path.is_file()]
    texts = [path.read_text(encoding="utf-8") for path in files]
    assert {str(path.relative_to(plugin)) for path in files} == {
        "pyproject.toml",
        "collage_my_lib/__init__.py",
        "collage_my_lib/plugin.py",
        "tests/test_plugin.py",
    }
    assert sum(len(text.splitlines()) for text in texts) <= MOST_LINES
    assert not any("example" in text.lower() for text in texts)
    assert 'name = "collage-my-lib"' in "".join(texts)
    assert "class MyLibPlugin:" in "".join(texts)


def test_a_name_may_hold_the_one_of_the_template(tmp_path: Path) -> None:
    plugin = written(tmp_path, "examples", "runtime")

    project = (plugin / "pyproject.toml").read_text(encoding="utf-8")
    assert 'name = "collage-examples"' in project
    assert 'examples = "collage_examples.plugin:plugin"' in project


def test_a_folder_that_cannot_be_made_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")

    with pytest.raises(UsageError, match="cannot be written"):
        new_plugin("mylib", tmp_path / "file" / "there")


def test_the_command_offers_every_kind_there_is() -> None:
    [kind] = [each for each in main.commands["new-plugin"].params if each.name == "kind"]

    assert isinstance(kind.type, click.Choice)
    assert tuple(kind.type.choices) == KINDS
    assert {each.name for each in (ROOT / "testing/collage_testing/template").iterdir() if each.is_dir()} == set(KINDS)


def test_the_command_says_what_to_do_next(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["new-plugin", "mylib", "-o", str(tmp_path / "there")])

    assert result.exit_code == 0
    assert f"pip install -e '{tmp_path}/there[test]'" in result.output
    assert (tmp_path / "there/collage_mylib/plugin.py").is_file()


@pytest.mark.parametrize("name", ["My_lib", "2d", "a-b", "class", "", "../up"])
def test_what_is_no_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no name of a toolchain"):
        new_plugin(name, tmp_path / "there")
    assert not any(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()

    with pytest.raises(UsageError, match=r"there exists; choose another folder with --output"):
        new_plugin("mylib", tmp_path / "there")


def test_without_the_kit_it_says_what_brings_the_templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)

    with pytest.raises(UsageError, match=r"pip install 'collage-testing\[kit\]'"):
        new_plugin("mylib", tmp_path / "there")
    assert not any(tmp_path.iterdir())
