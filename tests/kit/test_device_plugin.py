"""How a plugin of a device is tested where there is none: the example of the page on writing plugins, used by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from collage_core.contract import Artifact, BoundCall, Buffer, Device, Host, Kernel, RunContext, Supported, Target
from collage_core.hookspecs import hookimpl
from collage_core.patterns import PatternTable
from collage_core.registry import Toolchain
from collage_testing import chain
from collage_testing.kit import FakeDevice, check_plugin, stream_of

GPU = Device(name="cuda:0", model="made up", compute_capability="9.0", driver="1", memory_bytes=1 << 30)
HOST = Host(system="Linux", cpu="t", physical_cores=1, cpu_flags=frozenset(), memory_bytes=1, devices=(GPU,))


class EmulatedLaunches:
    """What stands for your library's launch in tests."""

    def launch(self, stream: int, compute: Any, places: Sequence[Buffer]) -> None:
        on = stream_of(stream)

        def work() -> None:
            compute(*(on.device.view(each.pointer, each.spec.static_shape, each.spec.numpy_dtype) for each in places))

        on.enqueue("kernel", work)


class Rectifier:
    """A plugin outside of this repository: Relu on a GPU, by a library that launches."""

    def __init__(self, launches: EmulatedLaunches) -> None:
        self.launches = launches

    @hookimpl
    def collage_targets(self, host: Host) -> list[Target]:
        return [Target(toolchain="rectifier", device=each.name, fingerprint="rectifier 1") for each in host.devices]

    @hookimpl
    def collage_register_predicates(self, table: PatternTable) -> None:
        table.predicate("Relu", lambda node: Supported())

    @hookimpl
    def collage_lower(self) -> Iterator[Artifact]:
        yield Artifact(files={}, capturable=True)

    @hookimpl
    def collage_load(self, run: RunContext) -> Kernel:
        assert run.stream is not None
        launches, stream = self.launches, run.stream

        class Relu:
            def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
                return lambda: launches.launch(stream, lambda x, y: np.maximum(x, 0, out=y), (*inputs, *outputs))

        return Relu()


def test_a_plugin_outside_is_checked_on_a_device_that_is_not_there() -> None:
    device = FakeDevice("cuda:0")

    found = check_plugin(
        Toolchain("rectifier", Rectifier(EmulatedLaunches())),
        {"relu": chain("Relu")},
        host=HOST,
        open_device=device.open,
    )

    assert found.ran == {"relu": 1}
    assert "launch" in device.kinds()


def test_a_launch_on_another_stream_is_seen() -> None:
    """The handle of a stream is all that a kernel knows of its device."""
    other = FakeDevice("cuda:0").open("cuda:0")

    class Elsewhere(EmulatedLaunches):
        def launch(self, stream: int, compute: Any, places: Sequence[Buffer]) -> None:
            super().launch(other.handle, compute, places)

    with pytest.raises(AssertionError, match="wrong numbers"):
        check_plugin(
            Toolchain("rectifier", Rectifier(Elsewhere())),
            {"relu": chain("Relu")},
            host=HOST,
            open_device=FakeDevice("cuda:0").open,
        )
