"""A device's trouble is told apart from the library's, so that core knows what to try again and when to stop."""

from __future__ import annotations

import types
from typing import Any

import pytest

from collage.devices.opening import is_lost
from collage.measure.driver.records import is_short_of_memory
from collage_core.contract import BuildContext, KernelFunction, Unsupported
from collage_core.errors import DeviceLostError, DeviceMemoryError, LoweringError, PluginError
from collage_core.registry import Toolchain
from collage_cublas.library import CublasError, CublasLt, Found, Matmul, NotSupportedError
from collage_cuda import PrimaryContexts
from collage_testing import dense

from .emulator import Emulator
from .machine import TARGET, largest, plugin_over


def product() -> KernelFunction:
    return largest(dense(m=4, n=8, k=16))


def library(status: int) -> Any:
    """A `libcublasLt` all of whose calls give a status."""
    names = ("cublasLtGetVersion", "cublasLtMatmulPreferenceCreate")
    made = types.SimpleNamespace(**{name: lambda *_: status for name in names})
    made.cublasLtGetStatusString = lambda status: b"the resource allocation failed" if status == 3 else b"mistake"
    return made


def test_too_little_memory_is_the_device_s() -> None:
    with pytest.raises(DeviceMemoryError, match="cublasLtMatmulPreferenceCreate: the resource allocation failed"):
        CublasLt(library(3), PrimaryContexts()).preference()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (7, NotSupportedError),  # CUBLAS_STATUS_INVALID_VALUE
        (8, NotSupportedError),  # CUBLAS_STATUS_ARCH_MISMATCH
        (15, NotSupportedError),  # CUBLAS_STATUS_NOT_SUPPORTED
        (1, CublasError),  # CUBLAS_STATUS_NOT_INITIALIZED
        (13, CublasError),  # CUBLAS_STATUS_EXECUTION_FAILED
        (14, CublasError),  # CUBLAS_STATUS_INTERNAL_ERROR
    ],
)
def test_only_what_a_product_itself_cannot_be_is_not_supported(status: int, kind: type[Exception]) -> None:
    with pytest.raises(CublasError, match="cublasLtMatmulPreferenceCreate: mistake") as caught:
        CublasLt(library(status), PrimaryContexts()).preference()

    assert caught.type is kind


class Failing(Emulator):
    """A library that fails at what is asked of it.

    Args:
        create: What making a handle raises; None if it is made.
        heuristic: What asking for algorithms raises.
    """

    def __init__(self, create: Exception | None = None, heuristic: Exception | None = None) -> None:
        super().__init__()
        self._create_fails = create
        self._heuristic_fails = heuristic

    def create(self, device: str) -> int:
        if self._create_fails is not None:
            raise self._create_fails
        return super().create(device)

    def heuristic(self, handle: int, matmul: Matmul, preference: int, count: int) -> list[Found]:
        if self._heuristic_fails is not None:
            raise self._heuristic_fails
        return super().heuristic(handle, matmul, preference, count)


NONE = NotSupportedError("cublasLtMatmulAlgoGetHeuristic: the functionality is not supported")
BROKEN = CublasError("cublasLtCreate: the library was not initialised")
FULL = DeviceMemoryError("cuda:0", "cublasLtCreate: the resource allocation failed")
GONE = DeviceLostError("cuda:0", "cuCtxPushCurrent_v2: unspecified launch failure")


def test_what_the_library_has_nothing_for_is_refused(build: BuildContext) -> None:
    answer = Toolchain("cublas", plugin_over(Failing(heuristic=NONE))).lower(TARGET, product(), build)

    assert answer == Unsupported(str(NONE))


@pytest.mark.parametrize("problem", [{"create": BROKEN}, {"heuristic": BROKEN}])
def test_what_it_fails_at_is_no_refusal(problem: dict[str, Exception], build: BuildContext) -> None:
    with pytest.raises(LoweringError, match="was not initialised"):
        Toolchain("cublas", plugin_over(Failing(**problem))).lower(TARGET, product(), build)


@pytest.mark.parametrize(("problem", "memory", "lost"), [(FULL, True, False), (GONE, False, True)])
def test_a_device_s_trouble_reaches_core_as_such(
    problem: Exception, memory: bool, lost: bool, build: BuildContext
) -> None:
    with pytest.raises(PluginError) as caught:
        Toolchain("cublas", plugin_over(Failing(create=problem))).lower(TARGET, product(), build)

    assert is_short_of_memory(str(caught.value)) is memory
    assert is_lost(caught.value) is lost


@pytest.mark.parametrize(("status", "kind"), [(2, DeviceMemoryError), (719, DeviceLostError), (999, OSError)])
def test_a_device_that_cannot_be_made_current_says_of_what_kind_that_is(status: int, kind: type[Exception]) -> None:
    driver = types.SimpleNamespace(
        cuDeviceGet=lambda *_: 0, cuDevicePrimaryCtxRetain=lambda *_: status, cuGetErrorString=lambda *_: 0
    )
    contexts = PrimaryContexts()
    contexts._driver = driver

    with pytest.raises(kind, match=f"cuDevicePrimaryCtxRetain: {status}"), contexts.current("cuda:0"):
        raise AssertionError
