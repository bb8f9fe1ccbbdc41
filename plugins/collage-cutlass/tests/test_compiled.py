"""What nvcc makes of the templates: that it compiles, loads without a GPU, and computes the right epilogue.

Each library has a function that computes one element's epilogue on the host, by the very code the kernel runs; it is
compared with activations written anew. Needs nvcc and the headers, no GPU.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from collage.devices.this_host import this_host
from collage_core.contract import BuildContext
from collage_core.errors import DeviceError
from collage_cutlass.architectures import ARCHITECTURES, Architecture
from collage_cutlass.library import Call, Compiled
from collage_cutlass.menu import HOPPER_TILES, TILES, AnyTile
from collage_cutlass.numbers import NUMBERS, Numbers
from collage_cutlass.plugin import CutlassPlugin
from collage_cutlass.problem import Chain, Gemm, Matrices, Move, Source
from collage_cutlass.source import Kernel
from collage_cutlass.toolkit import MissingToolError, Nvcc, find_compiler

from .cases import FLOAT16, product
from .emulator import activated
from .machine import TARGET, largest

POINTS = np.linspace(-6, 6, 25)
HOPPER = next(each for each in ARCHITECTURES if each.name == "90a")
LIMIT_S = 1200.0


@pytest.fixture(scope="module")
def compiler() -> Nvcc:
    try:
        return find_compiler()
    except MissingToolError as missing:
        pytest.skip(str(missing))


def made(
    compiler: Nvcc, kind: str, numbers: Numbers, tile: AnyTile, chain: Chain, architecture: Architecture = HOPPER
) -> Compiled:
    kernel = Kernel(
        kind=kind, numbers=numbers, activation=chain.activation, source=chain.source, tile=tile, b_by_columns=True
    )
    return Compiled(compiler.compiled(kernel.text, architecture.flags, LIMIT_S))


def check_epilogue(library: Compiled, chain: Chain) -> None:
    bias, source = 0.25, -0.75
    for x in POINTS:
        before = {Source.SCALE: x * source + bias, Source.BEFORE: x + bias + source}.get(chain.source, x + bias)
        wanted = activated(chain.activation, np.asarray([before]), chain.first, chain.second)[0]
        wanted += source if chain.source is Source.AFTER else 0
        assert library.chain(chain, float(x), bias, source) == pytest.approx(wanted, rel=2e-6, abs=2e-6)


def check_without_a_device(call: Call, function: str) -> None:
    """CUDA's runtime, which is inside, says what is missing."""
    if this_host().devices:
        return
    with pytest.raises(DeviceError, match=f"{function}: .*(driver|device)"):
        call()


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "tiles"), [("gemm", TILES), ("gemm", HOPPER_TILES), ("conv", TILES)])
def test_a_library_shows_its_own_functions_alone(
    kind: str, tiles: Mapping[str, Sequence[AnyTile]], compiler: Nvcc, tmp_path: Path
) -> None:
    """Static members that two libraries of one process show are one, whatever each has made ready."""
    kernel = Kernel(kind=kind, numbers=NUMBERS["f16"], activation="Swish", source=Source.NONE, tile=tiles["f16"][-1])
    library = tmp_path / "library.so"
    library.write_bytes(compiler.compiled(kernel.text, HOPPER.flags, LIMIT_S))

    said = subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True)

    shown = {line.split()[-1] for line in said.stdout.splitlines()}
    shown -= {name for name in shown if name.startswith(("_ZNSt", "_ZNKSt"))}  # C++'s own library insists on these
    assert shown == {f"collage_{name}" for name in (kind, "move", "chain", "status", "error")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "numbers", "tiles", "chain"),
    [
        ("gemm", "f16", TILES, Chain("Gelu", Source.AFTER)),
        ("gemm", "f32", TILES, Chain("Swish", Source.SCALE, 1.0)),
        ("gemm", "f32_by_bf16", TILES, Chain("Tanh", Source.NONE)),
        ("conv", "bf16", TILES, Chain("Clip", Source.BEFORE, -0.5, 2.0)),
        ("conv", "tf32", TILES, Chain("Softplus", Source.NONE)),
        ("conv", "f32_by_f16", TILES, Chain("Elu", Source.AFTER, 0.7)),
        ("gemm", "bf16", HOPPER_TILES, Chain("GeluTanh", Source.AFTER)),
        ("gemm", "tf32", HOPPER_TILES, Chain("LeakyRelu", Source.NONE, 0.2)),
        ("gemm", "f32_by_f16", HOPPER_TILES, Chain("Sigmoid", Source.SCALE)),
    ],
)
def test_kernels_compile_and_load_and_compute_the_right_epilogue(
    kind: str, numbers: str, tiles: Mapping[str, Sequence[AnyTile]], chain: Chain, compiler: Nvcc
) -> None:
    library = made(compiler, kind, NUMBERS[numbers], tiles[numbers][-1], chain)

    check_epilogue(library, chain)
    check_without_a_device(library.move(Move((1, 2, 3), turned=True), 0, 0, 0, 0), "collage_move")


@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "kind"), [("80", "gemm"), ("80", "conv"), ("86", "gemm")])
def test_what_is_compiled_for_other_devices_has_code_for_them(architecture: str, kind: str, compiler: Nvcc) -> None:
    of = next(each for each in ARCHITECTURES if each.name == architecture)
    chain = Chain("Relu", Source.BEFORE)
    kernel = Kernel(kind=kind, numbers=NUMBERS["f16"], activation="Relu", source=chain.source, tile=TILES["f16"][-1])

    data = compiler.compiled(kernel.text, of.flags, LIMIT_S)

    # how nvcc names the machine code it embeds, and the PTX that it does not
    assert f"sm_{architecture}".encode() in data
    assert b".target sm_" not in data
    check_epilogue(Compiled(data), chain)


@pytest.mark.slow
def test_what_the_plugin_builds_is_what_it_loads_and_a_call_without_a_device_says_so(
    compiler: Nvcc, build: BuildContext, tmp_path: Path
) -> None:
    function = largest(product("Silu", a=(64, 64), b=(64, 64), dtype=FLOAT16, constant=True, bias=(64,)))
    plugin = CutlassPlugin()
    answer = plugin.collage_lower(TARGET, function, dataclasses.replace(build, max_variants=1))
    assert isinstance(answer, Iterator), answer
    artifact = next(answer)

    library = Compiled(artifact.files["kernel.so"], tmp_path)

    assert list(tmp_path.glob("*.so")) == []
    assert json.dumps(artifact.metadata)
    problem = Gemm(m=8, n=8, k=8, batch=1, a=Matrices(8, 0), b=Matrices(8, 0), result=Matrices(8, 0))
    call = library.gemm(problem, Chain("Swish", Source.NONE, 1.0), {"a": 0, "b": 0, "result": 0}, 0, 0)
    check_without_a_device(call, "collage_gemm")
