"""Packages that were damaged, or made to do harm: refused with a reason, or what they compute is unchanged."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import stat
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from collage.errors import PackageDamagedError, PackageError
from collage.runtime.load import load
from collage.runtime.package import load_package
from collage.runtime.package import manifest as manifest_module
from collage_core.errors import MemoryNeededError
from tests.engine.runtime.mocks import reference
from tests.engine.runtime.packages import X, registry, rewrite, save

Parse = Callable[[str], ir.Model]
Entries = dict[str, bytes]
Change = Callable[[onnx.ModelProto, dict[str, Any]], None]


@pytest.fixture(scope="module")
def model(parsed: Parse) -> ir.Model:
    made = parsed("""g (float[2,32] x, float[32,32] w) => (float[2,32] y) <float one = {1.0}>
    { a = MatMul(x, w) b = Tanh(a) y = Add(b, one) }""")
    value = list(made.graph.inputs)[1]
    made.graph.inputs.remove(value)
    value.const_value = ir.tensor(np.random.default_rng(1).normal(size=(32, 32)).astype(np.float32), name="w")
    made.graph.register_initializer(value)
    return made


@pytest.fixture(scope="module")
def whole(model: ir.Model, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return save(tmp_path_factory.mktemp("package") / "m.collage", model).read_bytes()


@pytest.fixture(scope="module")
def expected(model: ir.Model) -> np.ndarray[Any, Any]:
    return np.asarray(reference(model, {"x": X})[0])


@pytest.fixture
def saved(whole: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "m.collage"
    path.write_bytes(whole)
    return path


def is_refused(path: Path, expected: np.ndarray[Any, Any]) -> bool:
    """Whether a package is refused; if not, it must compute what it did."""
    try:
        package = load_package(path)
        got = load(package, registry=registry()).run(None, {"x": X})[0]
        assert package.plan.record == {"decision": "so"}
    except PackageError:
        return True
    np.testing.assert_array_equal(got, expected)
    return False


def regions(data: bytes) -> Iterator[tuple[str, int, int]]:
    """Every part of the file: what it is, where it starts and ends."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        infos, directory = archive.infolist(), archive.start_dir
    for info in infos:
        names, extra = struct.unpack_from("<HH", data, info.header_offset + 26)
        header = info.header_offset + 30
        yield f"header of {info.filename}", info.header_offset, header
        yield f"name of {info.filename}", header, header + names
        yield f"padding of {info.filename}", header + names, header + names + extra
        yield f"content of {info.filename}", header + names + extra, header + names + extra + info.file_size
    yield "directory", directory, len(data) - 22
    yield "end", len(data) - 22, len(data)


def test_the_regions_are_the_whole_file(whole: bytes) -> None:
    ends = [(start, end) for _, start, end in regions(whole)]

    assert ends[0][0] == 0
    assert ends[-1][1] == len(whole)
    assert all(end == start for (_, end), (start, _) in itertools.pairwise(ends))


@pytest.mark.guards(
    "a bit flipped in any part of a package; runs of bytes overwritten, inserted, deleted, repeated, cut",
    "refused, or the outputs are the same",
    area="packages and files",
)
@pytest.mark.parametrize("places_each", [3, pytest.param(12, marks=pytest.mark.slow)])
def test_a_changed_byte_in_any_part_is_refused_or_changes_nothing(
    places_each: int, whole: bytes, saved: Path, expected: np.ndarray[Any, Any]
) -> None:
    draw = np.random.default_rng(5)
    refused: dict[str, int] = {}
    for name, start, end in regions(whole):
        count = places_each if " of " in name else 12  # the directory and the end are there once
        places = draw.choice(np.arange(start, end), min(count, end - start), replace=False)
        for place in places:
            damaged = bytearray(whole)
            damaged[place] ^= 1 << int(draw.integers(8))
            saved.write_bytes(damaged)
            refused[name] = refused.get(name, 0) + is_refused(saved, expected)
        if name.startswith("content of "):  # all that matters is under a checksum
            assert refused[name] == len(places), name
    assert refused["directory"] > 0
    assert refused["end"] > 0


@st.composite
def damages(draw: st.DrawFn) -> tuple[str, float, float, bytes]:
    kind = draw(st.sampled_from(["overwrite", "insert", "delete", "cut", "repeat", "append"]))
    where, size = draw(st.floats(0, 1)), draw(st.floats(0, 0.1))
    return kind, where, size, draw(st.binary(min_size=1, max_size=64))


def damaged(data: bytes, damage: tuple[str, float, float, bytes]) -> bytes:
    kind, where, size, junk = damage
    at = int(where * len(data))
    end = at + max(1, int(size * len(data)))
    match kind:
        case "overwrite":
            return data[:at] + junk + data[at + len(junk) :]
        case "insert":
            return data[:at] + junk + data[at:]
        case "delete":
            return data[:at] + data[end:]
        case "cut":
            return data[:at]
        case "repeat":
            return data[:end] + data[at:end] + data[end:]
    return data + junk


@pytest.mark.guards(
    "a bit flipped in any part of a package; runs of bytes overwritten, inserted, deleted, repeated, cut"
)
@settings(
    max_examples=120,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(damage=damages())
@example(damage=("insert", 0.0, 0.0, b"#!/bin/sh\n"))
@example(damage=("append", 0.0, 0.0, b"\0"))
@example(damage=("cut", 0.0, 0.0, b"\0"))
def test_any_damage_is_refused_or_changes_nothing(
    whole: bytes, saved: Path, expected: np.ndarray[Any, Any], damage: tuple[str, float, float, bytes]
) -> None:
    saved.write_bytes(damaged(whole, damage))

    is_refused(saved, expected)


def consistently(change: Callable[[Entries, dict[str, Any]], None]) -> Callable[[Entries], None]:
    """A change to entries and manifest by somebody who corrects sizes and checksums afterwards."""

    def rewritten(entries: Entries) -> None:
        manifest = json.loads(entries["manifest.json"])
        change(entries, manifest)
        for name, data in entries.items():
            if name in manifest["entries"]:
                manifest["entries"][name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        entries["manifest.json"] = json.dumps(manifest).encode()

    return rewritten


def test_a_package_that_another_zip_tool_wrote_anew_is_as_good(saved: Path, expected: np.ndarray[Any, Any]) -> None:
    rewrite(saved, consistently(lambda entries, manifest: None))

    assert not is_refused(saved, expected)


@pytest.mark.guards(
    "two entries of one name; entries over one another; links and special files", "refused", area="packages and files"
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_entries_of_one_name_are_refused(saved: Path) -> None:
    with zipfile.ZipFile(saved, "a") as archive:
        archive.writestr("record.json", b"{}")

    with pytest.raises(PackageDamagedError, match=r"two entries named 'record\.json'"):
        load_package(saved)


@pytest.mark.guards("two entries of one name; entries over one another; links and special files")
@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFDIR, stat.S_IFCHR])
def test_links_and_other_special_files_are_refused(saved: Path, kind: int) -> None:
    link = zipfile.ZipInfo("weights/link")
    link.external_attr = (kind | 0o777) << 16
    with zipfile.ZipFile(saved, "a") as archive:
        archive.writestr(link, "/etc/passwd")

    with pytest.raises(PackageDamagedError, match="'weights/link' is a link or another special file"):
        load_package(saved)


@pytest.mark.guards(
    "bombs: compressed entries, sizes beyond the file, a huge manifest, deep JSON, absurd numbers, more "
    "memory than there is"
)
def test_an_entry_that_says_it_is_larger_than_the_file_is_refused(whole: bytes, saved: Path) -> None:
    [(_, start, _)] = [region for region in regions(whole) if region[0] == "directory"]
    data = bytearray(whole)
    struct.pack_into("<LL", data, start + 20, 0xFFFFFFF0, 0xFFFFFFF0)  # both sizes of the first entry
    saved.write_bytes(data)

    with pytest.raises(PackageDamagedError, match="ends outside the file"):
        load_package(saved)


@pytest.mark.guards("two entries of one name; entries over one another; links and special files")
def test_entries_that_lie_over_each_other_are_refused(whole: bytes, saved: Path) -> None:
    # the trick of zip bombs that need no nesting (https://www.bamsoftware.com/hacks/zipbomb/)
    [(_, start, _)] = [region for region in regions(whole) if region[0] == "directory"]
    names, extra, comment = struct.unpack_from("<HHH", whole, start + 28)
    second = start + 46 + names + extra + comment
    data = bytearray(whole)
    struct.pack_into("<L", data, second + 42, struct.unpack_from("<L", whole, start + 42)[0])
    saved.write_bytes(data)

    with pytest.raises(PackageDamagedError, match="overlaps another"):
        load_package(saved)


@pytest.mark.guards(
    "bombs: compressed entries, sizes beyond the file, a huge manifest, deep JSON, absurd numbers, more "
    "memory than there is",
    "refused before they go off",
    area="packages and files",
)
def test_a_bomb_is_refused_before_it_goes_off(saved: Path) -> None:
    rewrite(saved, lambda entries: entries.update({"record.json": bytes(50_000_000)}), zipfile.ZIP_DEFLATED)
    assert saved.stat().st_size < 200_000

    with pytest.raises(PackageDamagedError, match="packages store entries as they are"):
        load_package(saved)


@pytest.mark.guards(
    "bombs: compressed entries, sizes beyond the file, a huge manifest, deep JSON, absurd numbers, more "
    "memory than there is"
)
def test_a_manifest_beyond_all_measure_is_not_parsed(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_module, "JSON_LIMIT_BYTES", 100_000)
    rewrite(saved, lambda entries: entries.update({"manifest.json": entries["manifest.json"] + b" " * 100_000}))

    with pytest.raises(PackageDamagedError, match="more than the 100000 any package has"):
        load_package(saved)


@pytest.mark.guards(
    "bombs: compressed entries, sizes beyond the file, a huge manifest, deep JSON, absurd numbers, more "
    "memory than there is"
)
@pytest.mark.parametrize(
    "text", ["[" * 200_000, '{"a":' * 200_000, '{"threads": ' + "9" * 100_000 + "}", '{"x": NaN, "format": NaN}']
)
def test_json_made_to_exhaust_is_refused(saved: Path, text: str) -> None:
    rewrite(saved, lambda entries: entries.update({"manifest.json": text.encode()}))

    with pytest.raises(PackageError):
        load_package(saved)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"[" * 200_000, r"its record\.json is no JSON"),
        (b" " * 300_001 + b"1", r"its record\.json has 300002 bytes, more than the 300000 any package has"),
    ],
    ids=["deep", "long"],
)
def test_a_record_made_to_exhaust_is_refused(
    record: bytes, reason: str, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest_module, "JSON_LIMIT_BYTES", 300_000)
    rewrite(saved, consistently(lambda entries, manifest: entries.update({"record.json": record})))

    with pytest.raises(PackageDamagedError, match=reason):
        _ = load_package(saved).plan.record


@pytest.mark.guards(
    "names that leave the folder, of entries or of an artifact's files, or that some system takes for a device"
)
@pytest.mark.guards(
    "bombs: compressed entries, sizes beyond the file, a huge manifest, deep JSON, absurd numbers, more "
    "memory than there is"
)
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda manifest: manifest.update(threads=0), "0 is no number of threads"),
        (lambda manifest: manifest.update(threads=1_000_000), "1000000 is no number of threads"),
        (lambda manifest: an_artifact(manifest).update(workspace_bytes=-1), "no size of a workspace"),
        (lambda manifest: first(manifest["weights"]).update(shape=[32, 33]), "not as large as its shape says"),
        (lambda manifest: first(manifest["weights"]).update(shape=[0, 1 << 70]), "their product is up to 2.40"),
        (lambda manifest: first(manifest["weights"]).update(shape=[0] + [1 << 30] * 3), "their product is up to"),
        (lambda manifest: first(manifest["weights"]).update(shape=[-32, -32]), "extents are not negative"),
        (lambda manifest: first(manifest["weights"]).update(shape=[0] * 65), "a tensor has up to 64 axes, not 65"),
        (lambda manifest: first(manifest["weights"]).update(shape=[10**18] * 20_000), "up to 64 axes, not 20000"),
        (lambda manifest: first(manifest["weights"]).update(dtype="FLOAT128"), "'FLOAT128' is no type of elements"),
        (lambda manifest: first(manifest["weights"]).update(dtype="STRING"), "'STRING' is no type of elements"),
        (lambda manifest: first(manifest["weights"]).update(dtype="UNDEFINED"), "'UNDEFINED' is no type"),
        (lambda manifest: an_artifact(manifest).update(files={"x": "../../x"}), "lacks the entry"),
        (lambda manifest: rename_file(manifest, "../../../evil"), "'../../../evil' is no plain file name"),
        (lambda manifest: rename_file(manifest, "/evil"), "'/evil' is no plain file name"),
        (lambda manifest: rename_file(manifest, "NUL.txt"), "'NUL.txt' is no plain file name"),
    ],
)
def test_numbers_made_to_exhaust_or_mislead_are_refused(
    saved: Path, change: Callable[[dict[str, Any]], None], reason: str
) -> None:
    rewrite(saved, consistently(lambda entries, manifest: change(manifest)))

    with pytest.raises(PackageDamagedError, match=reason):
        load_package(saved)


def rename_file(manifest: dict[str, Any], name: str) -> None:
    files = an_artifact(manifest)["files"]
    files[name] = files.pop(min(files))


def an_artifact(manifest: dict[str, Any]) -> dict[str, Any]:
    artifact: dict[str, Any] = first(manifest["plans"][0]["kernels"])["artifact"]
    return artifact


def first(items: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = items[min(items)]
    return found


def remark(key: str, text: str) -> Change:
    """Change what the model's metadata says under a key, wherever it does."""

    def change(proto: onnx.ModelProto, manifest: dict[str, Any]) -> None:
        said = [
            entry
            for holder in (*proto.graph.node, *proto.functions, *proto.graph.value_info, *proto.graph.output)
            for entry in holder.metadata_props
            if entry.key == key
        ]
        assert said
        for entry in said:
            entry.value = text

    return change


def forget_a_call(proto: onnx.ModelProto, manifest: dict[str, Any]) -> None:
    del proto.graph.node[-1]
    proto.graph.output[0].name = proto.graph.node[-1].output[0]


def read_less(proto: onnx.ModelProto, manifest: dict[str, Any]) -> None:
    del proto.graph.node[0].input[-1]


def write_more(proto: onnx.ModelProto, manifest: dict[str, Any]) -> None:
    proto.graph.node[0].output.append("more")


def read_what_nothing_gives(proto: onnx.ModelProto, manifest: dict[str, Any]) -> None:
    proto.graph.node[0].input[0] = "nothing"


def name_twice(proto: onnx.ModelProto, manifest: dict[str, Any]) -> None:
    proto.graph.node[1].name = proto.graph.node[0].name


def forget_an_artifact(proto: onnx.ModelProto, manifest: dict[str, Any]) -> None:
    del manifest["plans"][0]["kernels"]["k0001"]


@pytest.mark.guards(
    "a model that is not what the manifest says: call sites, targets, how many values a call gives, "
    "metadata; a requirement of nothing",
    "refused",
    area="packages and files",
)
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (remark("collage.nodes", "{"), "call site 'k0000' does not say which nodes it stands for"),
        (remark("collage.nodes", "[1]"), "call site 'k0000' does not say which nodes it stands for"),
        (remark("collage.nodes", "[" * 100_000), "call site 'k0000' does not say which nodes it stands for"),
        (remark("collage.composites", "7"), "does not say of what parts it is made"),
        (remark("collage.composites", '[["l", [9], [], []]]'), "does not say of what parts it is made"),
        (remark("collage.composites", '[["l", [0], []]]'), "does not say of what parts it is made"),
        (remark("collage.composites", '[["l", [0], [], [["m", [7], [], []]]]]'), "does not say of what parts it is"),
        (remark("collage.composites", '[["l", [0], [], []], ["m", [0], [], []]]'), "not disjoint subsets of it: m"),
        (remark("collage.compiler", "openvino"), "'k0000' is of 'openvino' in its model, of 'mock' in its manifest"),
        (remark("collage.target", "mock(x=1)"), r"'k0000' is of 'mock\(x=1\)' in its model, of 'mock' in its"),
        (forget_a_call, "call site 'k0002' is in its manifest and not in its model"),
        (forget_an_artifact, "call site 'k0001' is in its model and not in its manifest"),
        (read_less, r"call site 'k0000' has 1 input\(s\) and 1 output\(s\), its function 2 and 1"),
        (write_more, r"call site 'k0000' has 2 input\(s\) and 2 output\(s\), its function 2 and 1"),
        (name_twice, "'k0000' is not one"),
        (read_what_nothing_gives, "reads 'nothing' before it is written"),
    ],
)
def test_a_model_that_is_not_what_the_manifest_says_is_refused(saved: Path, change: Change, reason: str) -> None:
    def rewritten(entries: Entries, manifest: dict[str, Any]) -> None:
        proto = onnx.ModelProto.FromString(entries["model.onnx"])
        for function in proto.functions:  # each a composite of its one node, so that there is one to be changed
            function.metadata_props.add(key="collage.composites", value='[["label", [0], [], []]]')
        change(proto, manifest)
        entries["model.onnx"] = proto.SerializeToString()

    rewrite(saved, consistently(rewritten))

    with pytest.raises(PackageDamagedError, match=reason) as caught:
        load(saved, registry=registry())
    assert caught.value.path == str(saved)


@pytest.mark.guards(
    "a model that is not what the manifest says: call sites, targets, how many values a call gives, "
    "metadata; a requirement of nothing"
)
def test_a_requirement_without_a_name_is_refused(saved: Path) -> None:
    need = {"kind": "library", "name": "", "specifier": ""}
    rewrite(saved, consistently(lambda entries, manifest: an_artifact(manifest).update(requires=[need])))

    with pytest.raises(PackageDamagedError, match="a requirement names what it is about"):
        load_package(saved)


@pytest.mark.guards(
    "bombs: compressed entries, sizes beyond the file, a huge manifest, deep JSON, absurd numbers, more "
    "memory than there is"
)
def test_more_memory_than_there_is_is_not_asked_for(saved: Path) -> None:
    def change(entries: Entries, manifest: dict[str, Any]) -> None:
        an_artifact(manifest)["workspace_bytes"] = 1 << 60

    rewrite(saved, consistently(change))

    with pytest.raises(MemoryNeededError, match=r"need 1073741824\.0 GiB of memory in one piece: this machine has"):
        load(saved, registry=registry())


@pytest.mark.guards("a packaged model that takes tensors from other files", "refused", area="packages and files")
@pytest.mark.parametrize("where", ["function", "main graph"])
def test_no_tensor_is_read_from_another_file(saved: Path, tmp_path: Path, where: str) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(range(256)) * 16)

    def change(entries: Entries, manifest: dict[str, Any]) -> None:
        proto = onnx.ModelProto.FromString(entries["model.onnx"])
        tensor = onnx.TensorProto(name="t", data_type=onnx.TensorProto.FLOAT, dims=[32, 32], data_location=1)
        tensor.external_data.add(key="location", value=str(secret))
        node = onnx.helper.make_node("Constant", [], ["leak"], value=tensor)
        (proto.functions[0] if where == "function" else proto.graph).node.insert(0, node)
        entries["model.onnx"] = proto.SerializeToString()

    rewrite(saved, consistently(change))

    with pytest.raises(PackageDamagedError, match="which the package does not have"):
        load(saved, registry=registry())
