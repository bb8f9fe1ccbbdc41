"""What is no package, or not one any more, is refused before it is used."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from collage.errors import NotAPackageError, PackageDamagedError, PackageError, PackageVersionError
from collage.runtime.load import load
from collage.runtime.package import load_package
from collage.runtime.package.manifest import SCHEMA_VERSION
from tests.engine.runtime.mocks import reference
from tests.engine.runtime.packages import X, changed_manifest, registry, rewrite, save, three_products

Parse = Callable[[str], ir.Model]


@pytest.fixture
def model(parsed: Parse) -> ir.Model:
    return three_products(parsed)


@pytest.fixture
def saved(tmp_path: Path, model: ir.Model) -> Path:
    return save(tmp_path / "m.collage", model)


@pytest.mark.guards(
    "a package of a newer or an older schema",
    "refused, naming the version that wrote it and what to do",
    area="packages and files",
)
def test_a_newer_schema_is_refused_with_advice(saved: Path) -> None:
    newer = SCHEMA_VERSION + 1
    rewrite(saved, changed_manifest({"schema_version": newer, "collage_version": "9.1"}))

    said = rf"schema version {newer}, .* reads {SCHEMA_VERSION}; .* written by 9.1: upgrade"
    with pytest.raises(PackageVersionError, match=said):
        load_package(saved)


@pytest.mark.guards("a package of a newer or an older schema")
@pytest.mark.parametrize("older", range(1, SCHEMA_VERSION))
def test_an_older_schema_is_refused_with_advice(saved: Path, older: int) -> None:
    rewrite(saved, changed_manifest({"schema_version": older, "collage_version": "0.1"}))

    why = rf"schema version {older}, this Collage reads {SCHEMA_VERSION}; .* written by 0.1: optimize the model again"
    with pytest.raises(PackageVersionError, match=why):
        load_package(saved)


def test_facts_of_a_newer_minor_version_are_ignored(saved: Path) -> None:
    rewrite(saved, changed_manifest({"new_fact": 1}))

    assert load_package(saved).plan.record == {"decision": "so"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"threads": "3"}, "expected int"),
        ({"targets": {}}, "unknown target 'mock'"),
        ({"weights": {}}, "asks for a weight that is not there"),
        ({"weights": {"../../x": {"dtype": "FLOAT", "shape": [1]}}}, "asks for a weight"),
        ({"entries": {}}, "lacks the entry"),
    ],
)
def test_a_manifest_that_is_none_is_refused(saved: Path, changes: dict[str, Any], reason: str) -> None:
    rewrite(saved, changed_manifest(changes))

    with pytest.raises(PackageDamagedError, match=reason):
        load_package(saved)


@pytest.mark.parametrize("data", [b"{", b"[" * 100_000, b"\xff", b'{"format": "collage-package"}'])
def test_a_manifest_that_cannot_be_read_is_refused(saved: Path, data: bytes) -> None:
    rewrite(saved, lambda entries: entries.update({"manifest.json": data}))

    with pytest.raises(PackageDamagedError):
        load_package(saved)


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"\x08\x0a" * 100, b"PK\x05\x06" + bytes(18)], ids=["empty", "text", "onnx", "empty zip"]
)
def test_other_files_are_not_packages(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.collage"
    path.write_bytes(content)

    with pytest.raises(NotAPackageError):
        load_package(path)


def test_an_archive_of_something_else_is_not_a_package(saved: Path) -> None:
    rewrite(saved, lambda entries: entries.update({"manifest.json": b'{"name": "an extension"}'}))

    with pytest.raises(NotAPackageError):
        load_package(saved)


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="No such file"):
        load_package(tmp_path / "none.collage")


@pytest.mark.guards("a package is truncated anywhere", "refused", area="packages and files")
def test_every_truncation_is_found(saved: Path) -> None:
    whole = saved.read_bytes()
    for size in (*range(4, len(whole), len(whole) // 40), len(whole) - 1):
        saved.write_bytes(whole[:size])
        with pytest.raises(PackageDamagedError, match="truncated or damaged"):
            load_package(saved)


def test_a_changed_byte_is_found_when_the_entry_is_read(saved: Path, model: ir.Model) -> None:
    whole = bytearray(saved.read_bytes())
    tensor = model.graph.initializers["w"].const_value
    assert tensor is not None
    whole[whole.index(tensor.tobytes()) + 7] ^= 1
    saved.write_bytes(whole)

    with pytest.raises(PackageDamagedError, match="checksum of entry 'weights/"):
        load(saved, registry=registry())


def test_changed_bytes_never_pass_unnoticed(saved: Path, model: ir.Model) -> None:
    whole = saved.read_bytes()
    rng = np.random.default_rng(0)
    expected = reference(model, {"x": X})[0]
    for position in rng.integers(0, len(whole), 60):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << int(rng.integers(8))
        saved.write_bytes(damaged)
        try:
            got = load(saved, registry=registry()).run(None, {"x": X})[0]
        except PackageError:
            continue
        np.testing.assert_array_equal(got, expected)  # padding, dates and other fields nothing depends on


@pytest.mark.guards(
    "names that leave the folder, of entries or of an artifact's files, or that some system takes for a device",
    "refused; a plugin that lowers to such names is refused before it is measured",
    area="packages and files",
)
@pytest.mark.parametrize(
    "name", ["../evil", "/evil", "a/../../evil", "c:evil", "a\\evil", "weights/./x", "x\n", ".. /x"]
)
def test_names_that_leave_the_folder_are_refused(saved: Path, name: str) -> None:
    rewrite(saved, lambda entries: entries.update({name: b"x"}))

    with pytest.raises(PackageDamagedError, match="which no package has"):
        load_package(saved)


def test_entries_the_manifest_does_not_know_are_refused(saved: Path) -> None:
    rewrite(saved, lambda entries: entries.update({"extra": b"x"}))

    with pytest.raises(PackageDamagedError, match="does not know the entry 'extra'"):
        load_package(saved)


def test_an_entry_larger_than_declared_is_refused(saved: Path) -> None:
    rewrite(saved, lambda entries: entries.update({"record.json": b" " * 100_000}))

    with pytest.raises(PackageDamagedError, match="has 100000 bytes, its manifest says"):
        load_package(saved)


def test_compressed_entries_are_refused_unread(saved: Path) -> None:
    rewrite(saved, lambda entries: entries.update({"record.json": b" " * 100_000}), zipfile.ZIP_DEFLATED)

    with pytest.raises(PackageDamagedError, match="packages store entries as they are"):
        load_package(saved)


def test_a_model_that_reads_other_files_is_refused(saved: Path) -> None:
    def change(entries: dict[str, bytes]) -> None:
        weight = next(name for name in entries if name.startswith("weights/") and len(entries[name]) == 4096)
        entries["model.onnx"] = entries["model.onnx"].replace(weight.encode(), b"../" * 23 + b"abc")
        manifest = json.loads(entries["manifest.json"])
        manifest["entries"]["model.onnx"]["sha256"] = hashlib.sha256(entries["model.onnx"]).hexdigest()
        entries["manifest.json"] = json.dumps(manifest).encode()

    rewrite(saved, change)

    with pytest.raises(PackageDamagedError, match="which the package does not have"):
        _ = load_package(saved).plan.model
