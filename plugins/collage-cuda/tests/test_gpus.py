"""What is asked of NVIDIA's GPUs before any library is: the same of every plugin for them."""

from __future__ import annotations

import dataclasses
import importlib.metadata

import pytest

from collage_core.contract import Device, Host, Joins, Obstacle, Unsupported
from collage_cuda import capability, cuda_majors, driver_problem, gpu_targets, usable_gpus, wheel_driver

H100 = Device(name="cuda:0", model="NVIDIA H100", compute_capability="9.0", driver="580.65.06", memory_bytes=80 << 30)
V100 = dataclasses.replace(H100, name="cuda:1", model="Tesla V100", compute_capability="7.0")
K80 = dataclasses.replace(H100, name="cuda:2", model="Tesla K80", compute_capability="3.7")
BOARD = Device(name="npu:0", model="a board", compute_capability="", driver="1", memory_bytes=1)


def host(*devices: Device) -> Host:
    return Host(
        system="Linux x86_64", cpu="test", physical_cores=1, cpu_flags=frozenset(), memory_bytes=1, devices=devices
    )


@pytest.mark.parametrize(
    ("spelt", "numbers"), [("9.0", (9, 0)), ("12.1", (12, 1)), ("", (0, 0)), ("unknown", (0, 0)), ("9", (0, 0))]
)
def test_a_compute_capability_is_two_numbers(spelt: str, numbers: tuple[int, int]) -> None:
    assert capability(dataclasses.replace(H100, compute_capability=spelt)) == numbers


# "CUDA Compatibility", minor version compatibility: CUDA 12 runs from driver 525 on, CUDA 13 from 580 on


@pytest.mark.parametrize(
    ("driver", "majors"),
    [
        ("610.10", (13, 12)),
        ("580.65.06", (13, 12)),
        ("579.99", (12,)),
        ("525.60.13", (12,)),
        ("524.0", ()),
        ("470.82", ()),
        ("", (13, 12)),
    ],
)
def test_a_driver_runs_the_versions_of_cuda_it_is_new_enough_for(driver: str, majors: tuple[int, ...]) -> None:
    assert cuda_majors(driver) == majors


def test_a_driver_is_a_problem_only_where_it_is_known_to_be_one() -> None:
    assert driver_problem(H100, 580) is None
    assert driver_problem(H100, None) is None
    assert driver_problem(dataclasses.replace(H100, driver="unknown"), 580) is None
    assert driver_problem(H100, 581) == Unsupported(
        "NVIDIA's driver 580.65.06 is too old; install 581 or newer", Obstacle.DRIVER_TOO_OLD
    )


def test_gpus_are_those_of_cuda_that_are_new_enough() -> None:
    assert usable_gpus(host(BOARD, H100, V100, K80), least=(7, 0)) == (H100, V100)
    assert usable_gpus(host(H100, V100), oldest_driver=lambda each: 600 if each is H100 else 580) == (V100,)


@pytest.mark.parametrize(
    ("devices", "reason", "obstacle"),
    [
        ((BOARD,), "this machine shows no NVIDIA GPU: it has none, no driver for it", Obstacle.NO_DEVICE),
        (
            (V100, K80),
            "it needs compute capability 7.5 or newer; cuda:1 is Tesla V100 of 7.0, cuda:2 is Tesla K80 of 3.7",
            Obstacle.COMPUTE_CAPABILITY,
        ),
        (
            (dataclasses.replace(H100, driver="470.82.01"),),
            "NVIDIA's driver 470.82.01 is too old; install 525 or newer",
            Obstacle.DRIVER_TOO_OLD,
        ),
    ],
)
def test_a_machine_without_one_is_told_why(devices: tuple[Device, ...], reason: str, obstacle: Obstacle) -> None:
    answer = usable_gpus(host(*devices), least=(7, 5))

    assert isinstance(answer, Unsupported)
    assert answer.reason.startswith(reason)
    assert answer.obstacle is obstacle


def test_plain_targets_come_first_and_precisions_where_tensor_cores_take_them() -> None:
    found = gpu_targets(
        [H100, V100, K80],
        toolchain="some",
        fingerprint="some 1",
        joins=Joins.NATIVE,
        precisions=("tf32", "fp16", "bf16"),
        rounds={"tf32": ["MatMul", "Einsum"], "fp16": ["MatMul"]},
    )

    assert [each.name for each in found] == [
        "some@cuda:0",
        "some@cuda:1",
        "some@cuda:2",
        "some(precision=tf32)@cuda:0",
        "some(precision=fp16)@cuda:0",
        "some(precision=bf16)@cuda:0",
        "some(precision=fp16)@cuda:1",
    ]
    assert [each.exact for each in found] == [True] * 3 + [False] * 4
    assert [each.rounds for each in found] == [None] * 3 + [{"MatMul", "Einsum"}, {"MatMul"}, None, {"MatMul"}]
    assert found[3].unrounded == found[0]
    assert {(each.fingerprint, each.joins) for each in found} == {("some 1", Joins.NATIVE)}


@pytest.mark.parametrize(
    ("installed", "oldest"), [({"some-cu12"}, 525), ({"some-cu13"}, 580), ({"some-cu12", "some-cu13"}, 580), ({}, None)]
)
def test_a_wheel_needs_the_driver_of_its_cuda(
    installed: set[str], oldest: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if name not in installed:
            raise importlib.metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(importlib.metadata, "version", version)

    assert wheel_driver("some-cu{}") == oldest
