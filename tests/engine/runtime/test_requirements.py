"""What artifacts ask of a device, checked against the machine before anything is loaded."""

from __future__ import annotations

import dataclasses

import pytest

from collage.runtime.kernels.requirements import check_requirements
from collage_core.contract import Artifact, BoundCall, Buffer, Device, Host, Requirement, SizedKernel, workspace_of

RTX = Device(name="cuda:0", model="RTX 4090", compute_capability="8.9", driver="580.65.06", memory_bytes=24 << 30)
HOST = Host(system="Linux x86_64", cpu="test", physical_cores=1, cpu_flags=frozenset(), memory_bytes=1, devices=(RTX,))


def need(kind: str, specifier: str = "", name: str = "cuda") -> Requirement:
    return Requirement(kind=kind, name=name, specifier=specifier)


@pytest.mark.parametrize(
    "requirement",
    [
        need("compute_capability", "==8.9"),
        need("compute_capability", ">=8.0,<10"),
        need("driver", ">=580"),
        need("driver"),
        need("device", name="RTX 4090"),
        need("of a later version"),
    ],
)
def test_what_the_device_has_is_no_obstacle(requirement: Requirement) -> None:
    assert check_requirements([requirement], HOST, device="cuda:0")


@pytest.mark.guards(
    "an artifact's device, compute capability or driver is not what this machine has",
    "refused before its toolchain is asked, with what it needs and what is there; core lowers again where it may",
    area="toolchains",
)
@pytest.mark.parametrize(
    ("requirement", "reason"),
    [
        (need("compute_capability", "==9.0"), "it needs compute capability ==9.0, RTX 4090 has 8.9"),
        (need("driver", ">=590"), "it needs a driver >=590, RTX 4090 has 580.65.06"),
        (need("device", name="NVIDIA H200"), "it was made for NVIDIA H200, cuda:0 is RTX 4090"),
        (need("driver", name="rocm"), "it needs rocm, cuda:0 is none"),
        (need("compute_capability", "sm_90"), "it asks for compute capability sm_90, which is no version specifier"),
    ],
)
def test_what_it_lacks_is_said(requirement: Requirement, reason: str) -> None:
    answer = check_requirements([requirement], HOST, device="cuda:0")

    assert not answer
    assert answer.reason == reason


def test_a_version_that_is_none_does_not_fit() -> None:
    answer = check_requirements([need("library", ">=1", "x")], HOST, lambda name: "unknown")

    assert not answer
    assert answer.reason == "it needs x>=1, unknown is installed"


@pytest.mark.guards("an artifact's device, compute capability or driver is not what this machine has")
def test_a_machine_without_the_device_says_so_once() -> None:
    bare = dataclasses.replace(HOST, devices=())
    needs = [need("compute_capability", "==8.9"), need("driver", ">=580")]

    answer = check_requirements(needs, bare, device="cuda:0")

    assert not answer
    assert answer.reason == "it needs a device cuda:0, which this machine does not have"


# Scratch memory


class Sized:
    workspace_bytes = 4096

    def bind(self, inputs: object, outputs: object, workspace: Buffer | None) -> BoundCall:
        return lambda: None


class Unsized:
    def bind(self, inputs: object, outputs: object, workspace: Buffer | None) -> BoundCall:
        return lambda: None


def test_a_kernel_may_ask_for_more_scratch_memory_than_its_artifact() -> None:
    assert isinstance(Sized(), SizedKernel)
    assert workspace_of(Artifact(files={}, workspace_bytes=64), Sized()) == 4096
    assert workspace_of(Artifact(files={}, workspace_bytes=1 << 20), Sized()) == 1 << 20
    assert workspace_of(Artifact(files={}, workspace_bytes=64), Unsized()) == 64
