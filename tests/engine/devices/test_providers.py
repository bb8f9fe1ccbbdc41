"""Who provides devices: each on its own, checked, and with a reason where it fails."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from collage.devices import providers as rooms
from collage.devices.providers import Providers
from collage.devices.this_host import this_host
from collage_core.contract import DEVICE_ENTRY_POINT_GROUP, Device, DeviceStream, LibraryFamily
from collage_core.entry_points import discovered
from collage_core.errors import DeviceLostError, DeviceUnavailableError, PluginError
from collage_testing.kit import FakeDevice, FakeDevices, fake_providers
from tests import from_source

NPU = Device(name="npu:0", model="NPU 1", compute_capability="", driver="1.0", memory_bytes=1 << 30)


class Npu:
    """A provider of one device, which is fake."""

    library_families: Sequence[LibraryFamily] = ()

    def devices(self) -> Any:
        return [NPU]

    def open(self, name: str) -> Any:
        return FakeDevice(name).open(name)

    def why_unusable(self, name: str) -> str:
        return "its power is off"


class Raising(Npu):
    def devices(self) -> Any:
        raise OSError("its driver\nis gone")

    def open(self, name: str) -> Any:
        raise ValueError("no handle")

    def why_unusable(self, name: str) -> str:
        raise ValueError("no idea")


class Strange(Npu):
    def devices(self) -> Any:
        return [FakeDevice("npu:0")]

    def open(self, name: str) -> Any:
        return 7


class OfAnotherKind(Npu):
    def devices(self) -> Any:
        return [Device(name="gpu:0", model="", compute_capability="", driver="", memory_bytes=0)]


npu = Npu()
nothing = object()


def test_the_machine_has_the_devices_that_are_provided() -> None:
    providers = Providers.of({"npu": npu})

    assert providers.devices() == (NPU,)
    assert this_host(providers).devices == (NPU,)
    assert isinstance(providers.open("npu:0"), DeviceStream)
    assert providers.why_unusable("npu:0") == "its power is off"
    assert providers.problems() == ()


@pytest.mark.parametrize(
    ("provider", "reason"),
    [
        (Raising(), "OSError: its driver is gone"),
        (Strange(), "its answer is none of devices"),
        (OfAnotherKind(), "it provides devices of kind npu, not gpu:0"),
    ],
)
def test_a_provider_that_cannot_say_costs_its_own_devices_only(provider: Npu, reason: str) -> None:
    class Other(Npu):
        def devices(self) -> Any:
            return [Device(name="other:0", model="", compute_capability="", driver="", memory_bytes=0)]

    providers = Providers.of({"npu": provider, "other": Other()})

    assert [device.name for device in providers.devices()] == ["other:0"]
    [problem] = providers.problems()
    assert problem.name == "npu"
    assert reason in problem.reason


def test_what_a_provider_fails_with_is_an_error_of_the_device() -> None:
    with pytest.raises(DeviceUnavailableError, match="npu:0: its provider failed: ValueError: no handle"):
        Providers.of({"npu": Raising()}).open("npu:0")
    with pytest.raises(DeviceUnavailableError, match="its provider gives int, no DeviceStream"):
        Providers.of({"npu": Strange()}).open("npu:0")
    assert Providers.of({"npu": Raising()}).why_unusable("npu:0") == "ValueError: no idea"


def test_an_error_of_the_device_is_the_provider_s_own() -> None:
    class Lost(Npu):
        def open(self, name: str) -> Any:
            raise DeviceLostError(name, "it fell off the bus")

    with pytest.raises(DeviceLostError, match="it fell off the bus"):
        Providers.of({"npu": Lost()}).open("npu:0")


def test_a_device_that_nobody_provides_is_refused_with_what_to_install() -> None:
    with pytest.raises(DeviceUnavailableError, match="npu:0: nothing installed provides devices of kind npu"):
        Providers.of({}).open("npu:0")
    with pytest.raises(DeviceUnavailableError, match=r"kind cuda\. Install `collage-engine\[cuda\]`"):
        Providers.of({}).open("cuda:0")


def test_a_driver_without_a_provider_is_told_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(rooms, "_KNOWN", {"npu": ("collage-npu", tmp_path)})

    [reason] = Providers.of({}).unprovided()

    assert reason == "npu: nothing installed provides devices of kind npu. Install `collage-npu`"
    assert Providers.of({"npu": npu}).unprovided() == ()
    monkeypatch.setattr(rooms, "_KNOWN", {"npu": ("collage-npu", tmp_path / "absent")})
    assert Providers.of({}).unprovided() == ()


def test_several_fake_devices_of_a_kind_are_told_apart() -> None:
    providers = fake_providers(FakeDevice("fake:0"), FakeDevice("fake:1"), FakeDevice("other:0"))

    assert [providers.open(name).name for name in ("fake:0", "fake:1", "other:0")] == ["fake:0", "fake:1", "other:0"]
    with pytest.raises(DeviceUnavailableError, match="there is fake:0, fake:1"):
        providers.open("fake:2")


# Those that are installed


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts distributions with providers on Python's path; nothing else provides devices."""
    others = discovered

    def mine(group: str, load: Any, what: str) -> Any:
        known, failures = others(group, load, what)
        return {n: k for n, k in known.items() if n in names}, tuple(f for f in failures if f.name in names)

    names: set[str] = set()
    monkeypatch.setattr(rooms, "discovered", mine)
    monkeypatch.syspath_prepend(str(tmp_path))

    def put(distribution: str, **entries: str) -> None:
        names.update(entries)
        from_source.metadata(tmp_path, distribution, "1.0", {DEVICE_ENTRY_POINT_GROUP: entries})

    return put


def test_an_entry_point_provides_the_kind_it_is_named_after(installed: Any) -> None:
    installed("collage-npu", npu=f"{__name__}:npu")

    providers = Providers.discover()

    assert providers.devices() == (NPU,)
    assert providers.by_kind["npu"].distribution == "collage-npu 1.0"


def test_one_that_does_not_load_costs_itself_and_says_why(installed: Any) -> None:
    installed("collage-npu", npu=f"{__name__}:npu", broken="no_such_module:provider", empty=f"{__name__}:nothing")

    providers = Providers.discover()

    assert list(providers.by_kind) == ["npu"]
    assert {failure.name: failure.distribution for failure in providers.failures} == {
        "broken": "collage-npu 1.0",
        "empty": "collage-npu 1.0",
    }
    reasons = [failure.reason for failure in providers.failures]
    assert "no_such_module" in reasons[0]
    assert reasons[1] == "object is no DeviceProvider"
    with pytest.raises(DeviceUnavailableError, match="what provides devices of kind broken cannot be used"):
        providers.open("broken:0")


def test_two_that_claim_one_kind_are_both_refused_and_named(installed: Any) -> None:
    installed("collage-npu", npu=f"{__name__}:npu")
    installed("collage-other", npu=f"{__name__}:nothing")

    providers = Providers.discover()

    [failure] = providers.failures
    assert failure.reason == "collage-npu 1.0 and collage-other 1.0 both bring devices of this kind; remove one"
    assert "npu" not in providers.by_kind


def test_a_provider_under_development_takes_the_place_of_the_installed_one(installed: Any) -> None:
    installed("collage-npu", npu=f"{__name__}:npu")

    providers = Providers.discover().replaced([("npu", f"{__name__}:other"), ("fake", f"{__name__}:fakes")])

    assert [device.name for device in providers.devices()] == ["npu:1"]
    assert providers.open("fake:3").name == "fake:3"
    with pytest.raises(PluginError, match="no_such_module"):
        providers.replaced([("npu", "no_such_module:provider")])


class Other(Npu):
    def devices(self) -> Any:
        return [Device(name="npu:1", model="", compute_capability="", driver="", memory_bytes=0)]


other = Other()
fakes = FakeDevices(FakeDevice("fake:3"))


def test_entry_points_without_a_distribution_are_named_by_what_they_refer_to() -> None:
    from collage_core.entry_points import distinct, distribution_of

    one = EntryPoint("npu", "module:attribute", DEVICE_ENTRY_POINT_GROUP)

    assert distribution_of(one) == "module:attribute"
    assert distinct([one, one]) == [one]
