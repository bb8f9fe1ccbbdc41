"""Variants: compiled once, kept by all that matters, in order; and what is refused when one is built."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from collage_core.contract import Artifact, BuildContext, RunContext, Unsupported
from collage_cutlass.building import Job, libraries
from collage_cutlass.lower import LIBRARY, SOURCE
from collage_cutlass.menu import HOPPER_TILES, TILES
from collage_cutlass.toolkit import CompileError
from collage_testing.kit.contexts import MemoryBlobs
from collage_testing.kit.gpu_plugins import H100, HOST

from .cases import FLOAT16, convolution, product
from .emulator import FakeCompiler
from .machine import TARGET, largest, plugin_over

MODEL = product("Silu", a=(64, 64), b=(64, 64), dtype=FLOAT16, constant=True, bias=(64,))


def lowered(compiler: FakeCompiler, build: BuildContext) -> list[Artifact]:
    answer = plugin_over(compiler).collage_lower(TARGET, largest(MODEL), build)
    assert isinstance(answer, Iterator), answer
    return list(answer)


def test_tiles_are_the_variants_each_compiled_for_the_device(build: BuildContext) -> None:
    compiler = FakeCompiler()

    artifacts = lowered(compiler, build)

    names = {tile.name for tile in HOPPER_TILES["f16"]} | {tile.name for tile in TILES["f16"]}
    assert len({each.variant for each in artifacts}) == 3
    assert {each.variant for each in artifacts} <= names
    assert {flags for _, flags in compiler.asked} == {("-gencode", "arch=compute_90a,code=sm_90a")}
    assert [each.files[SOURCE] for each in artifacts] == [each.files[LIBRARY] for each in artifacts]
    [artifact, *_] = artifacts
    assert artifact.capturable
    assert artifact.deterministic
    assert {(each.kind, each.specifier) for each in artifact.requires} == {
        ("compute_capability", ">=9.0,<9.1"),
        ("driver", ">=580"),
    }
    assert set(artifact.constants) == {"w", "bias"}


def test_what_was_compiled_once_is_kept_whatever_the_extents(build: BuildContext) -> None:
    compiler = FakeCompiler()
    lowered(compiler, build)
    other = largest(product("Silu", a=(64, 128), b=(128, 64), dtype=FLOAT16, constant=True, bias=(64,)))
    compiled = len(compiler.asked)

    answer = plugin_over(compiler).collage_lower(TARGET, other, build)

    assert isinstance(answer, Iterator)
    assert len(list(answer)) == 3
    assert len(compiler.asked) == compiled


@pytest.mark.parametrize("changed", ["identity", "device"])
def test_another_compiler_or_device_compiles_again(build: BuildContext, changed: str) -> None:
    compiler = FakeCompiler()
    lowered(compiler, build)
    compiled = len(compiler.asked)
    if changed == "identity":
        compiler.identity = "nvcc 13.1.1, cutlass 4.2.0.0"
    else:
        a100 = dataclasses.replace(H100, model="NVIDIA A100", compute_capability="8.0")
        build = dataclasses.replace(build, host=dataclasses.replace(HOST, devices=(a100,)))

    lowered(compiler, build)

    assert len(compiler.asked) == 2 * compiled


def test_one_variant_is_compiled_where_one_is_wanted(build: BuildContext) -> None:
    compiler = FakeCompiler()
    name = "tile64x64x64_warps2x2_stages5"

    [artifact] = lowered(compiler, dataclasses.replace(build, variant=name))

    assert artifact.variant == name
    assert len(compiler.asked) == 1


def test_a_tile_that_does_not_compile_is_replaced_and_if_none_does_that_is_the_reason(build: BuildContext) -> None:
    wanted = [each.variant for each in lowered(FakeCompiler(), dataclasses.replace(build, max_variants=4))]
    first = "cute::Shape<cute::_64, cute::_64, cute::_64>"
    assert wanted[0] == "tma64x64x64_cluster2x1_pingpong"
    stubborn = FakeCompiler(lambda source: "nvcc exits with 1: no" if f"Threadblock = {first}" in source else "")

    found = lowered(stubborn, dataclasses.replace(build, blobs=MemoryBlobs()))

    assert [each.variant for each in found] == wanted[1:]
    broken = FakeCompiler(lambda source: "nvcc exits with 1: no space left")
    answer = plugin_over(broken).collage_lower(TARGET, largest(MODEL), dataclasses.replace(build, blobs=MemoryBlobs()))
    assert isinstance(answer, Unsupported)
    assert "no space left" in answer.reason
    assert len(broken.asked) == 2 * build.max_variants


def test_a_compilation_leaves_time_for_another_one(build: BuildContext) -> None:
    limits = []

    class Timed(FakeCompiler):
        def compiled(self, source: str, flags: tuple[str, ...], limit_s: float) -> bytes:
            limits.append(limit_s)
            time.now += limit_s
            raise CompileError(f"nvcc took longer than {limit_s:.0f} s")

    time = SimpleNamespace(now=100.0)
    jobs = [Job(tile, f"{tile}", f"{tile}") for tile in TILES["f16"][:3]]
    one = dataclasses.replace(build, max_variants=1, deadline_s=100.0)

    made = libraries(Timed(), (), jobs, one, clock=lambda: float(time.now))
    with pytest.raises(StopIteration, match=r"longer than 60 s; .*longer than 24 s; .*longer than 10 s"):
        next(made)

    assert limits == pytest.approx([60.0, 24.0, 9.6])


def test_with_little_time_what_compiles_fast_comes_first(build: BuildContext) -> None:
    [hurried] = lowered(FakeCompiler(), dataclasses.replace(build, max_variants=1, deadline_s=60.0))
    [other] = lowered(FakeCompiler(), dataclasses.replace(build, max_variants=1, deadline_s=120.0))

    assert (hurried.variant[:4], other.variant[:3]) == ("tile", "tma")


def test_workspace_for_turned_images_is_within_the_limit_or_refused(build: BuildContext) -> None:
    function = largest(convolution("Relu"))

    answer = plugin_over(FakeCompiler()).collage_lower(
        TARGET, function, dataclasses.replace(build, workspace_limit_bytes=1 << 10)
    )

    assert isinstance(answer, Unsupported)
    assert "turning images takes" in answer.reason


def test_a_kernel_needs_a_stream_and_its_weights(build: BuildContext) -> None:
    [artifact, *_] = lowered(FakeCompiler(), build)
    plugin = plugin_over(FakeCompiler())

    without = plugin.collage_load(TARGET, artifact, RunContext(threads=1, host=HOST, device="cuda:0"))
    unsupplied = plugin.collage_load(TARGET, artifact, RunContext(threads=1, host=HOST, device="cuda:0", stream=1))

    assert isinstance(without, Unsupported)
    assert "none was given" in without.reason
    assert isinstance(unsupplied, Unsupported)
    assert "was not supplied" in unsupplied.reason
