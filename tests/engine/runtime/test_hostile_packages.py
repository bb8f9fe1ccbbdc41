"""Packages made to run their code, to exhaust the machine or to mislead: nothing of them is loaded or executed."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import subprocess
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from collage.commands.compare import compare
from collage.devices.this_host import usable_cpus
from collage.errors import PackageDamagedError
from collage.reference.plugin import ReferencePlugin
from collage.runtime import Lowered
from collage.runtime.load import load
from collage.runtime.package import TrustedPackages, load_package, save_package
from collage_core.contract import Artifact, Kernel, RunContext, Supported, Target, Unsupported
from collage_core.errors import KernelLoadError
from collage_core.hookspecs import hookimpl
from collage_core.ir.io.model_io import save_model
from collage_core.passes.call_sites import CallSite
from collage_core.registry import Registry, Toolchain
from tests.engine.runtime.mocks import ExecutingMock, partition
from tests.engine.runtime.packages import rewrite

Parse = Callable[[str], ir.Model]
Entries = dict[str, bytes]

NATIVE = Target(toolchain="native", fingerprint="native 1")
DATA = Target(toolchain="data", fingerprint="data 1")
LIBRARY = "kernel.so"
X = np.random.default_rng(0).normal(size=(2, 32)).astype(np.float32)


class Native:
    """A toolchain whose artifacts hold a shared library, which loading opens; the numbers are the reference's."""

    def __init__(self, *, here: bool = True) -> None:
        self.here = here

    @hookimpl
    def collage_check_host(self) -> Supported | Unsupported:
        return Supported() if self.here else Unsupported("there is no such device")

    @hookimpl
    def collage_targets(self) -> list[Target]:
        return [NATIVE]

    @hookimpl
    def collage_load(self, target: Target, artifact: Artifact, run: RunContext) -> Kernel:
        assert run.scratch is not None
        place = run.scratch / LIBRARY
        place.write_bytes(artifact.files[LIBRARY])
        if artifact.files[LIBRARY].startswith(b"\x7fELF"):
            ctypes.CDLL(str(place))
        else:  # no compiler here: loading it stands for executing it
            Path(os.fsdecode(artifact.files[LIBRARY])).touch()
        return ReferencePlugin().collage_load(artifact, run)


class Data:
    """A toolchain whose artifacts are models; says so."""

    def __init__(self) -> None:
        self.loaded = self.threads = 0

    @hookimpl
    def collage_targets(self) -> list[Target]:
        return [DATA]

    @hookimpl
    def collage_check_data(self) -> Supported:
        return Supported()

    @hookimpl
    def collage_load(self, artifact: Artifact, run: RunContext) -> Kernel:
        self.loaded += 1
        self.threads = run.threads
        return ReferencePlugin().collage_load(artifact, run)


class Scene:
    """A victim's machine: toolchains, a package from elsewhere, and the mark its code would leave."""

    def __init__(self, model: ir.Model, folder: Path) -> None:
        self.model, self.path, self.mark = model, folder / "m.collage", folder / "mark"
        self.native, self.data = Native(), Data()
        self.library = library_leaving(self.mark, folder)

    @property
    def registry(self) -> Registry:
        return Registry.of(Toolchain("native", self.native), Toolchain("data", self.data))

    def save(self, target: Target, *, threads: int = 1) -> None:
        """Save a package; its author's machine is not this one."""
        partitioned = partition(self.model, target=target)
        artifacts = {
            site: Artifact(files={**each.files, LIBRARY: self.library})
            for site, each in ExecutingMock().lower_all(partitioned).items()
        }
        targets = dict.fromkeys(artifacts, target)
        save_package(self.path, partitioned, artifacts, targets, None, threads=threads, model_name="m", model_sha256="")

    def change(self, change: Callable[[Entries, dict[str, Any]], None]) -> None:
        """Change the package, and correct sizes and checksums."""

        def rewritten(entries: Entries) -> None:
            manifest = json.loads(entries["manifest.json"])
            change(entries, manifest)
            for name in manifest["entries"]:
                data = entries[name]
                manifest["entries"][name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            entries["manifest.json"] = json.dumps(manifest).encode()

        rewrite(self.path, rewritten)

    def run(self, **options: Any) -> None:
        """Load and run the package; its numbers are right."""
        [y] = load(self.path, registry=self.registry, **options).run(None, {"x": X})
        np.testing.assert_array_equal(y, np.exp(-X))


def library_leaving(mark: Path, folder: Path) -> bytes:
    """A shared library whose constructor makes a file; without a compiler, the file's name."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return os.fsencode(mark)
    source, library = folder / "kernel.c", folder / LIBRARY
    text = f'#include <stdio.h>\n__attribute__((constructor)) static void run(void) {{ fclose(fopen("{mark}", "w")); }}'
    source.write_text(text)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    return library.read_bytes()


@pytest.fixture
def scene(parsed: Parse, tmp_path: Path) -> Scene:
    return Scene(parsed("g (float[2,32] x) => (float[2,32] y) { a = Neg(x) y = Exp(a) }"), tmp_path)


def is_code(scene: Scene) -> None:
    scene.save(NATIVE)


def claims_to_be_data(scene: Scene) -> None:
    scene.save(NATIVE)

    def claim(entries: Entries, manifest: dict[str, Any]) -> None:
        manifest.update(trusted=True, code=False)
        for kernel in manifest["plans"][0]["kernels"].values():
            kernel.update(trusted=True, code=False)
            kernel["artifact"].update(trusted=True, code=False, metadata={"data": True})

    scene.change(claim)


def is_retold(scene: Scene) -> None:
    """The package of a toolchain of data, with everything about it changed to another's."""
    scene.save(DATA)

    def retell(entries: Entries, manifest: dict[str, Any]) -> None:
        manifest["targets"] = {"native": {**manifest["targets"]["data"], "toolchain": "native"}}
        for kernel in manifest["plans"][0]["kernels"].values():
            kernel["target"] = "native"
        model = onnx.ModelProto.FromString(entries["model.onnx"])
        for function in model.functions:
            for entry in function.metadata_props:
                if entry.value == "data":
                    entry.value = "native"
        entries["model.onnx"] = model.SerializeToString()

    scene.change(retell)


def is_changed_after_it_was_accepted(scene: Scene) -> None:
    scene.library = b"harmless"
    scene.save(NATIVE)
    TrustedPackages().add(load_package(scene.path).digest, scene.path, "accepted")
    evil = library_leaving(scene.mark, scene.path.parent)

    def exchange(entries: Entries, manifest: dict[str, Any]) -> None:
        for name in entries:
            if name.endswith(LIBRARY):
                entries[name] = evil

    scene.change(exchange)


def was_forgotten(scene: Scene) -> None:
    scene.save(NATIVE)
    digest = load_package(scene.path).digest
    TrustedPackages().add(digest, scene.path, "accepted")
    assert TrustedPackages().remove(digest)


CODE: dict[str, Callable[[Scene], None]] = {
    "a shared library of somebody else's": is_code,
    "a shared library that says it is data": claims_to_be_data,
    "a package of data rewritten to name a toolchain of code": is_retold,
    "an accepted package whose library was exchanged": is_changed_after_it_was_accepted,
    "a package that was accepted and forgotten again": was_forgotten,
}


@pytest.mark.guards(
    "a package with a shared library: sent by others, said to be data, exchanged after it was accepted",
    "nothing of it is loaded: lowered again from the packaged function, or refused with the way to accept it",
    area="packages and files",
)
@pytest.mark.parametrize("kind", CODE)
def test_code_of_others_is_refused_with_the_way_to_accept_it(kind: str, scene: Scene) -> None:
    CODE[kind](scene)

    with pytest.raises(KernelLoadError, match=rf"it is code, .* accept it with `collage trust {scene.path}`"):
        scene.run()
    assert not scene.mark.exists()


@pytest.mark.guards("a package with a shared library: sent by others, said to be data, exchanged after it was accepted")
@pytest.mark.parametrize("kind", CODE)
def test_code_of_others_is_lowered_again_where_that_is_possible(kind: str, scene: Scene, tmp_path: Path) -> None:
    CODE[kind](scene)
    own = library_leaving(tmp_path / "own", tmp_path)

    def relower(site: CallSite, target: Target) -> Iterator[Lowered]:
        yield Lowered(target=target, artifact=Artifact(files={**ExecutingMock().lower(site).files, LIBRARY: own}))

    session = load(scene.path, registry=scene.registry, relowering=lambda plan: relower)

    np.testing.assert_array_equal(session.run(None, {"x": X})[0], np.exp(-X))
    assert "it is code" in session.report().substitutes[0].reason
    assert (tmp_path / "own").exists()
    session.clone().run(None, {"x": X})
    assert not scene.mark.exists()


def test_code_of_others_is_not_compared_either(scene: Scene, tmp_path: Path) -> None:
    is_code(scene)
    save_model(scene.model, tmp_path / "m.onnx")

    with pytest.raises(KernelLoadError, match=r"it is code, .* `collage trust "):
        compare(tmp_path / "m.onnx", scene.path, registry=scene.registry)
    assert not scene.mark.exists()


def test_code_that_was_accepted_is_loaded(scene: Scene) -> None:
    scene.save(NATIVE)
    moved = scene.path.with_name("moved.collage")
    TrustedPackages().add(load_package(scene.path).digest, scene.path, "accepted")
    scene.path = scene.path.rename(moved)

    scene.run()

    assert scene.mark.exists()


def test_code_that_the_caller_vouches_for_is_loaded(scene: Scene) -> None:
    scene.save(NATIVE)

    scene.run(trusted=True)

    assert scene.mark.exists()


def test_a_library_changed_in_the_file_after_opening_is_refused(scene: Scene) -> None:
    scene.library = b"harmless"
    scene.save(NATIVE)
    package = load_package(scene.path)
    data = scene.path.read_bytes()
    with scene.path.open("r+b") as file:
        file.seek(data.index(b"harmless"))
        file.write(b"harmfull")

    with pytest.raises(PackageDamagedError, match=r"the checksum of entry .*kernel\.so' does not match"):
        load(package, registry=scene.registry, trusted=True)


@pytest.mark.guards(
    "a package of a target that its toolchain does not offer on this machine",
    "nothing of it is loaded, even if the package is trusted; another target runs its kernels, and a warning says so, "
    "or `strict=True` refuses",
    area="packages and files",
)
def test_a_toolchain_without_a_device_here_loads_nothing(scene: Scene) -> None:
    scene.save(NATIVE)
    scene.native.here = False

    with pytest.raises(KernelLoadError, match="does not offer that target here: there is no such device"):
        scene.run(trusted=True)
    assert not scene.mark.exists()


@pytest.mark.guards("a package of a target that its toolchain does not offer on this machine")
@pytest.mark.parametrize("change", [{"options": [["unsafe", "1"]]}, {"device": "cuda:0"}], ids=["option", "device"])
def test_a_target_that_is_not_offered_is_refused_before_loading(change: dict[str, Any], scene: Scene) -> None:
    odd = "data(unsafe=1)" if "options" in change else "data@cuda:0"
    scene.save(DATA)

    def retell(entries: Entries, manifest: dict[str, Any]) -> None:
        manifest["targets"] = {odd: {**manifest["targets"]["data"], **change}}
        for kernel in manifest["plans"][0]["kernels"].values():
            kernel["target"] = odd
        model = onnx.ModelProto.FromString(entries["model.onnx"])
        for function in model.functions:
            for entry in function.metadata_props:
                if entry.key == "collage.target":
                    entry.value = odd
        entries["model.onnx"] = model.SerializeToString()

    scene.change(retell)

    with pytest.raises(KernelLoadError, match="does not offer that target here: it offers data"):
        scene.run()
    assert scene.data.loaded == 0


def external(tensor: onnx.TensorProto, location: str) -> None:
    tensor.ClearField("raw_data")
    tensor.ClearField("float_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)


@pytest.mark.guards(
    "weights in files that the package does not have: of its model, of an artifact",
    "refused; no such file is read",
    area="packages and files",
)
@pytest.mark.parametrize("location", ["secret", "/etc/passwd", "../secret", "*/_ORT_MEM_ADDR_/*"])
def test_an_artifact_of_the_reference_reads_no_file(
    location: str, parsed: Parse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(parsed("g (float[2,32] x) => (float[2,32] y) <float one = {1.0}> { y = Add(x, one) }"), tmp_path)
    scene.save(DATA)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret").write_bytes(np.float32(7).tobytes())

    def point_elsewhere(entries: Entries, manifest: dict[str, Any]) -> None:
        for name in entries:
            if name.startswith("artifacts/") and name.endswith(".onnx"):
                proto = onnx.ModelProto.FromString(entries[name])
                for tensor in proto.graph.initializer:
                    external(tensor, location)
                assert proto.graph.initializer
                entries[name] = proto.SerializeToString()

    scene.change(point_elsewhere)

    with pytest.raises(KernelLoadError, match="must hold its weights itself"):
        scene.run()


@pytest.mark.guards(
    "one entry under 2,000 names, in the archive's directory or in an artifact; thousands of threads",
    "refused; read once; as many threads as there are CPUs",
    area="packages and files",
)
def test_one_entry_under_2000_names_of_the_archive_is_refused(scene: Scene) -> None:
    scene.save(DATA)
    with zipfile.ZipFile(scene.path, "a") as archive:
        [first, *_] = archive.infolist()
        for number in range(2000):
            twin = zipfile.ZipInfo(f"twin{number}")
            for field in ("header_offset", "CRC", "compress_size", "file_size", "external_attr"):
                setattr(twin, field, getattr(first, field))
            archive.filelist.append(twin)
            archive.NameToInfo[twin.filename] = twin
        archive._didModify = True  # type: ignore[attr-defined]  # so that the directory is written anew

    with pytest.raises(PackageDamagedError, match="overlaps another"):
        load_package(scene.path)


@pytest.mark.guards("one entry under 2,000 names, in the archive's directory or in an artifact; thousands of threads")
def test_one_entry_under_2000_names_of_an_artifact_is_held_once(scene: Scene) -> None:
    scene.library = bytes(1 << 20)
    scene.save(DATA)

    def name_again(entries: Entries, manifest: dict[str, Any]) -> None:
        for kernel in manifest["plans"][0]["kernels"].values():
            files = kernel["artifact"]["files"]
            files.update({f"file{number}": files[LIBRARY] for number in range(2000)})

    scene.change(name_again)

    tracemalloc.start()
    try:
        scene.run()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 << 20


@pytest.mark.guards("one entry under 2,000 names, in the archive's directory or in an artifact; thousands of threads")
def test_4096_threads_are_as_many_as_there_are_cpus(scene: Scene) -> None:
    scene.save(DATA, threads=4096)

    scene.run()

    assert scene.data.threads == min(4096, usable_cpus())


@pytest.mark.parametrize("version", [0, -1, 2.0, "2", True, None])
def test_what_is_no_schema_version_is_damage(version: Any, scene: Scene) -> None:
    scene.save(DATA)
    scene.change(lambda entries, manifest: manifest.update(schema_version=version))

    with pytest.raises(PackageDamagedError, match=r"schema version is|schema_version"):
        load_package(scene.path)
