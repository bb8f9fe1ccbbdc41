"""The command that compiles the whole menu, without nvcc: what it asks for, what it keeps, and what it says."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from collage_cutlass import compiling
from collage_cutlass.activations import ACTIVATIONS
from collage_cutlass.architectures import ARCHITECTURES, Architecture
from collage_cutlass.compiling import compile_all, main, menu
from collage_cutlass.menu import HOPPER_TILES, TILES
from collage_cutlass.numbers import NUMBERS
from collage_cutlass.patterns import FORMS
from collage_cutlass.problem import Source
from collage_cutlass.source import TEMPLATES
from collage_cutlass.toolkit import MissingToolError

from .emulator import FakeCompiler

EPILOGUES = {
    (ACTIVATIONS[form.activation].functor, source)
    for form in FORMS.values()
    for source in ({Source.NONE, Source.BEFORE} if form.source is Source.NONE else {form.source})
}
"""What the forms come to; one without a tensor beside the bias may have one before its activation."""
HOPPER = next(each for each in ARCHITECTURES if each.name == "90a")


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda each: each.name)
def test_every_template_meets_every_type_tile_and_epilogue(architecture: Architecture) -> None:
    kernels = list(menu(architecture))

    assert len({kernel.text for kernel in kernels}) == len(kernels)
    cut = {(each.kind, each.numbers.name, each.tile) for each in kernels}
    tiles: set[tuple[str, str, object]] = {
        (kind, name, tile) for kind in ("gemm", "conv") for name in NUMBERS for tile in TILES[name]
        if tile.shared_bytes(NUMBERS[name].itemsize) <= architecture.shared_bytes
    }  # fmt: skip
    if architecture.wgmma:
        tiles |= {("gemm", name, tile) for name, each in HOPPER_TILES.items() for tile in each}
    assert cut == tiles
    for kind, tile_type in TEMPLATES:
        of = [each for each in kernels if each.kind == kind and isinstance(each.tile, tile_type)]
        found = {(each.activation, each.source) for each in of}
        assert not of or found == EPILOGUES


class Ticking:
    """Seconds that pass with each look at the clock."""

    def __init__(self) -> None:
        self.now = itertools.count(step=2.0)

    def __call__(self) -> float:
        return next(self.now)


def test_what_is_there_is_not_compiled_again_and_what_fails_says_why(tmp_path: Path) -> None:
    kernels = [(HOPPER, each) for each in itertools.islice(menu(HOPPER), 4)]
    refused = kernels[2][1].text
    compiler = FakeCompiler(lambda source: "nvcc exits with 1: no" if source == refused else "")

    first = list(compile_all(compiler, kernels, tmp_path, clock=Ticking()))
    again = list(compile_all(compiler, kernels, tmp_path, clock=Ticking()))

    assert [each.problem for each in first] == ["", "", "nvcc exits with 1: no", ""]
    assert [each.seconds for each in first] == [2.0] * 4
    assert [each.seconds for each in again] == [0.0, 0.0, 2.0, 0.0]
    assert [each.size_bytes for each in again] == [each.size_bytes for each in first]
    assert len(compiler.asked) == 4 + 1
    assert len(list(tmp_path.iterdir())) == 3


def no_relu(source: str) -> str:
    return "no" if "COLLAGE_ACTIVATION Relu" in source else ""


@pytest.mark.parametrize(("refuses", "status"), [(lambda source: "", 0), (no_relu, 1)])
def test_the_command_counts_and_fails_if_one_does_not_compile(
    refuses: Callable[[str], str],
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(compiling, "find_compiler", lambda: FakeCompiler(refuses))

    assert main(["--architecture", "80", "--folder", str(tmp_path / "made"), "--jobs", "2"]) == status

    *lines, last = capsys.readouterr().out.splitlines()
    total = len(list(menu(next(each for each in ARCHITECTURES if each.name == "80"))))
    failed = [line for line in lines if line.endswith(": no")]
    assert len(lines) == total
    assert last.startswith(
        f"{total - len(failed)} of {total} kernels ({total} in the menu) compiled by nvcc 13.0.88, cutlass 4.2.0.0;"
    )
    assert bool(failed) == bool(status)


def test_some_of_all_sorts_can_be_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compiling, "find_compiler", FakeCompiler)
    wanted = list(menu(HOPPER))[::7]

    assert main(["--architecture", "90a", "--folder", str(tmp_path), "--every", "7"]) == 0

    assert len(capsys.readouterr().out.splitlines()) == len(wanted) + 1
    assert {(each.kind, type(each.tile)) for each in wanted} == set(TEMPLATES)
    assert {each.numbers.name for each in wanted} == set(NUMBERS)


def test_without_nvcc_the_command_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def find() -> FakeCompiler:
        raise MissingToolError("there is no nvcc")

    monkeypatch.setattr(compiling, "find_compiler", find)

    assert main(["--folder", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "there is no nvcc\n"
