"""Which machines it is for, and what it says on others."""

from __future__ import annotations

import dataclasses
import io
import itertools

import pytest
from rich.console import Console

from collage.report.facts.doctor_facts import DoctorReport
from collage.report.facts.record import ToolchainFacts
from collage.report.text.fact_tables import doctor_summary
from collage.setup.facts import host_facts
from collage_core.contract import Device, Obstacle, Unsupported
from collage_core.registry import Toolchain
from collage_triton.plugin import TritonPlugin

from .emulation import H200, HOST, VERSIONS

A100 = dataclasses.replace(H200, name="cuda:1", model="A100", compute_capability="8.0", driver="550.54.15")
T4 = dataclasses.replace(H200, name="cuda:2", model="Tesla T4", compute_capability="7.5")


def test_each_device_that_is_new_enough_has_its_targets() -> None:
    answer = TritonPlugin(VERSIONS.get).collage_targets(dataclasses.replace(HOST, devices=(H200, A100, T4)))

    assert not isinstance(answer, Unsupported)
    assert [target.name for target in answer if not target.options] == ["triton@cuda:0", "triton@cuda:1"]
    lower = {(target.options, target.device) for target in answer if target.options}
    precisions = [(("precision", each),) for each in ("tf32", "fp16", "bf16")]
    assert lower == set(itertools.product(precisions, ("cuda:0", "cuda:1")))
    assert {target.exact for target in answer if target.options} == {False}
    assert {target.fingerprint for target in answer} == {"triton 3.9.0"}


REASONS = {
    "no GPU or no driver": (
        (),
        VERSIONS,
        "shows no NVIDIA GPU: it has none, no driver for it (is there libnvidia-ml",
        Obstacle.NO_DEVICE,
    ),
    "capability": (
        (T4,),
        VERSIONS,
        "needs compute capability 8.0 or newer; cuda:2 is Tesla T4 of 7.5",
        Obstacle.COMPUTE_CAPABILITY,
    ),
    "a name that is no number": (
        (dataclasses.replace(H200, compute_capability="unknown"),),
        VERSIONS,
        "needs compute capability 8.0 or newer",
        Obstacle.COMPUTE_CAPABILITY,
    ),
    "driver of CUDA 12": (
        (dataclasses.replace(H200, driver="570.86"),),
        VERSIONS,
        "NVIDIA's driver 570.86 is too old; install 580 or newer",
        Obstacle.DRIVER_TOO_OLD,
    ),
    "driver of CUDA 11": (
        (dataclasses.replace(A100, driver="470.82.01"),),
        VERSIONS,
        "NVIDIA's driver 470.82.01 is too old; install 525 or newer",
        Obstacle.DRIVER_TOO_OLD,
    ),
    "no Triton": (
        (H200,),
        {"cupy": ""},
        "not installed; pip install 'collage-triton[compiler]'",
        Obstacle.NO_LIBRARY,
    ),
    "old Triton": (
        (H200,),
        {"triton": "3.5.1", "cupy": ""},
        "triton 3.5.1 is too old; pip install 'triton>=3.6'",
        Obstacle.LIBRARY_VERSION,
    ),
    "no CuPy": (
        (H200,),
        {"triton": "3.9.0"},
        "CuPy, which keeps buffers on the device, is not installed; pip install",
        Obstacle.NO_LIBRARY,
    ),
}
"""What is there, what is said, and what sort of reason it is."""


@pytest.mark.parametrize("name", REASONS)
def test_a_machine_that_cannot_use_it_is_told_why_in_doctors_lines(name: str) -> None:
    devices, versions, reason, obstacle = REASONS[name]

    answer = Toolchain("triton", TritonPlugin(versions.get)).targets(dataclasses.replace(HOST, devices=devices))

    assert isinstance(answer, Unsupported)
    assert reason in answer.reason
    assert answer.obstacle is obstacle
    assert f"triton is unusable: {answer.reason}" in doctors_lines(answer)


def doctors_lines(answer: Unsupported) -> str:
    """What `collage doctor` prints of a toolchain that answers so, on lines as long as they need to be."""
    console = Console(width=1000, file=io.StringIO(), record=True)
    facts = ToolchainFacts(name="triton", distribution="collage-triton 0.1.0", unusable=answer.reason)
    console.print(doctor_summary(DoctorReport(collage_version="0", host=host_facts(HOST), toolchains=(facts,))))
    return console.export_text()


@pytest.mark.parametrize(("device", "oldest"), [(H200, 580), (A100, 525)])
def test_a_driver_of_the_first_branch_that_loads_the_code_will_do(device: Device, oldest: int) -> None:
    host = dataclasses.replace(HOST, devices=(dataclasses.replace(device, driver=f"{oldest}.10"),))

    assert not isinstance(Toolchain("triton", TritonPlugin(VERSIONS.get)).targets(host), Unsupported)
