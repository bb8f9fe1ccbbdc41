"""A device's trouble is told apart from the library's, so that core knows what to try again and when to stop."""

from __future__ import annotations

import types
from typing import Any

import pytest

from collage_core.device import PrimaryContexts
from collage_core.errors import DeviceLostError, DeviceMemoryError
from collage_cublas.library import CublasError, CublasLt


def library(status: int) -> Any:
    """A `libcublasLt` all of whose calls give a status."""
    names = ("cublasLtGetVersion", "cublasLtMatmulPreferenceCreate")
    made = types.SimpleNamespace(**{name: lambda *_: status for name in names})
    made.cublasLtGetStatusString = lambda status: b"the resource allocation failed" if status == 3 else b"mistake"
    return made


def test_too_little_memory_is_the_device_s() -> None:
    with pytest.raises(DeviceMemoryError, match="cublasLtMatmulPreferenceCreate: the resource allocation failed"):
        CublasLt(library(3), PrimaryContexts()).preference()


def test_anything_else_is_the_library_s() -> None:
    with pytest.raises(CublasError, match="cublasLtMatmulPreferenceCreate: mistake"):
        CublasLt(library(7), PrimaryContexts()).preference()


@pytest.mark.parametrize(("status", "kind"), [(2, DeviceMemoryError), (719, DeviceLostError), (999, OSError)])
def test_a_device_that_cannot_be_made_current_says_of_what_kind_that_is(status: int, kind: type[Exception]) -> None:
    driver = types.SimpleNamespace(
        cuDeviceGet=lambda *_: 0, cuDevicePrimaryCtxRetain=lambda *_: status, cuGetErrorString=lambda *_: 0
    )
    contexts = PrimaryContexts()
    contexts._driver = driver

    with pytest.raises(kind, match=f"cuDevicePrimaryCtxRetain: {status}"), contexts.current("cuda:0"):
        raise AssertionError
