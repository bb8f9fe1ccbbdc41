from __future__ import annotations

import datetime
import mmap
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

import collage
from collage.errors import PackageError
from collage.runtime import Lowered
from collage.runtime.load import load
from collage.runtime.package import load_package, save_package
from collage_core.contract import Artifact, Requirement, Target
from collage_core.errors import KernelLoadError, UsageError
from collage_core.ir.io.model_io import save_model
from collage_core.passes.call_sites import CallSite, call_sites
from collage_core.registry import Registry
from tests.engine.runtime.mocks import MOCK, ExecutingMock, partition, reference
from tests.engine.runtime.packages import X, registry, save, three_products

Parse = Callable[[str], ir.Model]


@pytest.fixture
def model(parsed: Parse) -> ir.Model:
    return three_products(parsed)


@pytest.fixture
def saved(tmp_path: Path, model: ir.Model) -> Path:
    return save(tmp_path / "m.collage", model)


@pytest.mark.parametrize("embed", [True, False])
def test_a_saved_package_runs_as_the_model_did(tmp_path: Path, model: ir.Model, embed: bool) -> None:
    path = save(tmp_path / "m.collage", model, ExecutingMock(embed=embed))

    session = load(path, registry=registry())

    np.testing.assert_array_equal(session.run(None, {"x": X})[0], reference(model, {"x": X})[0])
    np.testing.assert_array_equal(session.clone().run(None, {"x": X})[0], reference(model, {"x": X})[0])


def test_each_weight_is_stored_once_uncompressed_and_aligned(saved: Path) -> None:
    with zipfile.ZipFile(saved) as archive:
        assert archive.testzip() is None
        infos = {info.filename: info for info in archive.infolist()}
    weights = [name for name in infos if name.startswith("weights/")]

    # the scalar is stored too: an artifact asks for it
    assert sorted(infos[name].file_size for name in weights) == [4, 4096, 4096]
    assert all(info.compress_type == zipfile.ZIP_STORED for info in infos.values())
    package = load_package(saved)
    for weight in package.weights.values():
        assert not weight.flags.writeable
        assert weight.ctypes.data % 64 == 0


def test_equal_artifact_files_are_stored_once(tmp_path: Path, model: ir.Model) -> None:
    partitioned = partition(model)
    same = Artifact(files={"kernel.so": b"code" * 100})
    sites = [site.name for site in call_sites(partitioned)]
    path = tmp_path / "m.collage"

    save_package(
        path,
        partitioned,
        dict.fromkeys(sites, same),
        dict.fromkeys(sites, MOCK),
        None,
        threads=1,
        model_name="",
        model_sha256="",
    )

    package = load_package(path)
    assert [name for name in package.manifest.entries if name.startswith("artifacts/")] == ["artifacts/k0000/kernel.so"]
    assert all(artifact == same for artifact in package.plan.artifacts.values())


def test_everything_about_an_artifact_and_its_target_comes_back(tmp_path: Path, parsed: Parse) -> None:
    partitioned = partition(parsed("g (float[2] x) => (float[2] y) { y = Neg(x) }"))
    artifact = Artifact(
        files={"a.bin": b"\0\1", "b.json": b"{}"},
        metadata={"tiles": [1, 2], "nested": {"x": None, "y": 1.5}},
        requires=(Requirement(kind="library", name="numpy", specifier=">=2"),),
        workspace_bytes=12,
        variant="tiled",
        capturable=True,
        deterministic=False,
    )
    path = tmp_path / "m.collage"

    when = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    save_package(
        path,
        partitioned,
        {"k0000": artifact},
        {"k0000": MOCK},
        [1],
        threads=2,
        model_name="n",
        model_sha256="cd",
        created=when,
    )

    package = load_package(path)
    assert package.plan.artifacts["k0000"] == artifact
    assert package.plan.targets == {"k0000": MOCK}
    assert package.plan.record == [1]
    manifest = package.manifest
    assert (manifest.threads, manifest.model_name, manifest.model_sha256) == (2, "n", "cd")
    assert manifest.created == "2026-01-02T00:00:00+00:00"
    assert [library.name for library in manifest.libraries if library.name == "numpy"] == ["numpy"]


def test_equal_content_gives_equal_files(tmp_path: Path, model: ir.Model) -> None:
    when = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)

    one = save(tmp_path / "one.collage", model, created=when)
    other = save(tmp_path / "other.collage", model, created=when)

    assert one.read_bytes() == other.read_bytes()


def test_the_model_inside_is_standard_onnx(saved: Path, tmp_path: Path, model: ir.Model) -> None:
    exported = tmp_path / "out" / "exported.onnx"
    exported.parent.mkdir()
    save_model(load_package(saved).plan.model, exported)
    onnx.checker.check_model(str(exported))
    with zipfile.ZipFile(saved) as archive:
        archive.extractall(tmp_path / "extracted")
    onnx.checker.check_model(str(tmp_path / "extracted" / "model.onnx"))

    for path in (exported, tmp_path / "extracted" / "model.onnx"):
        got = ReferenceEvaluator(onnx.load(path)).run(None, {"x": X})
        np.testing.assert_array_equal(got[0], reference(model, {"x": X})[0])


def test_low_precision_weights_come_back(tmp_path: Path, parsed: Parse) -> None:
    made = parsed("g (float[64,64] x) => (float[64,64] y) { y = Neg(x) }")
    rng = np.random.default_rng(0)
    tensors = {
        dtype: ir.Tensor(rng.integers(-2, 2, (64, 65)).astype(dtype.numpy()), dtype, name=dtype.name)
        for dtype in (ir.DataType.BFLOAT16, ir.DataType.FLOAT8E4M3FN, ir.DataType.INT4, ir.DataType.BOOL)
    }
    for tensor in tensors.values():
        made.graph.register_initializer(ir.Value(name=tensor.name, const_value=tensor))
        made.graph.outputs.append(made.graph.initializers[str(tensor.name)])
    for value in made.graph.initializers.values():
        assert value.const_value is not None
        value.dtype, value.shape = value.const_value.dtype, ir.Shape((64, 65))

    session = load(save(tmp_path / "m.collage", made), registry=registry())

    outputs = session.run(None, {"x": np.zeros((64, 64), np.float32)})[1:]
    for got, tensor in zip(outputs, tensors.values(), strict=True):
        assert got.dtype == tensor.numpy().dtype
        np.testing.assert_array_equal(got, tensor.numpy())


def test_a_failed_save_leaves_the_old_package(saved: Path, parsed: Parse) -> None:
    before = saved.read_bytes()
    partitioned = partition(parsed("g (float[2] x) => (float[2] y) { y = Neg(x) }"))

    other = Target(toolchain="other", fingerprint="1")
    escape = Artifact(files={"../escape": b""})
    for artifacts, target in (({}, MOCK), ({"k0000": escape}, MOCK), ({"k0000": Artifact(files={})}, other)):
        with pytest.raises(PackageError):
            save_package(
                saved,
                partitioned,
                artifacts,
                {"k0000": target},
                None,
                threads=1,
                model_name="",
                model_sha256="",
            )

    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


@pytest.mark.guards("a package is replaced while it is opened, or later")
def test_an_open_package_survives_being_replaced(saved: Path, model: ir.Model) -> None:
    package = load_package(saved)
    save(saved, model, ExecutingMock(embed=True))

    session = load(package, registry=registry())

    np.testing.assert_array_equal(session.run(None, {"x": X})[0], reference(model, {"x": X})[0])


@pytest.mark.guards(
    "a package is replaced while it is opened, or later", "what was opened is read, whole", area="packages and files"
)
def test_a_package_replaced_while_it_is_opened_is_read_as_the_old_one(
    saved: Path, model: ir.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = save(tmp_path / "newer.collage", model, ExecutingMock(embed=True))
    old = saved.read_bytes()
    mapped = mmap.mmap

    def map_and_replace(*arguments: Any, **options: Any) -> mmap.mmap:
        made = mapped(*arguments, **options)
        newer.replace(saved)  # as another process may, at any moment
        return made

    monkeypatch.setattr(mmap, "mmap", map_and_replace)
    package = load_package(saved)

    assert saved.read_bytes() != old
    session = load(package, registry=registry())
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], reference(model, {"x": X})[0])


def test_a_missing_toolchain_is_named(saved: Path) -> None:
    with pytest.raises(KernelLoadError, match="toolchain 'mock' is not installed"):
        load(saved, registry=Registry({}))
    with pytest.raises(KernelLoadError, match="toolchain 'mock' is not usable"):
        load(saved)


@pytest.mark.parametrize("threads", [0, -1, 1_000_000, 2.0, True])
def test_what_is_no_number_of_threads_is_refused(saved: Path, threads: Any) -> None:
    toolchain = ExecutingMock()

    ways: list[Callable[[], object]] = [
        lambda: load(saved, threads=threads, registry=registry(toolchain)),
        lambda: collage.load(saved, threads=threads),
    ]
    for way in ways:
        with pytest.raises(UsageError, match=f"the number of threads is from 1 to 4096, not {threads}"):
            way()

    assert toolchain.loaded == 0


def test_what_does_not_load_is_lowered_again_from_the_package(saved: Path, model: ir.Model) -> None:
    toolchain = ExecutingMock(refuse=["made for another CPU"])

    def relower(site: CallSite, target: Target) -> Iterator[Lowered]:
        yield Lowered(target=target, artifact=ExecutingMock(embed=True).lower(site))

    session = load(saved, registry=registry(toolchain), relowering=lambda plan: relower)

    np.testing.assert_array_equal(session.run(None, {"x": X})[0], reference(model, {"x": X})[0])


def test_loading_imports_nothing_that_searches_or_measures() -> None:
    forbidden = ("search", "measure", "database", "pipeline", "report")
    script = (
        "import sys, collage.runtime; "
        f"print([m for m in sys.modules if m.startswith(tuple('collage_core.' + n for n in {forbidden})) ])"
    )

    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert answer.stdout.strip() == "[]"
