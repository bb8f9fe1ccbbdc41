"""What a kernel's source says, and that structures in Python are those in C++."""

from __future__ import annotations

import ctypes
import itertools
import re
from importlib import resources
from typing import Any

import numpy as np
import pytest

from collage_cutlass.activations import FUNCTORS
from collage_cutlass.library import ConvArguments, GemmArguments, MoveArguments
from collage_cutlass.menu import HOPPER_TILES, TILES, HopperTile, Tile
from collage_cutlass.numbers import NUMBERS
from collage_cutlass.problem import Source
from collage_cutlass.source import TEMPLATES, Kernel

from .emulator import Said, activated

_TILE = Tile((128, 64, 32), (2, 2, 1), 6)
_HOPPER_TILE = HopperTile((128, 64, 32), (2, 1), "Pingpong")
_SAID_OF_TILES = {
    Tile: [
        "using Threadblock = cutlass::gemm::GemmShape<128, 64, 32>;",
        "using Warp = cutlass::gemm::GemmShape<64, 32, 32>;",
        "constexpr int kStages = 6;",
    ],
    HopperTile: [
        "using Threadblock = cute::Shape<cute::_128, cute::_64, cute::_32>;",
        "using Cluster = cute::Shape<cute::_2, cute::_1, cute::_1>;",
        "using Schedule = cutlass::gemm::KernelTmaWarpSpecializedPingpong;",
        "using EpilogueSchedule = cutlass::epilogue::TmaWarpSpecialized;",
    ],
}
_C = {"int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "float": ctypes.c_float, "void *": ctypes.c_void_p}


def template(name: str) -> str:
    return resources.files("collage_cutlass").joinpath("templates", name).read_text(encoding="utf-8")


def test_a_source_says_what_was_asked_for() -> None:
    for (kind, tile_type), numbers, source in itertools.product(TEMPLATES, NUMBERS.values(), Source):
        tile = _TILE if tile_type is Tile else _HOPPER_TILE
        kernel = Kernel(kind=kind, numbers=numbers, activation="Swish", source=source, tile=tile, b_by_columns=True)

        said = Said.of(kernel.text)

        assert (said.activation, said.source) == ("Swish", source.value)
        assert (said.access, said.result_access) == (numbers.access, numbers.result_access)
        assert said.element.itemsize == numbers.itemsize
        assert said.result == numbers.dtype.numpy()
        assert said.element == (numbers.narrowed or numbers.dtype).numpy()
        assert said.b_by_columns == (kind == "gemm")
        assert set(_SAID_OF_TILES[tile_type]) <= set(kernel.text.splitlines())
        assert "//@" not in kernel.text


def test_every_activation_and_source_has_its_own_text() -> None:
    kernels = [
        Kernel(kind="gemm", numbers=NUMBERS["f16"], activation=activation, source=source, tile=tile)
        for activation, source, tile in itertools.product(("Gelu", "Relu"), Source, TILES["f16"])
    ]

    assert len({kernel.text for kernel in kernels}) == len(kernels)


def test_every_functor_is_defined_in_the_epilogue() -> None:
    defined = set(re.findall(r"^struct (\w+) \{\n  CUTLASS_HOST_DEVICE", template("epilogue.cuh"), re.MULTILINE))

    assert set(FUNCTORS) == defined
    assert {f"k{each.name.title()}" for each in Source} == {each.value for each in Source}
    for functor in FUNCTORS:
        activated(functor, np.zeros(1), 0.0, 0.0)  # the emulation knows it too


@pytest.mark.parametrize(
    ("file", "name", "structure"),
    [
        ("gemm_sm80.cu", "CollageGemm", GemmArguments),
        ("conv_sm80.cu", "CollageConv", ConvArguments),
        ("gemm_sm90.cu", "CollageGemm", GemmArguments),
        ("calls.cuh", "CollageMove", MoveArguments),
    ],
)
def test_structures_have_the_members_of_the_c_structs(file: str, name: str, structure: Any) -> None:
    [body] = re.findall(rf"struct {name} \{{(.*?)\}};", template(file), re.DOTALL)
    members: list[tuple[str, Any]] = []
    for declaration in filter(None, (each.strip() for each in body.split(";"))):
        kind, _, names = declaration.partition(" ")
        if kind == "void":
            members += [(each.strip(" *"), ctypes.c_void_p) for each in names.split(",")]
        else:
            members += [(each.strip(), _C[kind]) for each in names.split(",")]

    assert list(structure._fields_) == members


@pytest.mark.parametrize("name", TILES)
def test_tiles_are_of_whole_warps_and_instructions_and_fit_the_largest_device(name: str) -> None:
    numbers = NUMBERS[name]
    for tile in TILES[name]:
        assert all(block == warp * count for block, warp, count in zip(tile.block, tile.warp, tile.warps, strict=True))
        assert all(warp % each == 0 for warp, each in zip(tile.warp, numbers.instruction, strict=True))
        assert tile.shared_bytes(numbers.itemsize) <= 163 << 10  # of an A100, the least that all of them are for
    assert len({tile.name for tile in TILES[name]}) == len(TILES[name])


@pytest.mark.parametrize("name", HOPPER_TILES)
def test_tiles_of_hopper_are_what_its_schedules_take(name: str) -> None:
    for tile in HOPPER_TILES[name]:
        m, n, k = tile.block
        # a group of four warps multiplies 64 rows at once, by 8 to 256 columns (PTX ISA, "wgmma.mma_async"); two share
        # a cooperative tile; shared memory's swizzle is of 128 bytes
        assert m % (128 if tile.schedule == "Cooperative" else 64) == 0
        assert n % 8 == 0
        assert n <= 256
        assert k * NUMBERS[name].itemsize == 128
        assert m * n // (256 if tile.schedule == "Cooperative" else 128) <= 128  # sums that a thread keeps
        assert tile.cluster[0] * tile.cluster[1] <= 8  # more is not portable (CUDA programming guide, "Clusters")
    assert len({tile.name for tile in HOPPER_TILES[name]}) == len(HOPPER_TILES[name])
