"""Libraries that get into each other's way, on machines described by files."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from pathlib import Path

import pytest

from collage.report.facts.doctor_facts import ClashFacts
from collage.setup.library_clashes import installed_clashes, kept_apart, loaded_clashes
from collage.setup.targets import ToolchainStatus
from collage_core.registry import Toolchain
from collage_core.search import SearchTarget
from collage_testing import MockToolchain
from tests.engine.devices.families import LIBRARIES
from tests.engine.exploring import a_target

pytestmark = [
    pytest.mark.guards("two toolchains load different cuDNNs, cuBLASes, TensorRTs or CUDA runtimes"),
    pytest.mark.guards(
        "wheels have overwritten each other's library, or the loader prefers another to a wheel's",
        "`doctor` names them and the remedy",
        area="devices",
    ),
]


def library(folder: Path, name: str, content: str = "") -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content or str(path), encoding="utf-8")
    return str(path)


def wheel(site: Path, name: str, *files: str) -> importlib.metadata.Distribution:
    """An installed distribution; the last one that brings a file has written it."""
    for file in files:
        library(site, file, f"{file} of {name}")
    facts = site / f"{name.replace('-', '_')}-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    (facts / "RECORD").write_text("".join(f"{file},,\n" for file in files), encoding="utf-8")
    return importlib.metadata.Distribution.at(facts)


# What toolchains have loaded


def test_two_of_a_library_are_a_clash_of_the_toolchains_that_load_them(tmp_path: Path) -> None:
    ours, theirs = library(tmp_path / "a", "libcudnn.so.9"), library(tmp_path / "b", "libcudnn.so.9")
    shared = library(tmp_path / "c", "libcudart.so.13")

    [clash] = loaded_clashes(
        {"ort": (theirs, shared), "cudnn": (ours, shared), "triton": (shared,), "cpu": ()}, LIBRARIES
    )

    assert (clash.library, clash.between, clash.files) == ("cuDNN", ("cudnn", "ort"), (ours, theirs))
    assert clash.apart
    assert clash.reason.startswith(f"cudnn loads {ours}, ort loads {theirs}")
    assert "with one cuDNN" in clash.remedy


@pytest.mark.parametrize(
    ("one", "other", "family"),
    [
        ("libcublas.so.12", "libcublas.so.13", "cuBLAS"),
        ("libcudart.so.12", "libcudart.so.13", "CUDA runtime"),
        ("libcudnn_ops.so.9.1.0", "libcudnn_ops.so.9.2.0", "cuDNN"),
    ],
)
def test_two_versions_are_two_libraries(one: str, other: str, family: str, tmp_path: Path) -> None:
    [clash] = loaded_clashes({"a": (library(tmp_path, one),), "b": (library(tmp_path, other),)}, LIBRARIES)

    assert clash.library == family


def test_the_same_library_in_two_places_is_no_clash(tmp_path: Path) -> None:
    here, there = library(tmp_path / "a", "libcudnn.so.9", "same"), library(tmp_path / "b", "libcudnn.so.9", "same")
    link = tmp_path / "c" / "libcudnn.so.9"
    link.parent.mkdir()
    link.symlink_to(here)

    assert loaded_clashes({"a": (here,), "b": (there,), "c": (str(link),)}, LIBRARIES) == ()


def test_other_parts_of_a_library_are_no_clash(tmp_path: Path) -> None:
    parts = [library(tmp_path, name) for name in ("libcudnn.so.9", "libcudnn_ops.so.9", "libcublasLt.so.13")]

    assert loaded_clashes({"a": parts[:1], "b": parts[1:]}, LIBRARIES) == ()


def test_each_pair_is_told_once_for_each_library(tmp_path: Path) -> None:
    names = ("libcublas.so.13", "libcublasLt.so.13", "libcudnn.so.9")
    loaded = {who: [library(tmp_path / who, name) for name in names] for who in "abc"}

    found = loaded_clashes(loaded, LIBRARIES)

    assert [(clash.between, clash.library) for clash in found] == [
        (pair, family) for pair in (("a", "b"), ("a", "c"), ("b", "c")) for family in ("cuBLAS", "cuDNN")
    ]


def test_toolchains_whose_libraries_clash_share_no_plan() -> None:
    clash = ClashFacts(library="cuDNN", between=("a", "b"), files=("x", "y"), apart=True, reason="r", remedy="m")
    own = a_target("b", excludes=frozenset({"d"}))
    first, lower = a_target("a"), a_target("a", options=(("precision", "fp16"),))
    statuses = [status((first, lower), (first,)), status((own,), (own,)), status((a_target("c"),), (a_target("c"),))]

    a, b, c = kept_apart(statuses, [clash])

    assert [target.excludes for target in (*a.targets, *a.selected)] == [{"b"}] * 3
    assert b.selected[0].excludes == {"a", "d"}
    assert c.selected[0].excludes == frozenset()
    assert a.selected == a.targets[:1]
    assert not SearchTarget.of(a.selected[0]).mixes_with(SearchTarget.of(b.selected[0]))
    assert SearchTarget.of(a.selected[0]).mixes_with(SearchTarget.of(c.selected[0]))


def status(targets: Sequence[object], selected: Sequence[object]) -> ToolchainStatus:
    toolchain = Toolchain(str(getattr(targets[0], "toolchain", "")), MockToolchain("x", costs_us={}))
    return ToolchainStatus(toolchain=toolchain, targets=tuple(targets), selected=tuple(selected))  # type: ignore[arg-type]


# What is installed


def test_wheels_that_bring_the_same_file_are_both_named(tmp_path: Path) -> None:
    """As `nvidia-cudnn-cu12` and `nvidia-cudnn-cu13` do; those of cuBLAS have folders of their own."""
    files = ("nvidia/cudnn/lib/libcudnn.so.9", "nvidia/cudnn/lib/libcudnn_ops.so.9", "nvidia/__init__.py")
    wheels = [
        wheel(tmp_path, "nvidia-cudnn-cu12", *files),
        wheel(tmp_path, "nvidia-cudnn-cu13", *files),
        wheel(tmp_path, "nvidia-cublas-cu12", "nvidia/cublas/lib/libcublas.so.12", "nvidia/__init__.py"),
        wheel(tmp_path, "nvidia-cublas", "nvidia/cu13/lib/libcublas.so.13", "nvidia/__init__.py"),
    ]

    [clash] = installed_clashes(LIBRARIES, wheels, search_path="", cache=())

    assert (clash.library, clash.between) == ("cuDNN", ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13"))
    assert len(clash.files) == 2
    assert not clash.apart
    assert clash.remedy.endswith("pip uninstall nvidia-cudnn-cu12 nvidia-cudnn-cu13")
    assert "nvidia-cudnn-cu12 and nvidia-cudnn-cu13 bring the same file" in str(clash)


def test_a_library_that_the_loader_prefers_to_a_wheel_s_is_named(tmp_path: Path) -> None:
    wheels = [wheel(tmp_path / "site", "nvidia-cudnn-cu13", "nvidia/cudnn/lib/libcudnn.so.9")]
    system = tmp_path / "cuda" / "lib64"
    found = library(system, "libcudnn.so.9")
    library(system, "libcublas.so.13")

    [clash] = installed_clashes(LIBRARIES, wheels, search_path=f"/nowhere:{system}::{system}", cache=())

    assert clash.files == (found, str(tmp_path / "site" / "nvidia/cudnn/lib/libcudnn.so.9"))
    assert f"Take {system} out of LD_LIBRARY_PATH" in clash.remedy


def test_the_wheel_s_own_folder_may_be_on_the_search_path(tmp_path: Path) -> None:
    wheels = [wheel(tmp_path, "nvidia-cudnn-cu13", "nvidia/cudnn/lib/libcudnn.so.9")]

    assert installed_clashes(LIBRARIES, wheels, search_path=str(tmp_path / "nvidia/cudnn/lib"), cache=()) == ()


def test_a_part_that_a_wheel_lacks_and_the_system_has_is_named(tmp_path: Path) -> None:
    """As with PyTorch 2.12: https://github.com/pytorch/pytorch/issues/188892."""
    wheels = [wheel(tmp_path / "site", "nvidia-cudnn-cu13", "nvidia/cudnn/lib/libcudnn.so.9")]
    others = [library(tmp_path / "usr", name) for name in ("libcudnn.so.9", "libcudnn_engines_tensor_ir.so.9")]

    [clash] = installed_clashes(LIBRARIES, wheels, search_path="", cache=others)

    assert clash.files[0] == others[1]
    assert "lacks libcudnn_engines_tensor_ir.so.9" in clash.reason
    assert installed_clashes(LIBRARIES, wheels, search_path="", cache=others[:1]) == ()
    old = library(tmp_path / "usr", "libcudnn_cnn_train.so.8")
    assert installed_clashes(LIBRARIES, wheels, search_path="", cache=[old]) == ()


def test_without_wheels_there_is_nothing_to_clash(tmp_path: Path) -> None:
    library(tmp_path, "libcudnn.so.9")

    assert installed_clashes(LIBRARIES, [], search_path=str(tmp_path)) == ()
