"""Which machines it is for, and what it says on others."""

from __future__ import annotations

import dataclasses
import importlib.metadata
from typing import Any

import pytest

from collage.devices.this_host import this_host
from collage_core.contract import Joins, Unsupported
from collage_core.registry import Toolchain
from collage_cudnn import loading
from collage_cudnn.loading import FRONTEND
from collage_cudnn.plugin import CudnnPlugin
from collage_testing.kit.gpu_plugins import H100, HOST, check_import_loads_nothing

from .emulator import Emulator
from .machine import plugin_over


def test_every_device_has_the_plain_target_and_tf32_where_there_are_tensor_cores_for_it() -> None:
    t4 = dataclasses.replace(H100, name="cuda:1", model="Tesla T4", compute_capability="7.5")
    k80 = dataclasses.replace(H100, name="cuda:2", model="Tesla K80", compute_capability="3.7")
    host = dataclasses.replace(HOST, devices=(H100, t4, k80))

    answer = plugin_over(Emulator()).collage_targets(host)

    assert not isinstance(answer, Unsupported)
    assert {each.name: each.exact for each in answer} == {
        "cudnn@cuda:0": True,
        "cudnn@cuda:1": True,
        "cudnn(precision=tf32)@cuda:0": False,
    }
    fingerprint = f"cudnn 92000, frontend {FRONTEND}"
    assert {(each.joins, each.mixable, each.fingerprint) for each in answer} == {(Joins.ANY, True, fingerprint)}


class Old(Emulator):
    def version(self) -> int:
        return 90700


FRONTEND_PIN = f"nvidia-cudnn-frontend=={FRONTEND}"


def missing() -> Emulator:
    raise OSError("libcudnn.so.9: cannot open shared object file")


@pytest.mark.parametrize(
    ("device", "plugin", "reason", "obstacle"),
    [
        ({}, CudnnPlugin(missing, lambda: FRONTEND), "cannot open shared object file); pip install", "no library"),
        ({}, CudnnPlugin(missing, lambda: None), f"is not installed; pip install {FRONTEND_PIN}", "no library"),
        ({}, CudnnPlugin(missing, lambda: "1.32.0"), "is 1.32.0, which is not the one this knows", "library version"),
        ({}, plugin_over(Old()), "cuDNN 90700 is too old, it has to be 91100", "library version"),
        ({"compute_capability": "7.0"}, plugin_over(Emulator()), "needs compute capability 7.5", "compute capability"),
        (None, plugin_over(Emulator()), "shows no NVIDIA GPU", "no device"),
        (
            {"driver": "570.86"},
            CudnnPlugin(missing, lambda: FRONTEND, lambda: 580),
            "NVIDIA's driver 570.86 is too old; install 580 or newer",
            "driver too old",
        ),
    ],
)
def test_a_machine_that_cannot_run_it_is_told_why(
    device: dict[str, Any] | None, plugin: CudnnPlugin, reason: str, obstacle: str
) -> None:
    devices = () if device is None else (dataclasses.replace(H100, **device),)

    answer = Toolchain("cudnn", plugin).targets(dataclasses.replace(HOST, devices=devices))

    assert isinstance(answer, Unsupported)
    assert reason in answer.reason
    assert answer.obstacle.value == obstacle


@pytest.mark.parametrize(("driver", "oldest"), [("580.10", 580), ("525.60", None), ("unknown", 580)])
def test_a_driver_that_will_do_or_of_which_nobody_can_say_is_no_obstacle(driver: str, oldest: int | None) -> None:
    plugin = CudnnPlugin(Emulator, lambda: FRONTEND, lambda: oldest)
    host = dataclasses.replace(HOST, devices=(dataclasses.replace(H100, driver=driver),))

    assert not isinstance(Toolchain("cudnn", plugin).targets(host), Unsupported)


@pytest.mark.parametrize(
    ("installed", "oldest"), [("nvidia-cudnn-cu13", 580), ("nvidia-cudnn-cu12", 525), ("nvidia-cublas", None)]
)
def test_which_driver_is_needed_depends_on_the_wheel(
    installed: str, oldest: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if name != installed:
            raise importlib.metadata.PackageNotFoundError(name)
        return "9.20.0"

    monkeypatch.setattr(importlib.metadata, "version", version)

    assert loading.oldest_driver() == oldest


@pytest.mark.skipif(bool(this_host().devices), reason="this machine has a GPU")
def test_this_machine_is_told_that_it_has_no_gpu_before_any_library_is_looked_for() -> None:
    answer = CudnnPlugin(missing).collage_check_host(this_host())

    assert isinstance(answer, Unsupported)
    assert "shows no NVIDIA GPU" in answer.reason


def test_importing_the_plugin_loads_no_library() -> None:
    check_import_loads_nothing("collage_cudnn.plugin", "cupy", "cudnn", "nvidia")
