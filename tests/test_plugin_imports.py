"""What distributions of this repository import of each other: a plugin what it depends on, core nothing."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.from_source import ROOT
from tests.plugin_lists import updated

PLUGINS = sorted(ROOT.glob("plugins/*"))
OURS = {"collage_core", "collage", "collage_testing", *(path.name.replace("-", "_") for path in PLUGINS)}


def imported(folder: Path) -> Iterator[tuple[str, str]]:
    """File and package of each import of ours, wherever it stands."""
    for path in sorted(folder.rglob("*.py")):
        if "template" in path.parts:
            continue  # plugins of their own
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.append(node.module)
            for name in names:
                if (package := name.partition(".")[0]) in OURS:
                    yield str(path.relative_to(ROOT)), package


def dependencies(plugin: Path) -> set[str]:
    """Packages of ours that a plugin's distribution depends on."""
    project = tomllib.loads((plugin / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {each.split("[")[0].split("~")[0].split("=")[0].split(">")[0].strip() for each in project["dependencies"]}
    return {name.replace("-", "_") for name in names if name.startswith("collage-")}


def provides_devices(plugin: Path) -> bool:
    project = tomllib.loads((plugin / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return "collage.devices" in project.get("entry-points", {})


def is_runner(plugin: Path) -> bool:
    """Whether it brings machines, where the engine serves jobs."""
    project = tomllib.loads((plugin / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return "collage.runners" in project.get("entry-points", {})


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda path: path.name)
def test_a_plugin_imports_core_and_what_provides_its_devices(plugin: Path) -> None:
    package = plugin.name.replace("-", "_")
    providers = {each.name.replace("-", "_") for each in PLUGINS if provides_devices(each)}
    needed = dependencies(plugin)

    assert "collage_core" in needed
    assert needed <= {"collage_core", "collage_engine", *providers}  # the engine brings the command `collage`
    allowed = {package, *needed, *(["collage"] if is_runner(plugin) else [])}
    strangers = {each for each in imported(plugin / package) if each[1] not in allowed}
    assert strangers == set()


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [
        ("collage_core", {"collage_core"}),
        ("engine/collage", {"collage_core", "collage"}),
        ("testing/collage_testing", {"collage_core", "collage", "collage_testing"}),
    ],
)
def test_core_engine_and_kit_import_no_plugin(folder: str, allowed: set[str]) -> None:
    found = list(imported(ROOT / folder))

    assert len(found) > 100
    assert {each for each in found if each[1] not in allowed} == set()


def test_a_new_folder_is_listed_where_lists_are_needed(tmp_path: Path) -> None:
    text = (ROOT / "tox.ini").read_text(encoding="utf-8")
    assert updated(text) == text
    for name, more in (("collage-other", ""), ("collage-more", '[tool.collage]\ntests = ["more>=3"]\n')):
        (tmp_path / "plugins" / name).mkdir(parents=True)
        (tmp_path / "plugins" / name / "pyproject.toml").write_text(more, encoding="utf-8")

    made = updated(text, tmp_path)

    assert "    -e testing\n    -e plugins/collage-more\n    -e plugins/collage-other\n    -e tests/dist/" in made
    assert "say\n    more>=3\nset_env =\n" in made
    with pytest.raises(ValueError, match="no line '-e testing'"):
        updated("", tmp_path)
