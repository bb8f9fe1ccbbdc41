"""The kernel that rounds: NVIDIA's assembler takes it, and a recorded driver loads and launches it."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from collage_cublas.casting import KERNELS, THREADS
from collage_cublas.library import CublasError, CublasLt, DataType
from collage_cuda import PrimaryContexts


@pytest.mark.parametrize("dtype", KERNELS)
def test_the_rounding_kernel_is_what_nvidias_assembler_takes(dtype: str, tmp_path: Path) -> None:
    """That of Triton's wheel, or of a toolkit."""
    triton = importlib.util.find_spec("triton")
    own = Path(str(triton.origin)).parent / "backends" / "nvidia" / "bin" / "ptxas" if triton else None
    assembler = str(own) if own and own.exists() else shutil.which("ptxas")
    if assembler is None:
        pytest.skip("no ptxas: neither Triton nor a CUDA toolkit is installed")
    name, code = KERNELS[dtype]
    (tmp_path / "k.ptx").write_bytes(code.rstrip(b"\0"))

    for machine in ("sm_80", "sm_90"):
        command = [assembler, f"-arch={machine}", "-v", "k.ptx", "-o", "k.cubin"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert name.encode() in (tmp_path / "k.cubin").read_bytes()
        assert "0 bytes spill stores" in done.stderr


def _put(place: Any, value: int) -> None:
    ctypes.cast(place, ctypes.POINTER(ctypes.c_void_p))[0] = value


class RecordedCuda:
    """The driver's library: every call succeeds unless it is to fail; modules and launches are kept."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.loaded: list[bytes] = []
        self.launches: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: 1 if name == self.fails else self._called(name, *arguments)

    def _called(self, name: str, *arguments: Any) -> int:
        if name == "cuModuleLoadData":
            self.loaded.append(arguments[1])
        elif name == "cuModuleGetFunction":
            _put(arguments[0], len(self.loaded))
        elif name == "cuLaunchKernel":
            function, *shape, _shared, stream, values, _ = arguments
            numbers = [ctypes.cast(each, ctypes.POINTER(ctypes.c_uint64))[0] for each in values]
            self.launches.append((function.value, [each.value for each in shape], stream.value, numbers))
        return 0


class RecordedLibrary:
    """cuBLASLt, of which a handle is wanted only."""

    def __init__(self) -> None:
        self.cublasLtGetVersion: Any = lambda: 130000
        self.cublasLtGetStatusString: Any = lambda status: b""

    def cublasLtCreate(self, place: Any) -> int:  # noqa: N802
        _put(place, 5)
        return 0


def library_over(cuda: RecordedCuda) -> tuple[CublasLt, int]:
    contexts = PrimaryContexts()
    contexts._driver = cuda
    library = CublasLt(RecordedLibrary(), contexts)
    return library, library.create("cuda:0")


@pytest.mark.parametrize(("count", "blocks"), [(1, 1), (THREADS, 1), (THREADS + 1, 2)])
def test_a_call_is_one_launch_with_a_thread_for_each_number(count: int, blocks: int) -> None:
    cuda = RecordedCuda()
    library, handle = library_over(cuda)

    calls = [
        library.rounding(handle, dtype, source=0x1000, target=0x2000, count=count, stream=7)
        for dtype in (DataType.R_16F, DataType.R_16BF, DataType.R_16F)
    ]

    assert cuda.loaded == [code for _, code in KERNELS.values()]  # each once
    assert cuda.launches == []
    for call in calls:
        call()
    assert cuda.launches == [
        (function, [blocks, 1, 1, THREADS, 1, 1], 7, [0x1000, 0x2000, count]) for function in (1, 2, 1)
    ]


@pytest.mark.parametrize("fails", ["cuModuleLoadData", "cuLaunchKernel"])
def test_what_the_driver_refuses_is_the_librarys_error(fails: str) -> None:
    library, handle = library_over(RecordedCuda(fails))

    with pytest.raises(CublasError, match=f"{fails}: 1"):
        library.rounding(handle, DataType.R_16F, source=0, target=0, count=1, stream=0)()
