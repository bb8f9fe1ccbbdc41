"""Which machines it is for, and what it says on others."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from collage.devices.this_host import this_host
from collage_core.contract import Joins, Obstacle, Unsupported
from collage_core.registry import Toolchain
from collage_cublas.plugin import CublasPlugin
from collage_testing.kit.gpu_plugins import H100, HOST, check_import_loads_nothing

from .emulator import Emulator, Notes
from .machine import plugin_over


def test_every_device_has_the_plain_target_and_the_precisions_of_its_tensor_cores() -> None:
    v100 = dataclasses.replace(H100, name="cuda:1", model="Tesla V100", compute_capability="7.0")
    k80 = dataclasses.replace(H100, name="cuda:2", model="Tesla K80", compute_capability="3.7")
    host = dataclasses.replace(HOST, devices=(H100, v100, k80))

    answer = plugin_over(Emulator()).collage_targets(host)

    assert not isinstance(answer, Unsupported)
    assert {each.name: each.exact for each in answer} == {
        "cublas@cuda:0": True,
        "cublas@cuda:1": True,
        "cublas(precision=tf32)@cuda:0": False,
        "cublas(precision=fp16)@cuda:0": False,
        "cublas(precision=bf16)@cuda:0": False,
        "cublas(precision=fp16)@cuda:1": False,
    }
    assert {(each.joins, each.mixable, each.fingerprint) for each in answer} == {(Joins.NONE, True, "cublaslt 130000")}


def missing(majors: tuple[int, ...]) -> Emulator:
    raise OSError("libcublasLt.so.13: cannot open shared object file")


class Old(Notes):
    def version(self) -> int:
        return 110800


@pytest.mark.guards("a toolchain's library, linker or device is missing")
@pytest.mark.parametrize(
    ("device", "plugin", "obstacle", "reason"),
    [
        (
            {},
            CublasPlugin(missing),
            Obstacle.NO_LIBRARY,
            "cannot open shared object file); pip install 'collage-cublas[cuda13]'",
        ),
        (
            {},
            plugin_over(Emulator(Old())),
            Obstacle.LIBRARY_VERSION,
            "cuBLASLt 11.8.0 is too old, it has to be 12.0.0",
        ),
        (
            {"compute_capability": "6.1"},
            plugin_over(Emulator()),
            Obstacle.COMPUTE_CAPABILITY,
            "needs compute capability 7.0 or newer; cuda:0 is",
        ),
        (
            {"driver": "470.82.01"},
            plugin_over(Emulator()),
            Obstacle.DRIVER_TOO_OLD,
            "driver 470.82.01 is too old; install 525 or newer",
        ),
        (None, plugin_over(Emulator()), Obstacle.NO_DEVICE, "shows no NVIDIA GPU"),
    ],
)
def test_a_machine_that_cannot_run_it_is_told_why(
    device: dict[str, Any] | None, plugin: CublasPlugin, obstacle: Obstacle, reason: str
) -> None:
    devices = () if device is None else (dataclasses.replace(H100, **device),)

    answer = Toolchain("cublas", plugin).targets(dataclasses.replace(HOST, devices=devices))

    assert isinstance(answer, Unsupported)
    assert reason in answer.reason
    assert answer.obstacle is obstacle


@pytest.mark.parametrize(("driver", "majors"), [("580.65.06", (13, 12)), ("550.54.15", (12,))])
def test_only_a_library_that_the_driver_runs_is_loaded(driver: str, majors: tuple[int, ...]) -> None:
    asked = []

    def opened(wanted: tuple[int, ...]) -> Emulator:
        asked.append(wanted)
        return Emulator()

    CublasPlugin(opened).collage_targets(dataclasses.replace(HOST, devices=(dataclasses.replace(H100, driver=driver),)))

    assert asked == [majors]


@pytest.mark.skipif(bool(this_host().devices), reason="this machine has a GPU")
def test_this_machine_is_told_that_it_has_no_gpu_before_any_library_is_looked_for() -> None:
    answer = CublasPlugin(missing).collage_check_host(this_host())

    assert isinstance(answer, Unsupported)
    assert "shows no NVIDIA GPU" in answer.reason


def test_importing_the_plugin_loads_no_library() -> None:
    check_import_loads_nothing("collage_cublas.plugin", "cupy", "nvmath", "nvidia", "cublas")
