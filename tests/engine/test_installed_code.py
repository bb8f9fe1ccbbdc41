"""A release is its version; a source tree is the content of its files."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collage.installed_code import code_hash, plugin_version
from collage_core.hookspecs import ENTRY_POINT_GROUP, hookimpl
from collage_core.registry import Registry, Toolchain
from tests.from_source import metadata

TEXT = """
from collage_core.hookspecs import hookimpl

class Plugin:
    @hookimpl
    def collage_targets(self, host):
        return []

plugin = Plugin()
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on Python's path, with the package `some_plugin`."""
    package = tmp_path / "some_plugin"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "plugin.py").write_text(TEXT, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("some_plugin")]:
        del sys.modules[name]


@pytest.fixture
def installed(site: Path) -> Callable[..., str]:
    def install(version: str = "1.0", record: str | None = None, requires: str = "") -> str:
        """Install a version, found by its metadata; the version its results belong to."""
        metadata(site, "collage-some", version, {ENTRY_POINT_GROUP: {"some": "some_plugin.plugin:plugin"}})
        [facts] = site.glob("collage_some*")
        if record is not None:
            (facts / "RECORD").write_text(record, encoding="utf-8")
        if requires:
            with (facts / "METADATA").open("a", encoding="utf-8") as stream:
                stream.write(f"Requires-Dist: {requires}\n")
        importlib.invalidate_caches()
        found = plugin_version(Registry.discover().toolchains["some"])
        for path in (*facts.iterdir(), facts):
            path.unlink() if path.is_file() else path.rmdir()
        return found

    return install


def test_a_release_is_its_version_whatever_its_files_hold(site: Path, installed: Callable[..., str]) -> None:
    listed = "some_plugin/__init__.py,sha256=x,0\nsome_plugin/plugin.py,sha256=y,1\n"
    assert installed("1.0", listed) == "collage-some 1.0"
    assert installed("1.1", listed) == "collage-some 1.1"

    (site / "some_plugin" / "plugin.py").write_text(f"{TEXT}#", encoding="utf-8")

    assert installed("1.0", listed) == "collage-some 1.0"


@pytest.mark.parametrize("record", [None, "_collage_some.pth,,\ncollage_some-1.0.dist-info/METADATA,,\n"])
def test_a_source_tree_is_another_version_with_each_change(
    record: str | None, site: Path, installed: Callable[..., str]
) -> None:
    found = [installed("1.0", record), installed("1.1", record)]
    for path, text in (("plugin.py", f"{TEXT}#"), ("more.txt", ""), ("more.txt", "data")):
        (site / "some_plugin" / path).write_text(text, encoding="utf-8")
        found.append(installed("1.0", record))
    (site / "some_plugin" / "more.txt").rename(site / "some_plugin" / "other.txt")
    found.append(installed("1.0", record))

    assert found[0].startswith("collage-some 1.0+")
    assert len(set(found)) == len(found)


def test_what_python_compiles_and_when_files_were_written_do_not_count(
    site: Path, installed: Callable[..., str]
) -> None:
    before = installed()
    (site / "some_plugin" / "__pycache__").mkdir(exist_ok=True)
    (site / "some_plugin" / "__pycache__" / "x.pyc").write_bytes(b"x")
    (site / "some_plugin" / "plugin.py").write_text(TEXT, encoding="utf-8")

    assert installed() == before


def test_the_provider_that_a_plugin_requires_counts(site: Path, installed: Callable[..., str]) -> None:
    (site / "provider.py").write_text("provider = 1\n", encoding="utf-8")
    metadata(site, "some-provider", "2.0", {"collage.devices": {"far": "provider:provider"}})
    metadata(site, "some-library", "3.0", {"console_scripts": {"some": "provider:provider"}})

    before = installed(requires="some-provider>=1; python_version > '3'\nRequires-Dist: some-library")
    (site / "provider.py").write_text("provider = 2\n", encoding="utf-8")
    after = installed(requires="some-provider>=1\nRequires-Dist: collage-nobody-has")

    assert ", some-provider 2.0+" in before
    assert "some-library" not in before
    assert before.partition(",")[0] == after.partition(",")[0]
    assert before != after


def test_a_plugin_without_a_distribution_is_its_module() -> None:
    class Plugin:
        @hookimpl
        def collage_targets(self, host: object) -> list[object]:
            return []

    assert plugin_version(Toolchain("some", Plugin())) == f"{__name__}+{code_hash(__name__)[:12]}"


def test_a_plugin_of_a_module_without_a_file_is_unknown() -> None:
    class Plugin:
        __module__ = "nowhere.at.all"

        @hookimpl
        def collage_targets(self, host: object) -> list[object]:
            return []

    assert plugin_version(Toolchain("some", Plugin())) == ""
    assert code_hash("nowhere") == code_hash("sys") == ""
