"""Libraries that a package's toolchains bring into one process."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from collage.errors import LibraryClashError
from collage.runtime import Executable
from collage.runtime.kernels.clashes import LibraryWatch
from collage.runtime.session import Session
from collage_core.contract import Artifact, Kernel, RunContext, Target, Unsupported
from collage_core.passes.call_sites import call_sites
from tests.engine.devices.families import LIBRARIES, PROVIDERS
from tests.engine.runtime.mocks import ExecutingMock, partition

pytestmark = pytest.mark.guards(
    "a package is loaded where its toolchains load two cuDNNs, or the program has another already",
    "it does not load: the error names both files, their owners and the remedy",
    area="devices",
)

Parse = Callable[[str], ir.Model]


class Process:
    """One whose libraries are put there by hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.paths: list[str] = []

    def load(self, name: str, content: str = "") -> str:
        """Another library, of this path in the folder; equal contents are copies of one."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content or name, encoding="utf-8")
        self.paths.append(str(path))
        return str(path)

    def watched(self) -> LibraryWatch:
        return LibraryWatch(LIBRARIES, lambda: tuple(self.paths))


@pytest.fixture
def process(tmp_path: Path) -> Process:
    return Process(tmp_path)


def test_two_of_a_library_are_named_with_who_loaded_them_and_what_to_do(process: Process) -> None:
    watch = process.watched()
    ours = process.load("a/libcudnn.so.9")
    watch.look("cudnn")
    theirs = process.load("b/libcudnn.so.9")

    with pytest.raises(LibraryClashError) as raised:
        watch.look("torch_like")

    error = raised.value
    assert (error.library, error.between, error.files) == ("cuDNN", ("cudnn", "torch_like"), (ours, theirs))
    assert str(error).startswith(f"two of cuDNN: cudnn has loaded {ours}, torch_like has loaded {theirs}")
    assert "with one cuDNN" in str(error)


def test_two_versions_are_two_libraries(process: Process) -> None:
    watch = process.watched()
    process.load("libcublasLt.so.12")
    watch.look("cublas")
    process.load("libcublasLt.so.13")

    with pytest.raises(LibraryClashError, match="two of cuBLAS"):
        watch.look("tensorrt")


@pytest.mark.parametrize(
    "second", [("b/libcudnn.so.9", "same"), ("b/libcudnn_ops.so.9", "other"), ("b/libcuda.so.1", "other")]
)
def test_copies_other_parts_and_the_drivers_own_are_no_clash(second: tuple[str, str], process: Process) -> None:
    watch = process.watched()
    process.load("a/libcudnn.so.9", "same")
    process.load("a/libcuda.so.1", "same")
    watch.look("cudnn")
    process.load(*second)

    watch.look("cublas")


def test_what_one_toolchain_loads_is_its_own_matter(process: Process) -> None:
    watch = process.watched()
    process.load("a/libcudart.so.13")
    process.load("b/libcudart.so.13")

    watch.look("tensorrt")


def test_what_comes_with_later_kernels_is_seen_at_the_end(process: Process) -> None:
    watch = process.watched()
    process.load("a/libcudnn.so.9")
    watch.look("cudnn")
    watch.look("cublas")
    process.load("b/libcudnn.so.9")
    watch.look("cublas")  # not looked at: its first kernel brought nothing

    with pytest.raises(LibraryClashError):
        watch.look_again()


def test_a_programs_own_library_of_the_same_name_is_a_clash_and_of_another_version_its_own_matter(
    process: Process,
) -> None:
    process.load("program/libcudart.so.12")
    own = process.load("program/libcudnn.so.9")
    watch = process.watched()
    process.load("wheel/libcudart.so.13")
    watch.look("cublas")
    theirs = process.load("wheel/libcudnn.so.9")

    with pytest.raises(LibraryClashError) as raised:
        watch.look("cudnn")

    assert raised.value.between == ("", "cudnn")
    assert f"this process had loaded {own} before, cudnn has loaded {theirs}" in str(raised.value)
    assert "in a process of its own" in str(raised.value)


def test_no_kernel_is_nothing_to_look_at(process: Process) -> None:
    process.load("a/libcudnn.so.9")

    process.watched().look_again()


# A plan of two toolchains that map files of this name, as loading a library does


@pytest.fixture
def mapped() -> Iterator[list[mmap.mmap]]:
    maps: list[mmap.mmap] = []
    yield maps
    for each in maps:
        each.close()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="this system does not say what is loaded")
@pytest.mark.parametrize("clash", [True, False])
def test_a_plan_whose_toolchains_load_two_of_a_library_does_not_load(
    clash: bool, parsed: Parse, mapped: list[mmap.mmap], tmp_path: Path
) -> None:
    model = partition(parsed("g (float[4] x) => (float[4] z) { y = Neg(x) z = Abs(y) }"))
    toolchain = ExecutingMock()
    artifacts = toolchain.lower_all(model)
    names = [site.name for site in call_sites(model)]
    targets = {site: Target(toolchain=who, fingerprint="1") for site, who in zip(names, "ab", strict=True)}
    for who in "ab":
        (tmp_path / who).mkdir()
        (tmp_path / who / "libcudnn.so.9").write_bytes((who if clash else "a").encode() * mmap.PAGESIZE)

    def load(target: Target, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
        with (tmp_path / target.toolchain / "libcudnn.so.9").open("rb") as file:
            mapped.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        return toolchain.load(target, artifact, run)

    if clash:
        with pytest.raises(LibraryClashError) as raised:
            Executable.build(model, artifacts, targets, load, threads=1, providers=PROVIDERS)
        assert raised.value.between == ("a", "b")
        return
    x = np.array([1, -2, 3, -4], np.float32)
    [z] = Session(Executable.build(model, artifacts, targets, load, threads=1, providers=PROVIDERS)).run(None, {"x": x})
    np.testing.assert_array_equal(z, np.abs(x))
