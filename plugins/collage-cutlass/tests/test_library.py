"""Compiled libraries as they are loaded, and what their answers mean; those that are called are none of nvcc's."""

from __future__ import annotations

import _ctypes
import ctypes
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from collage_core.contract import BuildContext, RunContext, Unsupported
from collage_core.errors import DeviceError, DeviceLostError, DeviceMemoryError
from collage_cutlass.library import Compiled, CutlassError
from collage_cutlass.plugin import CutlassPlugin
from collage_cutlass.problem import Move
from collage_testing.kit.gpu_plugins import HOST

from .cases import product
from .emulator import FakeCompiler
from .machine import TARGET, largest, plugin_over


def test_bytes_that_are_no_library_are_refused_with_the_loaders_words(build: BuildContext, tmp_path: Path) -> None:
    answer = plugin_over(FakeCompiler()).collage_lower(TARGET, largest(product()), build)
    assert not isinstance(answer, Unsupported)
    run = RunContext(threads=1, host=HOST, device="cuda:0", stream=1, scratch=tmp_path)

    refused = CutlassPlugin().collage_load(TARGET, next(answer), run)  # an emulated library is its source

    assert isinstance(refused, Unsupported)
    assert "cannot be loaded" in refused.reason
    assert list(tmp_path.iterdir()) == []


def test_a_library_without_these_functions_is_of_another_version(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"none that this version of the plugin compiles: .*collage_status"):
        Compiled(Path(_ctypes.__file__).read_bytes(), tmp_path)


class Answering:
    """A library of which every function answers the same, as C would."""

    def __init__(self, answer: int) -> None:
        self.told: list[Any] = []
        self._answer = answer

    def collage_move(self, arguments: Any, stream: ctypes.c_void_p) -> int:
        self.told.append((arguments._obj, stream.value))
        return self._answer

    def collage_status(self, status: int) -> bytes:
        return f"status {status}".encode()

    def collage_error(self, error: int) -> bytes:
        return f"error {error}".encode()


def over(library: Answering) -> Compiled:
    compiled = Compiled.__new__(Compiled)
    compiled._library = library
    return compiled


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (7, CutlassError, "collage_move: status 7"),
        (-2, DeviceMemoryError, "collage_move: error 2"),  # cudaErrorMemoryAllocation
        (-700, DeviceLostError, "collage_move: error 700"),  # cudaErrorIllegalAddress
        (-1, DeviceError, "device cuda:3: collage_move: error 1"),  # cudaErrorInvalidValue
    ],
)
def test_what_a_call_answers_has_its_kind(answer: int, error: type[Exception], text: str) -> None:
    call = over(Answering(answer)).move(Move((1, 2, 3)), 256, 512, 3, 77)

    with pytest.raises(error, match=text):
        call()


def test_a_call_tells_what_it_was_given() -> None:
    library = Answering(0)

    over(library).move(Move((4, 5, 6), turned=True, narrowed=True), 256, 512, 3, 77)()

    [(arguments, stream)] = library.told
    told = SimpleNamespace(**{name: getattr(arguments, name) for name, *_ in arguments._fields_})
    assert told == SimpleNamespace(batch=4, rows=5, columns=6, device=3, turned=1, narrowed=1, given=256, result=512)
    assert stream == 77
