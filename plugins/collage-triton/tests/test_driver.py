"""What the driver's codes are to core: a device's trouble by its kind, everything else an error of the kernel."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from collage_core.contract import Artifact, Json, RunContext, Unsupported
from collage_core.errors import DeviceLostError, DeviceMemoryError, KernelError
from collage_triton.driver import Driver
from collage_triton.kernel import load

from .emulation import HOST

LAUNCH: dict[str, Json] = {"name": "kernel", "threads": 128, "shared_bytes": 0, "scratch": 0}
ARTIFACT = Artifact(files={"any.cubin": b"code"}, metadata={"grid": [1, 1], "launches": {"any.cubin": LAUNCH}})
RUN = RunContext(threads=1, host=HOST, device="cuda:1", stream=7)


class Cuda:
    """The driver's library, of which one call fails."""

    def __init__(self, failing: str, status: int) -> None:
        self._failing = failing
        self._status = status

    def cuGetErrorString(self, status: int, text: Any) -> int:  # noqa: N802
        ctypes.cast(text, ctypes.POINTER(ctypes.c_char_p))[0] = b"it went wrong"
        return 0

    def cuStreamGetCtx(self, stream: Any, context: Any) -> int:  # noqa: N802
        ctypes.cast(context, ctypes.POINTER(ctypes.c_void_p))[0] = 0xC0
        return self._status if self._failing == "cuStreamGetCtx" else 0

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self._status if name == self._failing else 0


def test_too_little_memory_for_code_is_the_device_s() -> None:
    with pytest.raises(DeviceMemoryError, match="device cuda:1: cuModuleLoadData failed with 2: it went wrong"):
        load(ARTIFACT, RUN, lambda: Driver(Cuda("cuModuleLoadData", 2)))


def test_a_stream_that_is_none_is_refused() -> None:
    answer = load(ARTIFACT, RUN, lambda: Driver(Cuda("cuStreamGetCtx", 400)))

    assert answer == Unsupported("cuStreamGetCtx failed with 400: it went wrong")


@pytest.mark.parametrize(("status", "what"), [(209, "cuModuleLoadData failed with 209"), (222, "222"), (200, "200")])
def test_code_that_is_none_for_the_device_is_refused_so_that_other_code_is_made(status: int, what: str) -> None:
    answer = load(ARTIFACT, RUN, lambda: Driver(Cuda("cuModuleLoadData", status)))

    assert isinstance(answer, Unsupported)
    assert what in answer.reason


class Counting(Cuda):
    """Nothing fails; the names of what is called are noted."""

    def __init__(self) -> None:
        super().__init__("", 0)
        self.called: list[str] = []

    def cuModuleGetFunction(self, function: Any, module: Any, name: Any) -> int:  # noqa: N802
        ctypes.cast(function, ctypes.POINTER(ctypes.c_void_p))[0] = len(self.called)
        return 0

    def __getattr__(self, name: str) -> Any:
        self.called.append(name)
        return super().__getattr__(name)


def test_code_is_loaded_once_for_each_context_however_often_a_kernel_is() -> None:
    cuda = Counting()
    driver = Driver(cuda)
    one, other = ctypes.c_void_p(0xC0), ctypes.c_void_p(0xC1)

    asked = [(one, b"code", "kernel", 0), (one, b"else", "kernel", 0), (other, b"code", "kernel", 0)]
    functions = [driver.function(*each).value for _ in range(3) for each in asked]

    assert cuda.called.count("cuModuleLoadData") == len(asked)
    assert functions == functions[: len(asked)] * 3
    assert len(set(functions)) == len(asked)


@pytest.mark.parametrize(("status", "kind"), [(700, DeviceLostError), (719, DeviceLostError), (1, KernelError)])
def test_a_launch_says_of_which_device_it_was(status: int, kind: type[Exception]) -> None:
    driver = Driver(Cuda("cuLaunchKernel", status))
    context = driver.context_of(7, "cuda:1")

    with pytest.raises(kind, match=f"cuLaunchKernel failed with {status}: it went wrong") as raised:
        driver.launch(context, ctypes.c_void_p(1), (1, 1), 128, 0, 7, None)

    assert kind is KernelError or "device cuda:1" in str(raised.value)
