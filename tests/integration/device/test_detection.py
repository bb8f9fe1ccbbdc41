"""Machines whose GPU, driver or libraries do not do: each plugin says why, and `doctor` shows it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import pytest
from click.testing import CliRunner

from collage.cli import main
from collage.commands.doctor import doctor
from collage_core.contract import Device
from collage_core.registry import Registry
from tests.integration.device.place import seen_as

OLD_DRIVER = Device(
    name="cuda:0", model="NVIDIA H100", compute_capability="9.0", driver="470.82.01", memory_bytes=80 << 30
)


def registry(*names: str) -> Registry:
    found = Registry.discover()
    return Registry({name: found.toolchains[name] for name in sorted(names)})


@pytest.mark.guards("the GPU is older than a toolchain's code, or its driver older than its library")
def test_a_driver_too_old_for_a_toolchain_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    seen_as(monkeypatch, OLD_DRIVER)

    report = doctor(registry("cublas", "triton"))

    said = {toolchain.name: toolchain.unusable for toolchain in report.toolchains if not toolchain.targets}
    assert said == {
        "cublas": "NVIDIA's driver 470.82.01 is too old; install 525 or newer",
        "triton": "NVIDIA's driver 470.82.01 is too old; install 580 or newer",
    }
    assert report.obstacles == dict.fromkeys(("cublas", "triton"), "driver too old")
    assert report.devices == ()
    assert not report.usable


# `collage doctor`, which asks each plugin in a process of its own, as it is installed


@dataclasses.dataclass(frozen=True)
class Said:
    """What the command said.

    Attributes:
        status: Its exit status.
        text: On standard output and standard error.
        facts: Its JSON.
    """

    status: int
    text: str
    facts: Mapping[str, Any]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Said:
    """On a machine without a GPU, with the plugins for GPUs and one for the CPU."""
    facts = tmp_path_factory.mktemp("doctor") / "doctor.json"
    with pytest.MonkeyPatch.context() as patch:
        seen_as(patch)
        found = registry("cublas", "near", "triton")
        patch.setattr(Registry, "discover", lambda: found)
        result = CliRunner().invoke(main, ["doctor", "--json", str(facts)])
    return Said(result.exit_code, result.output, json.loads(facts.read_text(encoding="utf-8")))


@pytest.mark.guards(
    "there is no GPU",
    "`doctor` says why each toolchain for GPUs is unusable, as text and JSON, and succeeds: the CPU is usable",
    area="devices",
)
@pytest.mark.parametrize("name", ["cublas", "triton"])
def test_doctor_says_why_a_gpu_s_toolchain_is_unusable_without_one(said: Said, name: str) -> None:
    [facts] = [each for each in said.facts["toolchains"] if each["name"] == name]

    assert facts["distribution"] == f"collage-{name} 0.1.0"
    assert facts["targets"] == []
    assert f"{name} is unusable: {facts['unusable']}" in said.text
    assert "this machine shows no NVIDIA GPU: it has none, no driver for it" in facts["unusable"]


@pytest.mark.guards("there is no GPU")
def test_doctor_without_a_gpu_succeeds_for_the_cpu_is_usable(said: Said) -> None:
    assert said.status == 0, said.text
    assert said.facts["devices"] == ["cpu"]
    assert said.facts["unusable_devices"] == []
    assert "Traceback" not in said.text
