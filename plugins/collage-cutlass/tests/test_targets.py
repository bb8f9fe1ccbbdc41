"""Which machines it is for, and what it says on others."""

from __future__ import annotations

import dataclasses
import importlib.metadata
from pathlib import Path
from typing import Any

import pytest

from collage.devices.this_host import this_host
from collage_core.contract import Joins, Unsupported
from collage_core.registry import Toolchain
from collage_cutlass import toolkit
from collage_cutlass.plugin import CutlassPlugin
from collage_cutlass.toolkit import HEADERS_VERSION, MissingToolError, find_compiler
from collage_testing.kit.gpu_plugins import H100, HOST, check_import_loads_nothing

from .emulator import FakeCompiler
from .machine import plugin_over


def test_every_device_that_is_compiled_for_has_the_plain_target_and_three_precisions() -> None:
    a100 = dataclasses.replace(H100, name="cuda:1", model="NVIDIA A100", compute_capability="8.0")
    t4 = dataclasses.replace(H100, name="cuda:2", model="Tesla T4", compute_capability="7.5")
    host = dataclasses.replace(HOST, devices=(H100, a100, t4))

    answer = plugin_over(FakeCompiler()).collage_targets(host)

    assert not isinstance(answer, Unsupported)
    assert {each.name: each.exact for each in answer} == {
        "cutlass@cuda:0": True,
        "cutlass@cuda:1": True,
        **{
            f"cutlass(precision={precision})@cuda:{number}": False
            for precision in ("tf32", "fp16", "bf16")
            for number in (0, 1)
        },
    }
    assert {(each.joins, each.mixable) for each in answer} == {(Joins.NONE, True)}
    assert {each.fingerprint for each in answer} == {FakeCompiler.identity}


def without(reason: str, *, version: bool = False) -> CutlassPlugin:
    def find() -> FakeCompiler:
        raise MissingToolError(reason, version=version)

    return CutlassPlugin(find)


@pytest.mark.parametrize(
    ("device", "plugin", "reason", "obstacle"),
    [
        (None, plugin_over(FakeCompiler()), "shows no NVIDIA GPU", "no device"),
        ({"compute_capability": "7.5"}, plugin_over(FakeCompiler()), "is NVIDIA H100 of 7.5", "compute capability"),
        ({"compute_capability": "10.0"}, plugin_over(FakeCompiler()), ">=9.0,<9.1", "compute capability"),
        ({"driver": "570.1"}, plugin_over(FakeCompiler()), "driver 570.1 is too old; install 580", "driver too old"),
        ({"driver": "470.1"}, plugin_over(FakeCompiler()), "driver 470.1 is too old; install 525", "driver too old"),
        ({}, without("there is no nvcc"), "there is no nvcc", "no library"),
        ({}, without("nvcc 11.8 is too old", version=True), "too old", "library version"),
    ],
)
def test_a_machine_that_cannot_run_it_is_told_why(
    device: dict[str, Any] | None, plugin: CutlassPlugin, reason: str, obstacle: str
) -> None:
    devices = () if device is None else (dataclasses.replace(H100, **device),)

    answer = Toolchain("cutlass", plugin).targets(dataclasses.replace(HOST, devices=devices))

    assert isinstance(answer, Unsupported)
    assert reason in answer.reason
    assert answer.obstacle.value == obstacle


@pytest.mark.skipif(bool(this_host().devices), reason="this machine has a GPU")
def test_this_machine_is_told_that_it_has_no_gpu_before_any_compiler_is_looked_for() -> None:
    answer = without("there is no nvcc").collage_check_host(this_host())

    assert isinstance(answer, Unsupported)
    assert "shows no NVIDIA GPU" in answer.reason


@pytest.fixture
def headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel with headers, and no nvcc anywhere."""
    monkeypatch.setattr(importlib.metadata, "version", lambda name: HEADERS_VERSION)
    monkeypatch.setattr(toolkit, "header_folders", lambda: iter([tmp_path]))
    monkeypatch.setattr(toolkit, "_compilers", lambda: iter(()))
    return tmp_path


def nvcc(folder: Path, says: str) -> Path:
    path = folder / "nvcc"
    path.write_text(f"#!/bin/sh\n{says}\n")
    path.chmod(0o755)
    return path


def test_without_nvcc_it_says_where_it_looked(headers: Path) -> None:
    with pytest.raises(MissingToolError, match="no nvcc: neither"):
        find_compiler()


def test_an_old_nvcc_is_refused_and_a_new_one_is_taken(headers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = nvcc(headers, "echo 'Cuda compilation tools, release 11.8, V11.8.89'")
    monkeypatch.setattr(toolkit, "_compilers", lambda: iter([path]))
    with pytest.raises(MissingToolError, match=r"11\.8\.89 .* is too old") as raised:
        find_compiler()
    assert raised.value.version

    nvcc(headers, "echo 'Cuda compilation tools, release 13.0, V13.0.88'")
    compiler = find_compiler()
    assert (compiler.identity, compiler.major) == ("nvcc 13.0.88, cutlass 4.2.0.0", 13)


@pytest.mark.parametrize("version", ["", "4.3.0.0"])
def test_headers_that_are_missing_or_others_are_a_reason(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def installed(name: str) -> str:
        if not version:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(importlib.metadata, "version", installed)

    with pytest.raises(MissingToolError, match=r"pip install --no-deps nvidia-cutlass==4\.2\.0\.0") as raised:
        find_compiler()
    assert raised.value.version == bool(version)


def test_what_nvcc_says_is_in_the_error(headers: Path) -> None:
    path = nvcc(headers, "echo 'kernel.cu(3): error: no such thing' >&2; exit 2")
    compiler = toolkit.Nvcc(path, (headers,), "13.0.88", HEADERS_VERSION)

    with pytest.raises(toolkit.CompileError, match=r"exits with 2: kernel.cu\(3\): error: no such thing"):
        compiler.compiled("", (), 60.0)


def test_nvcc_is_given_the_source_the_headers_and_the_flags(headers: Path) -> None:
    path = nvcc(headers, 'while [ "$1" != -o ]; do echo "$1" >> told; shift; done; cat "$3" told > "$2"')
    compiler = toolkit.Nvcc(path, (headers,), "13.0.88", HEADERS_VERSION)

    made = compiler.compiled("the source\n", ("-gencode", "arch=a"), 60.0).decode().splitlines()

    assert made == ["the source", *toolkit.FLAGS, "-gencode", "arch=a", f"-I{headers}"]


def test_importing_the_plugin_loads_no_library() -> None:
    check_import_loads_nothing("collage_cutlass.plugin", "cupy", "cutlass_library", "nvMatmulHeuristics")
