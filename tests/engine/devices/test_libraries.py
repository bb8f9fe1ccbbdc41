from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from collage.devices.libraries import Libraries
from tests.engine.devices.families import LIBRARIES

MAPS = """\
5581c0000000-5581c0001000 r--p 00000000 08:01 123        /usr/bin/python3.12
7f10c0000000-7f10c8000000 r--p 00000000 08:01 200        /venv/nvidia/cudnn/lib/libcudnn.so.9
7f10c8000000-7f10c9000000 r-xp 08000000 08:01 200        /venv/nvidia/cudnn/lib/libcudnn.so.9
7f10d0000000-7f10d1000000 rw-p 00000000 00:00 0
7f10d2000000-7f10d3000000 r--p 00000000 08:01 201        /opt/with space/libcublasLt.so.13.0.2.14
7f10d4000000-7f10d5000000 r--p 00000000 08:01 202        /venv/cupy.libs/libcudart-3d6b1f1a.so.13.0.96
7f10d6000000-7f10d7000000 r--p 00000000 08:01 203        /usr/lib/libcuda.so.1
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0          [stack]
"""


def test_a_process_s_libraries_are_each_named_once(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text(MAPS, encoding="utf-8")

    assert LIBRARIES.loaded(maps) == (
        "/venv/nvidia/cudnn/lib/libcudnn.so.9",
        "/opt/with space/libcublasLt.so.13.0.2.14",
    )


def test_where_the_system_does_not_tell_there_are_none(tmp_path: Path) -> None:
    assert LIBRARIES.loaded(tmp_path / "maps") == ()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="this system has no /proc")
def test_what_this_process_maps_is_found(tmp_path: Path) -> None:
    path = tmp_path / "libnvinfer_plugin.so.10"
    path.write_bytes(bytes(mmap.PAGESIZE))

    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
        assert str(path) in LIBRARIES.loaded()


@pytest.mark.parametrize(
    ("file", "family", "name"),
    [
        ("libcudnn_ops.so.9.11.0", "cuDNN", "libcudnn_ops.so.9"),
        ("libcublas.so.12", "cuBLAS", "libcublas.so.12"),
        ("libcudart.so.13.0.96", "CUDA runtime", "libcudart.so.13"),
        ("libnvinfer.so.10", "TensorRT", "libnvinfer.so.10"),
    ],
)
def test_a_library_goes_by_the_name_that_programs_ask_for(file: str, family: str, name: str) -> None:
    found = LIBRARIES.at(f"/lib/{file}")

    assert found is not None
    assert (found.family.title, found.name) == (family, name)


@pytest.mark.parametrize(
    "file", ["libcudnn.so", "libcudnn.h", "xlibcudnn.so.9", "libcudadebugger.so.1", "libonnx.so.1"]
)
def test_other_files_are_none_of_them(file: str) -> None:
    assert LIBRARIES.at(f"/lib/{file}") is None


def test_where_nothing_provides_devices_no_library_is_looked_for() -> None:
    assert Libraries(()).at("/lib/libcudnn.so.9") is None
