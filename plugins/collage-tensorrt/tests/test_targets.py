"""Which machines it is for, and what it says on others."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import sys
import types
from typing import Any

import pytest

from collage.devices.this_host import this_host
from collage_core.contract import Joins, Obstacle, Unsupported
from collage_core.errors import DeviceUnavailableError
from collage_core.registry import Toolchain
from collage_tensorrt import editions
from collage_tensorrt.editions import RTX, TENSORRT
from collage_tensorrt.plugin import TensorRtPlugin, tensorrt, tensorrt_rtx
from collage_testing.kit.gpu_plugins import check_import_loads_nothing

from .emulated import Library
from .machine import EDITIONS, H200, HOST, RTX_4090, emulated, fake, plugin_over

NOTHING = dataclasses.replace(HOST, devices=())


@pytest.mark.parametrize("name", EDITIONS)
def test_every_device_has_the_plain_target_and_those_precisions_there_are_tensor_cores_for(name: str) -> None:
    edition = EDITIONS[name]
    device, _ = fake()
    turing = dataclasses.replace(RTX_4090, name="cuda:1", model="NVIDIA T4", compute_capability="7.5")
    host = dataclasses.replace(HOST, devices=(RTX_4090, turing))
    quantising = ["cuda:0"] if edition.ahead_of_time else ["cuda:0", "cuda:1"]

    answer = plugin_over(emulated(edition, device), edition).collage_targets(host)

    assert not isinstance(answer, Unsupported)
    assert {each.name: each.exact for each in answer} == {
        f"{name}@cuda:0": True,
        f"{name}@cuda:1": True,
        f"{name}(precision=tf32)@cuda:0": False,
        f"{name}(precision=fp16)@cuda:0": False,
        f"{name}(precision=fp16)@cuda:1": False,
        f"{name}(precision=bf16)@cuda:0": False,
        **{f"{name}(precision={each})@{on}": False for each in ("int8", "int8+fp16") for on in quantising},
    }
    assert {(each.joins, each.mixable, each.fingerprint) for each in answer} == {(Joins.ANY, True, f"{name} 1.7.1.116")}
    assert all(each.is_chosen_by_region is not each.exact for each in answer)
    assert all(each.symmetric is each.quantises for each in answer), "TensorRT knows no zero points"
    plain = {each.device: each for each in answer if each.exact}
    assert all(each.unrounded == plain[each.device] for each in answer)


def test_a_device_that_rtx_does_not_build_for_is_refused_with_those_it_does(library: Any) -> None:
    answer = plugin_over(library).collage_targets(dataclasses.replace(HOST, devices=(H200,)))

    assert isinstance(answer, Unsupported)
    assert answer.reason == (
        "cuda:0: it builds for compute capability 7.5, 8.0, 8.6, 8.9, 12.0, 12.1; NVIDIA H200 has 9.0"
    )
    assert answer.obstacle is Obstacle.COMPUTE_CAPABILITY


def test_the_library_lists_the_device_of_the_tests(library: Any) -> None:
    answer = plugin_over(library).collage_targets(HOST)

    assert not isinstance(answer, Unsupported), answer.reason
    assert [each.name for each in answer] == [
        "tensorrt_rtx@cuda:0",
        *(f"tensorrt_rtx(precision={precision})@cuda:0" for precision in ("tf32", "fp16", "bf16", "int8", "int8+fp16")),
    ]


def test_a_machine_without_a_gpu_is_told_so_before_any_library_is_looked_for() -> None:
    def never() -> Any:
        raise AssertionError("the library is looked for")

    for edition in EDITIONS.values():
        answer = Toolchain(edition.toolchain, TensorRtPlugin(edition, never)).targets(NOTHING)
        assert isinstance(answer, Unsupported)
        assert "shows no NVIDIA GPU" in answer.reason
        assert answer.obstacle is Obstacle.NO_DEVICE


@pytest.mark.guards("a toolchain's library, linker or device is missing")
@pytest.mark.parametrize("name", EDITIONS)
def test_without_the_library_it_says_what_to_install(name: str) -> None:
    def missing() -> Any:
        raise ImportError("there is no module of it")

    answer = TensorRtPlugin(EDITIONS[name], missing).collage_targets(HOST)

    assert isinstance(answer, Unsupported)
    extra = {"tensorrt": "tensorrt", "tensorrt_rtx": "rtx"}[name]
    assert answer.reason.endswith(f"(there is no module of it); pip install 'collage-tensorrt[{extra}]'")
    assert answer.obstacle is Obstacle.NO_LIBRARY


def test_a_module_that_only_runs_engines_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    lean = types.ModuleType("tensorrt")
    lean.__spec__ = importlib.machinery.ModuleSpec("tensorrt", None)
    monkeypatch.setitem(sys.modules, "tensorrt", lean)

    answer = TensorRtPlugin(TENSORRT).collage_targets(HOST)

    assert isinstance(answer, Unsupported)
    assert "tensorrt can only run engines, not build them" in answer.reason


@pytest.mark.parametrize(
    ("installed", "oldest"), [("tensorrt_rtx_cu13_bindings", 580), ("tensorrt_rtx_cu12_bindings", 525)]
)
def test_a_driver_older_than_the_librarys_cuda_is_refused(
    installed: str, oldest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if name != installed:
            raise importlib.metadata.PackageNotFoundError(name)
        return "1.7.1.116"

    monkeypatch.setattr(importlib.metadata, "version", version)
    old, new = (dataclasses.replace(RTX_4090, driver=f"{branch}.10") for branch in (oldest - 1, oldest))

    refused = plugin_over(Library()).collage_targets(dataclasses.replace(HOST, devices=(old,)))
    taken = plugin_over(Library()).collage_targets(dataclasses.replace(HOST, devices=(new,)))

    assert isinstance(refused, Unsupported)
    assert refused.reason.endswith(f"NVIDIA's driver {oldest - 1}.10 is too old; install {oldest} or newer")
    assert refused.obstacle is Obstacle.DRIVER_TOO_OLD
    assert not isinstance(taken, Unsupported)


def test_several_devices_have_one_sort_of_obstacle_if_the_same_stands_in_the_way_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(editions.Edition, "oldest_driver", lambda self: 580)
    old = dataclasses.replace(RTX_4090, name="cuda:1", driver="570.10")
    newer = dataclasses.replace(H200, name="cuda:2")

    one, both = (
        plugin_over(Library()).collage_targets(dataclasses.replace(HOST, devices=devices))
        for devices in ((H200, newer), (H200, old))
    )

    assert isinstance(one, Unsupported)
    assert isinstance(both, Unsupported)
    assert one.obstacle is Obstacle.COMPUTE_CAPABILITY
    assert both.obstacle is Obstacle.OTHER
    assert "cuda:0: it builds for" in both.reason
    assert "; cuda:1: NVIDIA's driver 570.10 is too old" in both.reason


# TensorRT tries kernels on the device, so whether it takes one is seen by building.


def test_a_builder_that_does_not_start_is_a_reason() -> None:
    answer = plugin_over(emulated(TENSORRT), TENSORRT).collage_targets(HOST)

    assert isinstance(answer, Unsupported)
    assert answer.reason.startswith("cuda:0: it does not start on NVIDIA RTX 4090: pybind11")


def test_a_device_nothing_can_be_built_for_is_a_reason() -> None:
    device, _ = fake()
    library = emulated(TENSORRT, device)
    library.refuses = "Target GPU SM 61 is not supported by this TensorRT release."

    answer = plugin_over(library, TENSORRT).collage_targets(HOST)

    assert isinstance(answer, Unsupported)
    assert answer.reason == f"cuda:0: it builds nothing for NVIDIA RTX 4090: {library.refuses}"


def test_a_device_core_cannot_open_is_a_reason() -> None:
    def gone(name: str) -> None:
        raise DeviceUnavailableError(name, "CuPy is not installed")

    device, _ = fake()
    answer = TensorRtPlugin(TENSORRT, lambda: emulated(TENSORRT, device), gone).collage_targets(HOST)

    assert isinstance(answer, Unsupported)
    assert "CuPy is not installed" in answer.reason


def test_each_device_is_made_current_before_anything_is_tried_on_it() -> None:
    device, _ = fake()
    second = dataclasses.replace(RTX_4090, name="cuda:1")
    made: list[str] = []

    TensorRtPlugin(TENSORRT, lambda: emulated(TENSORRT, device), made.append).collage_targets(
        dataclasses.replace(HOST, devices=(RTX_4090, second))
    )
    TensorRtPlugin(RTX, Library, made.append).collage_targets(HOST)  # which builds ahead of time

    assert made == ["cuda:0", "cuda:1"]


@pytest.mark.skipif(bool(this_host().devices), reason="this machine has a GPU")
@pytest.mark.parametrize("plugin", [tensorrt, tensorrt_rtx], ids=["tensorrt", "tensorrt_rtx"])
def test_this_machine_is_told_that_it_has_no_gpu(plugin: TensorRtPlugin) -> None:
    answer = plugin.collage_check_host(this_host())

    assert isinstance(answer, Unsupported)
    assert "shows no NVIDIA GPU" in answer.reason


def test_importing_the_plugin_loads_no_library() -> None:
    check_import_loads_nothing("collage_tensorrt.plugin", "tensorrt", "tensorrt_rtx", "cupy", "nvidia", "nvinfer")
