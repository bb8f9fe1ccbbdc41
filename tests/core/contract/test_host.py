"""Machines and their devices, as what measurements hold for."""

from __future__ import annotations

import dataclasses

import pytest

from collage_core.contract import Device, Host

H100 = Device(name="cuda:0", model="NVIDIA H100", compute_capability="9.0", driver="580.65.06", memory_bytes=80 << 30)
HOST = Host(system="Linux x86_64", cpu="test", physical_cores=1, cpu_flags=frozenset(), memory_bytes=1)


@pytest.mark.guards(
    "the GPU's driver is updated, or the GPU exchanged",
    "measurements of kernels and whole plans taken before are not used; those of the CPU are",
    area="toolchains",
)
def test_measurements_on_a_device_are_kept_apart_by_device_and_driver() -> None:
    host = dataclasses.replace(HOST, devices=(H100,))
    updated = dataclasses.replace(HOST, devices=(dataclasses.replace(H100, driver="590.1"),))
    exchanged = dataclasses.replace(HOST, devices=(dataclasses.replace(H100, model="NVIDIA H200"),))

    assert len({each.fingerprint_for("cuda:0") for each in (host, updated, exchanged, HOST)}) == 4
    assert {each.fingerprint_for("cpu") for each in (host, updated, exchanged)} == {HOST.fingerprint}
    assert host.device("cuda:1") is None


def test_what_was_measured_on_several_devices_holds_for_all_of_them() -> None:
    other = dataclasses.replace(H100, name="cuda:1", model="NVIDIA H200")
    host = dataclasses.replace(HOST, devices=(H100, other))

    assert host.fingerprint_for() == host.fingerprint_for("cpu", "cpu") == HOST.fingerprint
    assert host.fingerprint_for("cpu", "cuda:0") == host.fingerprint_for("cuda:0")
    assert host.fingerprint_for("cuda:1", "cpu", "cuda:0") == host.fingerprint_for("cuda:0", "cuda:1")
    assert len({host.fingerprint_for(*each) for each in ((), ("cuda:0",), ("cuda:1",), ("cuda:0", "cuda:1"))}) == 4
