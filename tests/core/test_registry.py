"""Discovery isolates what fails; registration refuses what is not of the contract."""

from __future__ import annotations

import importlib.metadata
import signal
import sys
import time
import types
from collections.abc import Callable
from typing import Any

import pytest

from collage_core import plugin_calls
from collage_core.contract import (
    Host,
    Target,
)
from collage_core.errors import PluginError
from collage_core.hookspecs import ENTRY_POINT_GROUP, hookimpl
from collage_core.registry import Registry, Toolchain, load_plugin, load_toolchain

HOST = Host(system="Mock mock", cpu="mock", physical_cores=1, cpu_flags=frozenset(), memory_bytes=1 << 30)
TARGET = Target(toolchain="mock", fingerprint="mock 1")


class Good:
    @hookimpl
    def collage_targets(self) -> list[Target]:
        return [TARGET]


class FakeDistribution(importlib.metadata.Distribution):
    """A distribution without files."""

    def __init__(self, name: str, version: str = "1.0") -> None:
        self._text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"

    def read_text(self, filename: str) -> str | None:
        return self._text if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any:
        raise NotImplementedError


Install = Callable[..., None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Pretends that distributions with entry points are installed, and nothing else is."""
    entries: list[importlib.metadata.EntryPoint] = []
    module = types.ModuleType("plugins_of_the_test")
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def entry_points(*, group: str, name: str | None = None) -> list[importlib.metadata.EntryPoint]:
        assert group == ENTRY_POINT_GROUP
        return [entry for entry in entries if name in (None, entry.name)]

    def add(name: str, plugin: object = None, *, distribution: str = "some-plugin", value: str = "") -> None:
        attribute = f"plugin_{len(entries)}"
        setattr(module, attribute, plugin)
        entry = importlib.metadata.EntryPoint(name, value or f"{module.__name__}:{attribute}", ENTRY_POINT_GROUP)
        vars(entry).update(dist=FakeDistribution(distribution))
        entries.append(entry)

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    return add


# Discovery


def test_what_fails_to_load_costs_only_itself_and_says_why(install: Install) -> None:
    install("zeta", Good())
    install("absent", value="a_module_that_nobody_has:plugin", distribution="broken-plugin")
    install("attribute", value="plugins_of_the_test:no_such_attribute")
    install("alpha", Good())

    registry = Registry.discover()

    assert list(registry.toolchains) == ["alpha", "zeta"]
    assert registry.toolchains["alpha"].distribution == "some-plugin 1.0"
    absent, attribute = registry.failures
    assert (absent.name, absent.distribution) == ("absent", "broken-plugin 1.0")
    assert absent.reason == "ModuleNotFoundError: No module named 'a_module_that_nobody_has'"
    assert "no_such_attribute" in attribute.reason


@pytest.mark.parametrize("error", [SystemExit(3), ZeroDivisionError("of the\nworst kind")])
def test_a_module_that_raises_when_imported_is_a_failure(
    install: Install, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    class Rude:
        def find_spec(self, name: str, path: object, target: object = None) -> None:
            if name == "rude_plugin":
                raise error

    monkeypatch.setattr(sys, "meta_path", [Rude(), *sys.meta_path])
    install("rude", value="rude_plugin:plugin")
    install("good", Good())

    registry = Registry.discover()

    assert list(registry.toolchains) == ["good"]
    [failure] = registry.failures
    assert failure.reason.startswith(type(error).__name__)
    assert "\n" not in failure.reason


def test_two_distributions_of_one_name_lose_both_and_are_both_named(install: Install) -> None:
    install("twice", Good(), distribution="first-plugin")
    install("twice", Good(), distribution="other-plugin")
    install("once", Good())

    registry = Registry.discover()

    assert list(registry.toolchains) == ["once"]
    [failure] = registry.failures
    assert failure.name == "twice"
    assert "first-plugin 1.0 and other-plugin 1.0 both bring a toolchain of this name" in failure.reason
    with pytest.raises(PluginError, match="several distributions"):
        load_toolchain("twice")


def test_one_distribution_seen_twice_on_the_path_is_one(install: Install) -> None:
    install("mock", Good())
    install("mock", value="plugins_of_the_test:plugin_0")

    assert list(Registry.discover().toolchains) == ["mock"]
    assert load_toolchain("mock").name == "mock"


def test_a_hook_that_is_not_decorated_is_named(install: Install) -> None:
    class HalfMarked(Good):
        def collage_lower(self, function: object) -> list[object]:  # not decorated
            return []

    module = types.ModuleType("half_marked")
    module.collage_targets = hookimpl(lambda: [TARGET])  # type: ignore[attr-defined]
    module.collage_load = lambda artifact: None  # type: ignore[attr-defined]
    install("half", HalfMarked())
    install("module", module)

    half, other = Registry.discover().failures

    assert half.reason == "collage_lower has no @hookimpl, so it would never be called"
    assert other.reason == "collage_load has no @hookimpl, so it would never be called"


def test_a_plugin_that_implements_no_hook_is_a_failure(install: Install) -> None:
    class Forgetful:
        def collage_targets(self) -> list[Target]:  # not decorated
            return [TARGET]

    install("forgetful", Forgetful())
    install("module", types.ModuleType("empty"))

    registry = Registry.discover()

    assert not registry.toolchains
    forgetful, module = registry.failures
    assert forgetful.reason == "Forgetful implements no hook; decorate its methods with @hookimpl"
    assert module.reason.startswith("module implements no hook")


def test_a_name_nobody_brings_is_refused(install: Install) -> None:
    with pytest.raises(PluginError, match="no installed distribution brings it"):
        load_toolchain("nobody")


def test_a_registry_can_be_made_of_toolchains_in_place() -> None:
    registry = Registry.of(Toolchain("b", Good()), Toolchain("a", Good()))

    assert list(registry.toolchains) == ["a", "b"]
    assert not registry.failures


def test_a_plugin_under_development_is_loaded_by_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("developed")
    vars(module)["plugin"] = Good()
    monkeypatch.setitem(sys.modules, "developed", module)

    assert load_plugin("developed:plugin", "mine").implements("collage_targets")
    for wrong in ("developed:nothing", "no_such_module:plugin", "developed"):
        with pytest.raises(PluginError) as caught:
            load_plugin(wrong, "mine")
        assert (caught.value.toolchain, caught.value.hook) == ("mine", "import")


def test_a_plugin_that_cannot_be_looked_at_is_a_failure(install: Install) -> None:
    class Lazy(Good):
        def __dir__(self) -> list[str]:
            raise OSError("library is gone")

    install("lazy", Lazy())

    [failure] = Registry.discover().failures

    assert failure.reason == "OSError: library is gone"


def test_a_module_that_hangs_when_imported_is_a_failure(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow:
        def find_spec(self, name: str, path: object, target: object = None) -> None:
            if name == "slow_plugin":
                signal.setitimer(signal.ITIMER_REAL, 0.01, 1.0)  # its time limit passes now
                time.sleep(3600)

    monkeypatch.setattr(sys, "meta_path", [Slow(), *sys.meta_path])
    monkeypatch.setattr(plugin_calls, "HOOK_LIMIT_S", 3600.0)
    install("slow", value="slow_plugin:plugin")
    install("good", Good())

    registry = Registry.discover()

    assert list(registry.toolchains) == ["good"]
    [failure] = registry.failures
    assert "did not finish within 3600 s and was interrupted in find_spec" in failure.reason


# Registration


def test_an_implementation_may_take_fewer_arguments_and_may_be_a_module() -> None:
    module = types.ModuleType("plugin")

    @hookimpl
    def collage_targets() -> list[Target]:
        return [TARGET]

    vars(module)["collage_targets"] = collage_targets

    toolchain = Toolchain("mock", module)

    assert toolchain.targets(HOST) == (TARGET,)
    assert toolchain.implements("collage_targets")
    assert not toolchain.implements("collage_lower")


def test_an_argument_the_contract_does_not_have_is_refused() -> None:
    class Ahead:
        @hookimpl
        def collage_targets(self, host: Host, weather: str) -> list[Target]:
            return [TARGET]

    with pytest.raises(PluginError, match="weather") as caught:
        Toolchain("ahead", Ahead())
    assert caught.value.hook == "registration"


def test_a_hook_the_contract_does_not_have_is_refused() -> None:
    class Ahead(Good):
        @hookimpl
        def collage_predict_weather(self) -> str:
            return "fine"

    with pytest.raises(PluginError, match="collage_predict_weather") as caught:
        Toolchain("ahead", Ahead())
    assert caught.value.hook == "registration"


def test_toolchains_do_not_answer_for_each_other() -> None:
    other = Target(toolchain="other", fingerprint="other 1")

    class Other:
        @hookimpl
        def collage_targets(self) -> list[Target]:
            return [other]

    mine, theirs = Toolchain("mock", Good()), Toolchain("other", Other())

    assert mine.targets(HOST) == (TARGET,)
    assert theirs.targets(HOST) == (other,)
