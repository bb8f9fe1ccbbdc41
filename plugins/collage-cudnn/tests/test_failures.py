"""What fails while a candidate is built or loaded: who is to blame, and what becomes of it in core."""

from __future__ import annotations

from typing import Any

import pytest

from collage.devices.opening import is_lost
from collage.measure.driver.records import is_short_of_memory
from collage_core.contract import BuildContext, RunContext, Unsupported
from collage_core.errors import DeviceLostError, DeviceMemoryError, LoweringError, PluginError
from collage_core.registry import Toolchain
from collage_cudnn.errors import CudnnError
from collage_cudnn.graph import Graph
from collage_cudnn.plugin import CudnnPlugin
from collage_testing.kit import FakeDevice
from collage_testing.kit.contexts import run_context
from collage_testing.kit.gpu_plugins import HOST

from .cases import FLOAT16, convolution
from .emulator import Emulator
from .machine import TARGET, largest, plugin_over

MEMORY = DeviceMemoryError("cuda:0", "cudnnFinalize: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED")
LOST = DeviceLostError("cuda:0", "cuCtxPushCurrent_v2: unspecified launch failure")
BROKEN = CudnnError("cudnnFinalize: CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER")


def lowered(emulator: Emulator, build: BuildContext) -> list[Any] | Unsupported:
    answer = Toolchain("cudnn", plugin_over(emulator)).lower(TARGET, largest(convolution("Relu")), build)
    return answer if isinstance(answer, Unsupported) else list(answer)


@pytest.mark.parametrize(("problem", "memory", "lost"), [(MEMORY, True, False), (LOST, False, True)])
def test_a_devices_trouble_reaches_core_as_such(
    problem: Exception, memory: bool, lost: bool, build: BuildContext
) -> None:
    with pytest.raises(PluginError) as caught:
        lowered(Emulator(fails=lambda graph: problem), build)

    assert is_short_of_memory(str(caught.value)) is memory  # core tries it again another time
    assert is_lost(caught.value) is lost  # core ends the worker


def test_what_the_library_fails_at_without_refusing_it_is_no_refusal(build: BuildContext) -> None:
    with pytest.raises(LoweringError, match=r"nchw: cudnnFinalize.*; nhwc: cudnnFinalize"):
        lowered(Emulator(fails=lambda graph: BROKEN), build)


def test_a_layout_that_fails_costs_the_other_nothing_and_is_told_at_the_end(build: BuildContext) -> None:
    def only_first(graph: Graph) -> Exception | None:
        return BROKEN if graph.inputs[0].strides[1] == 1 else None

    answer = Toolchain("cudnn", plugin_over(Emulator(fails=only_first))).lower(
        TARGET, largest(convolution("Relu")), build
    )
    assert not isinstance(answer, Unsupported)
    variants = iter(answer)

    assert [next(variants).variant.partition("_")[0] for _ in range(3)] == ["nchw"] * 3
    with pytest.raises(LoweringError, match="nhwc: cudnnFinalize"):
        next(variants)


class Full(Emulator):
    """On a device that has no memory left for weights."""

    def place(self, array: Any, handle: int) -> Any:
        raise MEMORY


class Lost(Emulator):
    """On a device that is gone when a stream's handle is made."""

    def handle(self, device: str, stream: int | None) -> int:
        if stream is not None:
            raise LOST
        return super().handle(device, stream)


@pytest.mark.parametrize(("emulator", "memory", "lost"), [(Full(), True, False), (Lost(), False, True)])
def test_a_kernel_that_the_device_has_no_room_for_or_is_gone_for_is_no_refusal(
    emulator: Emulator, memory: bool, lost: bool, build: BuildContext
) -> None:
    function = largest(convolution("Relu", dtype=FLOAT16))
    toolchain = Toolchain("cudnn", plugin_over(emulator))
    answer = toolchain.lower(TARGET, function, build)
    assert not isinstance(answer, Unsupported)
    artifact = next(iter(answer))
    assert artifact.variant.startswith("nhwc_")  # of which weights are made
    stream = FakeDevice("cuda:0").open("cuda:0")
    run = run_context(artifact, function, TARGET, stream)

    with pytest.raises(PluginError) as caught:
        toolchain.load(TARGET, artifact, run)

    assert is_short_of_memory(str(caught.value)) is memory
    assert is_lost(caught.value) is lost


def missing() -> Emulator:
    raise OSError("libcudnn.so.9: cannot open shared object file")


def test_where_there_is_no_library_a_package_says_so(build: BuildContext) -> None:
    answer = lowered(Emulator(), build)
    assert not isinstance(answer, Unsupported)
    stream = FakeDevice("cuda:0").open("cuda:0")

    refusal = CudnnPlugin(missing).collage_load(
        TARGET, answer[0], RunContext(threads=1, host=HOST, device="cuda:0", stream=stream.handle)
    )

    assert isinstance(refusal, Unsupported)
    assert refusal.reason == "cuDNN cannot be loaded (libcudnn.so.9: cannot open shared object file)"
    assert refusal.obstacle.value == "no library"
