from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import cast

import pytest

from collage.devices.this_host import this_host
from collage.measure.driver.worker_pool import WorkerPool
from collage.setup.targets import Selection, ToolchainStatus, named_but_unusable, selected_targets, statuses
from collage_core.contract import Host, Supported, Target, Unsupported
from collage_core.entry_points import PluginFailure
from collage_core.errors import UsageError
from collage_core.hookspecs import hookimpl
from collage_core.registry import Registry, Toolchain
from collage_testing import MockToolchain
from tests.engine.exploring import a_target

SPIN = a_target("ort", options=(("spin", "true"),), mixable=False)
BF16 = a_target("ov", options=(("precision", "bf16"),), exact=False)
GPU = a_target("ov", device="cuda:0")
TARGETS: Mapping[str, tuple[Target, ...] | Unsupported] = {
    "ort": (a_target("ort"), SPIN),
    "ov": (a_target("ov"), BF16, GPU),
    "reference": (a_target("reference"),),
    "trt": Unsupported("no NVIDIA device"),
}


class FakePool:
    """Workers that know their targets."""

    def __init__(self) -> None:
        self.begun: list[str] = []

    def begin(self, toolchains: Iterable[str]) -> None:
        self.begun += toolchains

    def worker(self, name: str) -> FakePool:
        self._name = name
        return self

    def targets(self, host: Host) -> tuple[Target, ...] | Unsupported:
        assert self._name in self.begun
        return TARGETS[self._name]


@pytest.fixture
def registry() -> Registry:
    chains = {name: Toolchain(name, MockToolchain(name, costs_us={})) for name in TARGETS}
    return Registry(chains, (PluginFailure(name="broken", distribution="broken-1", reason="no module named x"),))


def asked(
    registry: Registry, toolchains: str | None = None, *exclude: str, inexact: bool = False
) -> tuple[ToolchainStatus, ...]:
    selection = Selection.parse(toolchains, exclude, inexact=inexact)
    return statuses(registry, cast(WorkerPool, FakePool()), this_host(), selection)


class Choosy:
    """A plugin that is asked about the machine first.

    Args:
        answer: Gives its answer.
    """

    def __init__(self, answer: Callable[[Host], Supported | Unsupported]) -> None:
        self._answer = answer

    @hookimpl
    def collage_check_host(self, host: Host) -> Supported | Unsupported:
        return self._answer(host)


def gone(host: Host) -> Supported | Unsupported:
    raise OSError("no answer")


@pytest.mark.parametrize(
    ("answer", "begun", "unusable"),
    [
        (lambda host: Supported(), ["ort", "ov"], ""),
        (lambda host: Unsupported(f"{host.system} will not do"), ["ov"], f"{this_host().system} will not do"),
        (gone, ["ov"], "OSError: no answer"),
    ],
)
def test_no_worker_is_started_for_a_toolchain_that_refuses_the_machine(
    registry: Registry, answer: Callable[[Host], Supported | Unsupported], begun: list[str], unusable: str
) -> None:
    chains = Registry({"ort": Toolchain("ort", Choosy(answer)), "ov": registry.toolchains["ov"]})
    pool = FakePool()

    ort, ov = statuses(chains, cast(WorkerPool, pool), this_host(), Selection.parse(None, (), inexact=False))

    assert pool.begun == begun
    assert bool(ort.targets) == (not unusable)
    assert unusable in ort.unusable
    assert ov.targets


def chosen(found: tuple[ToolchainStatus, ...]) -> list[str]:
    return [target.name for target in selected_targets(found)]


def test_every_exact_target_but_the_reference_takes_part_unless_told(registry: Registry) -> None:
    found = asked(registry)

    assert chosen(found) == ["ort", "ort(spin=true)", "ov", "ov@cuda:0"]
    assert [status.toolchain.name for status in found] == ["ort", "ov", "trt"]


def test_a_target_on_request_takes_part_only_when_named_with_its_options(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = a_target("ov", options=(("precision", "bf16"),), exact=False, on_request=True)
    monkeypatch.setitem(cast(dict[str, object], TARGETS), "ov", (a_target("ov"), slow))

    for wanted in (None, "ov", "ort,ov"):
        found = asked(registry, wanted, inexact=True)
        assert slow.name not in chosen(found)
        [why] = [dict(status.skipped)[slow.name] for status in found if status.toolchain.name == "ov"]
        assert "--toolchains 'ov(precision=bf16)'" in why
    assert chosen(asked(registry, "ov,ov(precision=bf16)", inexact=True)) == ["ov", slow.name]


def test_inexact_targets_take_part_only_with_a_maximal_error(registry: Registry) -> None:
    [_, ov, _] = asked(registry)

    assert dict(ov.skipped)["ov(precision=bf16)"].endswith("allow an error with --max-error or --metric")
    assert "ov(precision=bf16)" in chosen(asked(registry, inexact=True))


def test_an_inexact_target_that_is_named_still_needs_a_maximal_error(registry: Registry) -> None:
    with pytest.raises(UsageError, match="--max-error"):
        selected_targets(asked(registry, "ov(precision=bf16)"))
    assert chosen(asked(registry, "ov(precision=bf16)", inexact=True)) == ["ov(precision=bf16)"]
    assert chosen(asked(registry, "ov(precision=fp32)", inexact=True)) == ["ov", "ov@cuda:0"]


def test_a_toolchain_that_is_named_brings_its_targets_and_a_target_only_itself(registry: Registry) -> None:
    assert chosen(asked(registry, "ort")) == ["ort", "ort(spin=true)"]
    assert chosen(asked(registry, "ort(spin=true)")) == ["ort(spin=true)"]
    assert chosen(asked(registry, "ov@cuda:0")) == ["ov@cuda:0"]


def test_the_reference_takes_part_when_named(registry: Registry) -> None:
    assert chosen(asked(registry, "reference,ov@cpu")) == ["ov", "reference"]


def test_a_toolchain_or_a_target_can_be_left_out(registry: Registry) -> None:
    assert chosen(asked(registry, None, "ort")) == ["ov", "ov@cuda:0"]
    assert chosen(asked(registry, None, "ort(spin=true),ov@cuda:0")) == ["ort", "ov"]
    assert [status.toolchain.name for status in asked(registry, None, "ort")] == ["ov", "trt"]


def test_what_is_left_out_says_so(registry: Registry) -> None:
    ort = asked(registry, None, "ort(spin=true)")[0]

    assert ort.skipped == (("ort(spin=true)", "excluded"),)


def test_an_unusable_toolchain_says_why(registry: Registry) -> None:
    assert asked(registry)[-1].unusable == "no NVIDIA device"
    with pytest.raises(UsageError, match=r"trt: no NVIDIA device.*collage doctor"):
        selected_targets(asked(registry, "trt"))


def test_a_toolchain_that_is_named_and_unusable_is_reported(registry: Registry) -> None:
    named = Selection.parse("ort,trt", (), inexact=False)
    found = statuses(registry, cast(WorkerPool, FakePool()), this_host(), named)

    assert named_but_unusable(found, named) == ("trt takes no part: no NVIDIA device",)
    assert named_but_unusable(found, Selection()) == ()  # nobody asked for it


@pytest.mark.parametrize("where", ["toolchains", "exclude"])
def test_an_unknown_toolchain_is_misuse_and_the_known_ones_are_named(registry: Registry, where: str) -> None:
    with pytest.raises(UsageError, match=r"no toolchain 'tvm' is installed; installed: ort, ov, reference, trt"):
        asked(registry, "tvm") if where == "toolchains" else asked(registry, None, "tvm")


def test_a_toolchain_that_failed_to_load_says_why(registry: Registry) -> None:
    with pytest.raises(UsageError, match=r"'broken' \(broken-1\) failed to load: no module named x"):
        asked(registry, "broken")


def test_an_unknown_target_is_misuse_and_the_known_ones_are_named(registry: Registry) -> None:
    with pytest.raises(UsageError, match=r"no target 'ov\(precision=int4\)' here; ov offers .*precision=bf16"):
        asked(registry, "ov(precision=int4)")


@pytest.mark.guards(
    "an unknown, misspelt or malformed toolchain, target, option of a toolchain, `--exclude`, `--reference`"
)
def test_an_unknown_target_is_not_quietly_left_out(registry: Registry) -> None:
    with pytest.raises(UsageError, match=r"no target 'ort\(spin=ture\)' here; .* did you mean 'ort\(spin=true\)'\?"):
        asked(registry, None, "ort(spin=ture)")


@pytest.mark.parametrize(("text", "words"), [("ov(", "is not a target"), ("ov(bf16)", "option=value"), ("", "none")])
def test_a_misspelt_target_is_misuse(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Selection.parse(text, (), inexact=False)


def test_nothing_usable_names_every_reason(registry: Registry) -> None:
    with pytest.raises(UsageError) as caught:
        selected_targets(asked(registry, "ort,trt", "ort"))

    assert "trt: no NVIDIA device" in str(caught.value)
    assert "ort: ort excluded; ort(spin=true) excluded" in str(caught.value)
