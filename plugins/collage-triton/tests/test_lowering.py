"""What is decided without a GPU: refusals, variants, what is compiled when, launches on a recorded driver."""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
import pytest

from collage_core.candidates.proposals import propose, target_rule
from collage_core.contract import (
    Artifact,
    Buffer,
    BuildContext,
    KernelFunction,
    RunContext,
    TensorSpec,
    Unsupported,
)
from collage_core.fusion import CandidateBounds
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.registry import Toolchain
from collage_testing import GraphBuilder, chain
from collage_testing.kit import build_context
from collage_triton.compile import Compiled, compile_kernel
from collage_triton.driver import Driver
from collage_triton.emit import grid_of
from collage_triton.errors import Refused
from collage_triton.kernel import load
from collage_triton.lower import ALIGNED, ANY, lower
from collage_triton.nest import nest_of
from collage_triton.plugin import plugin, targets
from collage_triton.tiles import tiles

from .checking import function_of
from .emulation import H200, HOST

EXACT, TF32 = targets("3.9.0", [H200])[:2]


def group(*shape: int, seed: int = 0) -> KernelFunction:
    g = GraphBuilder(seed=seed)
    return function_of(g, g.op("Softmax", g.op("Add", g.input("x", *shape), g.weight("row", shape[-1]))))


@pytest.fixture
def build(tmp_path: Path) -> BuildContext:
    return build_context(tmp_path, workspace_limit_bytes=0, max_variants=8, host=HOST)


# What is offered


def offered(model: onnx_ir.Model) -> tuple[set[tuple[str, ...]], str]:
    found = propose(
        target_rule(Toolchain("triton", plugin), EXACT, {}), DataflowGraph(model), CandidateBounds.preset("default")
    )
    return {candidate.sub_graph.names for candidate in found.candidates}, "; ".join(found.refusals.values())


def test_neighbours_are_offered_in_every_combination_up_to_a_reduction() -> None:
    groups, refusals = offered(chain("Relu", "Exp", "Softmax"))

    assert ("relu_0", "exp_0", "softmax_0") in groups
    assert len(groups) == 6
    assert refusals == ""


def single(op: str, *shape: int | str, dtype: onnx_ir.DataType = onnx_ir.DataType.FLOAT, **attributes: Any) -> Any:
    g = GraphBuilder()
    return g.model(g.op(op, g.input("x", *shape, dtype=dtype), **attributes))


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (single("Neg", 3, dtype=onnx_ir.DataType.DOUBLE), "holds double"),
        (single("Neg", "n", 3), "is not known before it runs"),
        (single("Erf", 3, dtype=onnx_ir.DataType.INT32), "Erf of i32"),
        (single("CumSum", 3), "no predicate takes CumSum"),
        (single("Exp", 1 << 20, 1 << 11), "offsets are 32 bits wide"),
    ],
    ids=["type", "shape", "integers", "operator", "size"],
)
def test_what_has_no_loop_nest_is_refused_with_the_reason(model: onnx_ir.Model, reason: str) -> None:
    groups, refusals = offered(model)

    assert groups == set()
    assert reason in refusals


def outer_product(g: GraphBuilder) -> onnx_ir.Value:
    return g.op("MatMul", g.input("a", 1 << 16, 16), g.input("b", 16, 1 << 16))


def outer_sum(g: GraphBuilder) -> onnx_ir.Value:
    return g.op("Add", g.input("a", 1 << 16, 1), g.input("b", 1 << 16))


def sum_of_an_outer_sum(g: GraphBuilder) -> onnx_ir.Value:
    return g.op("ReduceSum", outer_sum(g), keepdims=0)


@pytest.mark.parametrize("made", [outer_product, outer_sum, sum_of_an_outer_sum])
def test_small_operands_of_something_that_offsets_do_not_reach_are_refused(
    made: Callable[[GraphBuilder], onnx_ir.Value],
) -> None:
    g = GraphBuilder()

    with pytest.raises(Refused, match="has 4294967296 elements; offsets are 32 bits wide"):
        nest_of(function_of(g, made(g)))


@pytest.mark.parametrize(("batch", "reason"), [((255, 257), ""), ((256, 256), "65536 products of one batch")])
def test_a_batch_is_as_large_as_a_grid_takes(batch: tuple[int, int], reason: str) -> None:
    g = GraphBuilder()
    function = function_of(g, g.op("MatMul", g.input("a", *batch, 2, 3), g.input("b", *batch, 3, 2)))

    if not reason:
        nest = nest_of(function)
        assert grid_of(nest, tiles(nest)[0])[1] == 65535
        return
    with pytest.raises(Refused, match=reason):
        nest_of(function)


def test_reductions_over_different_rows_are_no_one_kernel() -> None:
    g = GraphBuilder()
    twice = g.op("ReduceSum", g.op("Softmax", g.input("x", 3, 5)), g.ints(0))

    with pytest.raises(Refused, match="over other rows"):
        nest_of(function_of(g, twice))


def test_a_row_is_not_reduced_again_for_each_of_its_elements() -> None:
    g = GraphBuilder()
    flat = g.op("Reshape", g.op("Softmax", g.input("x", 64, 300)), g.ints(300, 64))

    with pytest.raises(Refused, match="reduce each row of Softmax 300 times over"):
        nest_of(function_of(g, g.op("Add", flat, g.weight("w", 64))))


# Variants and artifacts


class Recorder:
    """Takes the compiler's place."""

    def __init__(self) -> None:
        self.compiled: list[str] = []

    def __call__(
        self, source: str, parameters: Any, tile: Any, capability: str, *, aligned: bool, **_: Any
    ) -> Compiled:
        self.compiled.append(f"{tile.name} {capability} {'aligned' if aligned else 'any'}")
        return Compiled(self.compiled[-1].encode(), "kernel", 32 * tile.warps, 0, 2)


def variants(recorder: Recorder, build: BuildContext, function: KernelFunction | None = None) -> Iterator[Artifact]:
    answer = lower(EXACT, function or group(6, 96), build, "3.9.0", recorder)
    assert not isinstance(answer, Unsupported), answer.reason
    return answer


def test_each_variant_is_compiled_when_it_is_asked_for(build: BuildContext) -> None:
    recorder = Recorder()
    made = variants(recorder, build, group(600, 96))

    assert recorder.compiled == []
    first = next(made)
    assert recorder.compiled == [f"{first.variant} 9.0 aligned", f"{first.variant} 9.0 any"]
    names = [first.variant, *(each.variant for each in made)]
    assert len(names) == len(set(names)) > 1


def test_as_many_are_compiled_at_once_as_there_are_threads_and_none_while_one_is_timed(build: BuildContext) -> None:
    recorder, together = Recorder(), threading.Barrier(4)

    def compile_kernel(*arguments: Any, **options: Any) -> Compiled:
        together.wait(timeout=60)  # for three others
        return recorder(*arguments, **options)

    answer = lower(EXACT, group(600, 96), dataclasses.replace(build, threads=4), "3.9.0", compile_kernel)
    assert not isinstance(answer, Unsupported)
    names = []
    for number, artifact in enumerate(itertools.islice(answer, 4)):
        names.append(artifact.variant)
        assert len(recorder.compiled) == (4 if number < 2 else 8)

    assert names == [each.variant for each in variants(Recorder(), build, group(600, 96))][:4]


def test_a_compiler_that_fails_costs_its_own_variant_and_what_comes_after(build: BuildContext) -> None:
    def compile_kernel(source: str, parameters: Any, tile: Any, *rest: Any, **options: Any) -> Compiled:
        if tile.name == names[1]:
            raise RuntimeError("it crashed")
        return Recorder()(source, parameters, tile, *rest, **options)

    names = [each.variant for each in variants(Recorder(), build, group(600, 96))]
    answer = lower(EXACT, group(600, 97), dataclasses.replace(build, threads=4), "3.9.0", compile_kernel)
    assert not isinstance(answer, Unsupported)

    assert next(answer).variant == names[0]
    with pytest.raises(RuntimeError, match="it crashed"):
        next(answer)


def test_the_winner_is_taken_from_the_cache_for_a_call_site_with_other_weights(build: BuildContext) -> None:
    wanted = [each.variant for each in variants(Recorder(), build)][-1]
    recorder = Recorder()

    [again] = variants(recorder, dataclasses.replace(build, variant=wanted), group(6, 96, seed=1))

    assert (again.variant, recorder.compiled) == (wanted, [])
    assert again.files[ANY] == f"{wanted} 9.0 any".encode()


def test_an_artifact_says_what_it_needs(build: BuildContext) -> None:
    function = group(6, 96)

    artifact = next(variants(Recorder(), build, function))

    assert [(each.kind, each.name, each.specifier) for each in artifact.requires] == [
        ("compute_capability", "cuda", "==9.0"),
        ("driver", "cuda", ">=580"),
    ]
    assert list(artifact.constants.values()) == [function.constants["row"]]
    assert (artifact.capturable, artifact.deterministic) == (True, True)


def test_a_variant_it_does_not_have_is_refused(build: BuildContext) -> None:
    answer = lower(EXACT, group(6, 96), dataclasses.replace(build, variant="x"), "3.9.0", Recorder())

    assert answer == Unsupported("it has no variant 'x' of this group")


# Launching


class RecordedCuda:
    """The driver's library: every call succeeds; launches are kept."""

    def __init__(self) -> None:
        self.launches: list[tuple[Any, ...]] = []
        self.loaded: list[bytes] = []

    def cuModuleLoadData(self, module: Any, cubin: bytes) -> int:  # noqa: N802
        self.loaded.append(cubin)
        return 0

    def cuModuleGetFunction(self, function: Any, module: Any, name: bytes) -> int:  # noqa: N802
        ctypes.cast(function, ctypes.POINTER(ctypes.c_void_p))[0] = len(self.loaded)
        return 0

    def cuLaunchKernel(self, function: Any, *rest: Any) -> int:  # noqa: N802
        *shape, stream, arguments, _ = rest
        pointers = [ctypes.cast(each, ctypes.POINTER(ctypes.c_void_p))[0] for each in arguments]
        self.launches.append((self.loaded[function.value - 1], shape, stream.value, pointers))
        return 0

    def __getattr__(self, name: str) -> Any:
        return lambda *_: 0


def bound(artifact: Artifact, cuda: RecordedCuda, *addresses: int) -> Any:
    specs = [TensorSpec(name=f"b{at}", dtype=onnx_ir.DataType.FLOAT, shape=(6, 96)) for at in addresses]
    x, y, weight = (Buffer.at(spec, device="cuda:0", pointer=at) for spec, at in zip(specs, addresses, strict=True))
    run = RunContext(
        threads=1, host=HOST, device="cuda:0", stream=7, placed=dict.fromkeys(artifact.constants.values(), weight)
    )
    kernel = load(artifact, run, lambda: Driver(cuda))
    assert not isinstance(kernel, Unsupported), kernel.reason
    return kernel.bind([x], [y], None)


def test_a_call_is_one_launch_on_the_stream_with_the_arguments_in_order(build: BuildContext) -> None:
    artifact = next(variants(Recorder(), build))
    cuda = RecordedCuda()

    bound(artifact, cuda, 0x1000, 0x2000, 0x3000)()

    [(cubin, shape, stream, pointers)] = cuda.launches
    threads = artifact.metadata["launches"][ALIGNED]["threads"]  # type: ignore[index,call-overload]
    assert cubin == artifact.files[ALIGNED]
    assert shape == [*artifact.metadata["grid"], 1, threads, 1, 1, 0]  # type: ignore[misc]
    assert stream == 7
    assert pointers == [0x1000, 0x3000, 0x2000, None, None]  # input, weight, output, and Triton's scratch


def test_an_address_that_is_not_aligned_takes_the_cubin_for_any(build: BuildContext) -> None:
    artifact = next(variants(Recorder(), build))
    cuda = RecordedCuda()

    bound(artifact, cuda, 0x1004, 0x2000, 0x3000)()

    assert cuda.launches[0][0] == artifact.files[ANY]


def test_an_output_without_elements_launches_nothing(build: BuildContext) -> None:
    g = GraphBuilder()
    function = function_of(g, g.op("Exp", g.input("x", 0, 96)))
    [artifact] = variants(Recorder(), dataclasses.replace(build, max_variants=1), function)
    cuda = RecordedCuda()
    kernel = load(artifact, RunContext(threads=1, host=HOST, device="cuda:0", stream=7), lambda: Driver(cuda))

    assert not isinstance(kernel, Unsupported)
    kernel.bind([], [], None)()
    assert cuda.launches == []


def test_loading_without_a_driver_says_what_to_install(build: BuildContext) -> None:
    artifact = next(variants(Recorder(), build, function_of(*_neg())))

    def missing() -> Driver:
        raise OSError("libcuda.so.1: cannot open shared object file")

    answer = load(artifact, RunContext(threads=1, host=HOST, device="cuda:0", stream=7), missing)

    assert isinstance(answer, Unsupported)
    assert "install NVIDIA's driver" in answer.reason


def _neg() -> tuple[GraphBuilder, onnx_ir.Value]:
    g = GraphBuilder()
    return g, g.op("Neg", g.input("x", 4))


def test_importing_the_plugin_imports_neither_triton_nor_cupy() -> None:
    code = "import collage_triton.plugin, sys; print({'triton', 'cupy'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {code}"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == "set()"


# Compiling, which needs Triton and no GPU


def compiled_cases() -> dict[str, KernelFunction]:
    g = GraphBuilder()
    half = onnx_ir.DataType.FLOAT16
    norm = g.op("LayerNormalization", g.input("x", 64, 768, dtype=half), g.constant("s", np.ones(768, np.float16)))
    pointwise, rows, product, image = (GraphBuilder() for _ in range(4))
    times = product.op("MatMul", product.op("Relu", product.input("x", 100, 768)), product.weight("w", 768, 300))
    filtered = image.op("Conv", image.input("x", 1, 16, 14, 14), image.weight("w", 32, 16, 3, 3), pads=[1, 1, 1, 1])
    return {
        "pointwise": function_of(
            pointwise, pointwise.op("Gelu", pointwise.op("Transpose", pointwise.input("x", 33, 70)))
        ),
        "rows": function_of(g, g.op("Gelu", norm)),
        "product": function_of(product, product.op("Gelu", times)),
        "convolution": function_of(image, image.op("Relu", filtered)),
        "long rows, in a loop": function_of(rows, rows.op("Softmax", rows.input("x", 3, 30_000))),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", compiled_cases())
def test_a_kernel_of_each_family_compiles_for_hopper(name: str, build: BuildContext) -> None:
    pytest.importorskip("triton")

    answer = lower(EXACT, compiled_cases()[name], dataclasses.replace(build, max_variants=1), "3.9.0", compile_kernel)
    assert not isinstance(answer, Unsupported)
    [artifact] = answer

    metadata: Any = artifact.metadata
    for cubin in (ALIGNED, ANY):
        assert artifact.files[cubin].startswith(b"\x7fELF")
        launch = metadata["launches"][cubin]
        path = build.scratch / cubin
        path.write_bytes(artifact.files[cubin])
        parameters, threads = told_by(path)
        assert parameters == len(metadata["arguments"]) + launch["scratch"]
        assert threads == launch["threads"]
        assert 0 <= launch["shared_bytes"] <= 227 * 1024
        assert launch["name"].encode() in artifact.files[cubin]


def told_by(cubin: Path) -> tuple[int, int]:
    """How many parameters a kernel has and how many threads it is made for, as its file says to NVIDIA's own tool."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    told = subprocess.run([tool, "--dump-elf", cubin], capture_output=True, text=True, check=True).stdout
    [threads] = re.findall(r"EIATTR_REQNTID\s+Format:\s+EIFMT_SVAL\s+Value:\s+(0x[0-9a-f]+) 0x1 0x1", told)
    return told.count("EIATTR_KPARAM_INFO"), int(threads, 16)
