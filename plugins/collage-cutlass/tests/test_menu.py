"""Which tiles are tried first."""

from __future__ import annotations

import subprocess
import sys
import types
from typing import Any

import pytest

from collage_cutlass.architectures import ARCHITECTURES, Architecture
from collage_cutlass.menu import HOPPER_TILES, TILES, HopperTile, Tile, as_product, ranked
from collage_cutlass.numbers import BY_HALF, FLOAT, HALF, TF32, Numbers
from collage_cutlass.problem import Conv, Gemm, Matrices
from collage_cutlass.shortlist import VERSION, Heuristics

HOPPER = next(each for each in ARCHITECTURES if each.name == "90a")
AMPERE = next(each for each in ARCHITECTURES if each.name == "80")
SMALL = next(each for each in ARCHITECTURES if each.name == "86")


def gemm(m: int, n: int, k: int, *, batch: int = 1, by_columns: bool = False) -> Gemm:
    """Its factors are the same for a whole batch."""
    b = Matrices(k if by_columns else n, 0, by_columns=by_columns)
    return Gemm(m=m, n=n, k=k, batch=batch, a=Matrices(k, 0), b=b, result=Matrices(n, m * n))


def nobody(*problem: object) -> tuple[()]:
    """Nobody likes anything."""
    return ()


@pytest.mark.parametrize("architecture", [HOPPER, AMPERE], ids=lambda each: each.name)
def test_large_products_get_large_tiles_and_small_ones_small_tiles(architecture: Architecture) -> None:
    first = ranked(gemm(16384, 16384, 4096), HALF, architecture, nobody)[0]
    last = ranked(gemm(64, 64, 4096), HALF, architecture, nobody)[0]

    assert first.block[0] * first.block[1] == 256 * 128
    assert last.block[:2] == (64, 64)


def test_what_somebody_likes_comes_first_and_nothing_is_lost() -> None:
    liked = {Tile: [(64, 64, 32), (128, 256, 32), (1, 2, 3)], HopperTile: [(64, 128, 64)]}

    tiles = ranked(gemm(16384, 16384, 4096), HALF, AMPERE, lambda *problem: liked[problem[-1]])

    assert [tile.block for tile in tiles[:2]] == liked[Tile][:2]
    assert set(tiles) == set(TILES["f16"])
    tiles = ranked(gemm(16384, 16384, 4096), HALF, HOPPER, lambda *problem: liked[problem[-1]])
    assert [tile.block for tile in tiles[:2]] == [liked[HopperTile][0], liked[Tile][0]]
    assert set(tiles) == {*TILES["f16"], *HOPPER_TILES["f16"]}


@pytest.mark.parametrize(
    ("numbers", "product", "taken"),
    [
        (HALF, gemm(512, 512, 512), True),
        (HALF, gemm(512, 512, 512, by_columns=True), True),
        (BY_HALF, gemm(512, 512, 512), True),
        (TF32, gemm(512, 512, 512, by_columns=True), True),
        (TF32, gemm(512, 512, 512), False),  # its second factor does not lie along what is summed over
        (FLOAT, gemm(512, 512, 512, by_columns=True), False),
        (HALF, gemm(512, 512, 512, batch=2), False),  # one matrix for the whole batch
    ],
)
def test_tiles_of_both_kinds_take_turns_on_hopper_where_it_can_multiply_so(
    numbers: Numbers, product: Gemm, taken: bool
) -> None:
    kinds = [type(each) for each in ranked(product, numbers, HOPPER, nobody)]
    hurried = [type(each) for each in ranked(product, numbers, HOPPER, nobody, in_a_hurry=True)]

    assert kinds[:4] == ([HopperTile, Tile, HopperTile, Tile] if taken else [Tile] * 4)
    assert sorted(kinds, key=str) == sorted(hurried, key=str)
    assert hurried == sorted(hurried, key=lambda kind: kind is HopperTile)
    assert {type(each) for each in ranked(product, numbers, AMPERE, nobody)} == {Tile}


def test_convolutions_are_cut_by_the_tiles_that_every_device_has() -> None:
    conv = Conv(n=2, h=9, w=8, c=8, k=8, r=2, s=4, p=6, q=7, pads=(0, 0), strides=(1, 1), dilations=(1, 1))

    assert {type(each) for each in ranked(conv, HALF, HOPPER, nobody)} == {Tile}


def test_tiles_that_need_more_shared_memory_than_there_is_are_left_out() -> None:
    tiles = ranked(gemm(512, 512, 512), TF32, SMALL, nobody)

    assert 0 < len(tiles) <= len(TILES["tf32"])
    assert all(isinstance(tile, Tile) and tile.shared_bytes(TF32.itemsize) <= 99 << 10 for tile in tiles)


def test_a_convolution_is_ranked_as_the_product_it_comes_to() -> None:
    conv = Conv(n=2, h=9, w=8, c=3, k=5, r=2, s=4, p=6, q=7, pads=(0, 0), strides=(1, 1), dilations=(1, 1))

    product = as_product(conv)

    assert (product.m, product.n, product.k) == (2 * 6 * 7, 5, 3 * 2 * 4)


def test_without_the_library_nobody_likes_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    assert Heuristics()(HALF, gemm(64, 64, 64), HOPPER, Tile) == []


def test_float32_without_tensor_cores_is_nothing_it_is_asked_about() -> None:
    assert Heuristics()(FLOAT, gemm(64, 64, 64), HOPPER, Tile) == []


def test_the_library_is_asked_and_its_fastest_blocks_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    class Interface:
        def __init__(self, target: str, precision: str) -> None:
            asked.append((target, precision))

        def createHardwareDescriptor(self) -> str:  # noqa: N802 - the library's name
            return "device"

        def setHardwarePredefinedGpu(self, device: str, gpu: str) -> None:  # noqa: N802
            asked.append((device, gpu))

        def makeNvMatmulHeuristicsProblem(self, *problem: object) -> object:  # noqa: N802
            return problem

        def get(self, problem: Any, count: int, device: str) -> list[dict[str, object]]:
            asked.append((problem, device))
            kernel = {
                (each, 64, 32): types.SimpleNamespace(cta_tile_m=each, cta_tile_n=64, cta_tile_k=32)
                for each in (64, 128)
            }
            return [
                {"kernel": kernel[64, 64, 32], "runtime": 2.0},
                {"kernel": kernel[128, 64, 32], "runtime": 1.0},
                {"kernel": kernel[64, 64, 32], "runtime": 3.0},
            ]

    module = types.SimpleNamespace(
        NvMatmulHeuristicsTarget={"CUTLASS": "cutlass", "CUTLASS3": "cutlass 3"},
        NvMatmulHeuristicsInterface=Interface,
        NvMatmulHeuristicsNvidiaGpu={"H100_SXM": "h100"},
        boolsToNvMatmulHeuristicsLayout=lambda a, b: (a, b),
    )
    monkeypatch.setitem(sys.modules, "nvMatmulHeuristics", module)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: module)
    monkeypatch.setattr("importlib.metadata.version", lambda name: VERSION)
    heuristics = Heuristics()

    for _ in range(2):
        assert heuristics(HALF, gemm(64, 32, 16), HOPPER, Tile) == [(128, 64, 32), (64, 64, 32)]

    problem = ((64, 32, 16, (False, False), 1), "device")
    assert asked == [("cutlass", "HSH"), ("device", "h100"), problem, problem]  # one interface, kept
    heuristics(HALF, gemm(64, 32, 16), HOPPER, HopperTile)
    assert asked[4:] == [("cutlass 3", "HSH"), ("device", "h100"), problem]


SCRIPT = """
from collage_cutlass.architectures import ARCHITECTURES
from collage_cutlass.menu import HopperTile, Tile
from collage_cutlass.numbers import NUMBERS
from collage_cutlass.problem import Gemm, Matrices
from collage_cutlass.shortlist import Heuristics

rows = Matrices(4096, 0)
product = Gemm(m=4096, n=4096, k=4096, batch=1, a=rows, b=rows, result=rows)
heuristics = Heuristics()
for architecture in ARCHITECTURES:
    for numbers in NUMBERS.values():
        if numbers.heuristic:
            for kind in (Tile, HopperTile) if architecture.wgmma else (Tile,):
                print(*heuristics(numbers, product, architecture, kind)[0])
"""


@pytest.mark.skipif(not Heuristics()._installed(), reason=f"nvidia-matmul-heuristics {VERSION} is not installed")
def test_the_real_library_names_blocks_and_ends_well() -> None:
    """In a process of its own: giving an interface back is known to crash."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)

    blocks = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert len(blocks) == (len(ARCHITECTURES) + 1) * 5  # types with tensor cores; one device has tiles of two kinds
    assert all(len(block) == 3 and min(block) >= 8 for block in blocks)
