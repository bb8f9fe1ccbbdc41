"""Which tiles are tried first."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

from collage_cutlass.architectures import ARCHITECTURES
from collage_cutlass.menu import TILES, as_product, ranked
from collage_cutlass.numbers import FLOAT, HALF, TF32
from collage_cutlass.problem import Conv, Gemm, Matrices
from collage_cutlass.shortlist import VERSION, Heuristics

HOPPER = next(each for each in ARCHITECTURES if each.name == "90a")
SMALL = next(each for each in ARCHITECTURES if each.name == "86")


def gemm(m: int, n: int, k: int) -> Gemm:
    return Gemm(m=m, n=n, k=k, batch=1, a=Matrices(k, 0), b=Matrices(n, 0), result=Matrices(n, 0))


def test_large_products_get_large_tiles_and_small_ones_small_tiles() -> None:
    first = ranked(gemm(16384, 16384, 4096), HALF, HOPPER, lambda *problem: ())[0]
    last = ranked(gemm(64, 64, 4096), HALF, HOPPER, lambda *problem: ())[0]

    assert first.block[0] * first.block[1] == 256 * 128
    assert last.block[:2] == (64, 64)


def test_what_somebody_likes_comes_first_and_nothing_is_lost() -> None:
    liked = [(64, 64, 32), (128, 256, 32), (1, 2, 3)]

    tiles = ranked(gemm(16384, 16384, 4096), HALF, HOPPER, lambda *problem: liked)

    assert [tile.block for tile in tiles[:2]] == liked[:2]
    assert set(tiles) == set(TILES["f16"])


def test_tiles_that_need_more_shared_memory_than_there_is_are_left_out() -> None:
    tiles = ranked(gemm(512, 512, 512), TF32, SMALL, lambda *problem: ())

    assert 0 < len(tiles) <= len(TILES["tf32"])
    assert all(tile.shared_bytes(TF32.itemsize) <= 99 << 10 for tile in tiles)


def test_a_convolution_is_ranked_as_the_product_it_comes_to() -> None:
    conv = Conv(n=2, h=9, w=8, c=3, k=5, r=2, s=4, p=6, q=7, pads=(0, 0), strides=(1, 1), dilations=(1, 1))

    product = as_product(conv)

    assert (product.m, product.n, product.k) == (2 * 6 * 7, 5, 3 * 2 * 4)


def test_without_the_library_nobody_likes_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    assert Heuristics()(HALF, gemm(64, 64, 64), HOPPER) == []


def test_float32_without_tensor_cores_is_nothing_it_is_asked_about() -> None:
    assert Heuristics()(FLOAT, gemm(64, 64, 64), HOPPER) == []


def test_the_library_is_asked_and_its_fastest_blocks_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Interface:
        def __init__(self, target: str, precision: str) -> None:
            asked.append((target, precision))

        def createHardwareDescriptor(self) -> str:  # noqa: N802 - the library's name
            return "device"

        def setHardwarePredefinedGpu(self, device: str, gpu: str) -> None:  # noqa: N802
            asked.append((device, gpu))

        def makeNvMatmulHeuristicsProblem(self, *problem: object) -> object:  # noqa: N802
            return problem

        def get(self, problem: object, count: int, device: str) -> list[dict[str, object]]:
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
        NvMatmulHeuristicsTarget=types.SimpleNamespace(CUTLASS="cutlass"),
        NvMatmulHeuristicsInterface=Interface,
        NvMatmulHeuristicsNvidiaGpu={"H100_SXM": "h100"},
        boolsToNvMatmulHeuristicsLayout=lambda a, b: (a, b),
    )
    monkeypatch.setitem(sys.modules, "nvMatmulHeuristics", module)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: module)
    monkeypatch.setattr("importlib.metadata.version", lambda name: VERSION)
    heuristics = Heuristics()

    for _ in range(2):
        assert heuristics(HALF, gemm(64, 32, 16), HOPPER) == [(128, 64, 32), (64, 64, 32)]

    problem = ((64, 32, 16, (False, False), 1), "device")
    assert asked == [("cutlass", "HSH"), ("device", "h100"), problem, problem]  # one interface, kept


SCRIPT = """
from collage_cutlass.architectures import ARCHITECTURES
from collage_cutlass.numbers import NUMBERS
from collage_cutlass.problem import Gemm, Matrices
from collage_cutlass.shortlist import Heuristics

rows = Matrices(4096, 0)
product = Gemm(m=4096, n=4096, k=4096, batch=1, a=rows, b=rows, result=rows)
heuristics = Heuristics()
for architecture in ARCHITECTURES:
    for name in ("f16", "bf16", "tf32"):
        print(*heuristics(NUMBERS[name], product, architecture)[0])
"""


@pytest.mark.skipif(not Heuristics()._installed(), reason=f"nvidia-matmul-heuristics {VERSION} is not installed")
def test_the_real_library_names_blocks_and_ends_well() -> None:
    """In a process of its own: giving an interface back is known to crash."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)

    blocks = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert len(blocks) == len(ARCHITECTURES) * 3
    assert all(len(block) == 3 and min(block) >= 8 for block in blocks)
