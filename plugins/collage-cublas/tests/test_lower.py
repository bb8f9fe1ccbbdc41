"""From a kernel function to variants, and from a variant to a call: what is asked of the library, and what is kept."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir
import pytest

from collage.devices.opening import buffer_on, placed_on
from collage.devices.this_host import this_host
from collage_core.contract import (
    Artifact,
    Buffer,
    BuildContext,
    KernelFunction,
    Requirement,
    RunContext,
    Target,
    Unsupported,
)
from collage_core.errors import KernelError, LoweringError
from collage_core.fusion import kernel_function
from collage_cublas.library import (
    ALGORITHM_BYTES,
    Compute,
    CublasLt,
    DataType,
    Desc,
    Descriptors,
    Epilogue,
    Layout,
    Preference,
)
from collage_testing import GraphBuilder, dense
from collage_testing.kit import FakeDevice
from collage_testing.kit.contexts import MemoryBlobs, run_context
from collage_testing.kit.gpu_plugins import H100, HOST

from .emulator import ALGORITHMS, Emulator
from .machine import TARGET, TF32, largest, plugin_over, proposals


def function(model: onnx_ir.Model | None = None) -> KernelFunction:
    return largest(model or dense(m=4, n=8, k=16, activation="Relu"))


def lowered(emulator: Emulator, build: BuildContext, what: KernelFunction | None = None) -> list[Artifact]:
    answer = plugin_over(emulator).collage_lower(TARGET, what or function(), build)
    assert isinstance(answer, Iterator), answer
    return list(answer)


def test_each_algorithm_is_a_variant_with_its_own_scratch_memory(build: BuildContext) -> None:
    emulator = Emulator()

    made = lowered(emulator, build)

    assert emulator.asked == [3]  # as many as core will try, not the library's most
    assert [artifact.workspace_bytes for artifact in made] == [1 << 20, 0, 1 << 12]
    assert len({artifact.variant for artifact in made}) == 3
    assert all(len(artifact.files["algorithm.bin"]) == ALGORITHM_BYTES for artifact in made)
    assert made[0].requires == (
        Requirement(kind="compute_capability", name="cuda", specifier="==9.0"),
        Requirement(kind="device", name="NVIDIA H100"),
    )


def test_algorithms_that_want_more_scratch_memory_than_allowed_are_not_found(build: BuildContext) -> None:
    made = lowered(Emulator(), dataclasses.replace(build, workspace_limit_bytes=1 << 13))

    assert [artifact.workspace_bytes for artifact in made] == [0, 1 << 12, 1 << 13]


def test_weights_are_asked_for_and_not_embedded(build: BuildContext) -> None:
    what = function()

    artifact = lowered(Emulator(), build, what)[0]

    assert set(artifact.constants.values()) == set(what.constants.values())
    assert sum(map(len, artifact.files.values())) == ALGORITHM_BYTES


def test_the_chosen_algorithm_is_made_again_without_asking(build: BuildContext) -> None:
    chosen = lowered(Emulator(), build)[2]
    emulator = Emulator()

    [again] = lowered(emulator, dataclasses.replace(build, variant=chosen.variant))

    assert again == chosen
    assert emulator.asked == []


def test_without_the_cache_the_chosen_algorithm_is_found_among_as_many(build: BuildContext) -> None:
    chosen = lowered(Emulator(), build)[2]

    [again] = lowered(Emulator(), dataclasses.replace(build, variant=chosen.variant, blobs=MemoryBlobs()))

    assert again == chosen


def test_algorithms_remembered_for_another_device_are_not_used(build: BuildContext) -> None:
    lowered(Emulator(), build)
    other = dataclasses.replace(HOST, devices=(dataclasses.replace(H100, compute_capability="10.0"),))
    emulator = Emulator()

    made = lowered(emulator, dataclasses.replace(build, host=other))

    assert emulator.asked == [3]
    assert made[0].requires[0].specifier == "==10.0"


@pytest.mark.parametrize(("dtype", "splits"), [("FLOAT", [4, 1, 2]), ("FLOAT16", [4, 1])])
def test_sums_in_parts_are_taken_where_no_part_is_rounded_to_16_bits(
    dtype: str, splits: list[int], build: BuildContext
) -> None:
    g = GraphBuilder()
    x, z = (g.input(name, 8, 8, dtype=onnx_ir.DataType[dtype]) for name in ("x", "z"))

    made = lowered(Emulator(), build, function(g.model(g.op("MatMul", x, z))))

    assert [int(each.variant.partition("split")[2].partition("_")[0]) for each in made] == splits
    # in place, only that parts do not meet is promised, not which comes first
    in_place = {each.variant for each in made if "_split2_" in each.variant}
    assert {each.variant for each in made if not each.deterministic} == in_place


def test_a_variant_is_named_by_what_the_algorithm_is(build: BuildContext) -> None:
    made = lowered(Emulator(), build)

    digest = hashlib.sha256(ALGORITHMS[0].algorithm).hexdigest()[:8]
    assert made[0].variant == f"algo61_tile20_stages3_split4_{digest}"


def test_an_algorithm_remembered_for_one_precision_is_not_used_for_the_other(build: BuildContext) -> None:
    lowered(Emulator(), build)
    emulator = Emulator()

    answer = plugin_over(emulator).collage_lower(TF32, function(), build)

    assert isinstance(answer, Iterator)
    assert next(answer).metadata["product"]["compute"] == "TF32"  # type: ignore[call-overload,index]
    assert emulator.asked == [3]


def test_bfloat16_is_refused_by_devices_that_have_none(build: BuildContext) -> None:
    g = GraphBuilder()
    x, z = (g.input(name, 8, 8, dtype=onnx_ir.DataType.BFLOAT16) for name in ("x", "z"))
    v100 = dataclasses.replace(H100, model="Tesla V100", compute_capability="7.0")
    build = dataclasses.replace(build, host=dataclasses.replace(HOST, devices=(v100,)))

    answer = plugin_over(Emulator()).collage_lower(TARGET, function(g.model(g.op("MatMul", x, z))), build)

    assert answer == Unsupported("Tesla V100 multiplies no bfloat16, which begins with compute capability 8.0")


# Descriptors, as cuBLAS's documentation names them


def sought(
    model: onnx_ir.Model, label: str, build: BuildContext, descriptors: Descriptors, target: Target = TARGET
) -> Any:
    """What the heuristic was asked about the candidate of a label."""
    emulator = Emulator(descriptors)
    [candidate] = [each for each in proposals(model, target).candidates if each.sub_graph.label == label]
    answer = plugin_over(emulator).collage_lower(target, kernel_function(candidate.sub_graph, "kernel"), build)
    assert isinstance(answer, Iterator), answer
    [asked] = emulator.sought
    return asked


def layout(asked: Any, name: str) -> tuple[int, ...]:
    """Rows, columns, leading dimension, batch count, batch stride."""
    attributes = (Layout.ROWS, Layout.COLS, Layout.LD, Layout.BATCH_COUNT, Layout.STRIDED_BATCH_OFFSET)
    return tuple(asked[name][each] for each in attributes)


def test_a_row_major_product_is_a_column_major_one_of_the_transposed(
    build: BuildContext, descriptors: Descriptors
) -> None:
    g = GraphBuilder()
    gemm = g.op("Gemm", g.input("x", 4, 16), g.weight("w", 8, 16), g.weight("b", 8), transB=1)

    asked = sought(g.model(gemm), "cublas.matmul_bias", build, descriptors)

    # d^T [8, 4] = w [8, 16] x^T [16, 4]: w is held as [16, 8] in columns, so transposed
    assert [layout(asked, name) for name in "abcd"] == [
        (16, 8, 16, 1, 0),
        (16, 4, 16, 1, 0),
        (8, 4, 8, 1, 0),
        (8, 4, 8, 1, 0),
    ]
    desc = asked["desc"]
    assert (desc[Desc.TRANSA], desc[Desc.TRANSB]) == (1, 0)
    assert desc[Desc.EPILOGUE] == Epilogue.BIAS
    assert desc[Desc.BIAS_POINTER] % 256 == 0
    assert desc[Desc.BIAS_POINTER]
    assert (desc[Desc.COMPUTE_TYPE], desc[Desc.SCALE_TYPE]) == (Compute.F32, DataType.R_32F)
    assert {asked[name][Layout.TYPE] for name in "abcd"} == {DataType.R_32F}
    assert {asked[name][Layout.ORDER] for name in "abcd"} == {0}  # CUBLASLT_ORDER_COL
    assert asked["preference"] == {
        Preference.MAX_WORKSPACE_BYTES: 1 << 24,
        Preference.REDUCTION_SCHEME_MASK: 7,
        **{each: 256 for each in Preference if each.name.startswith("MIN_ALIGNMENT")},
    }


def test_a_batch_of_products_is_read_where_transposes_would_move_it_from(
    build: BuildContext, descriptors: Descriptors
) -> None:
    """Attention's scores: 12 heads of 64, held beside each other; nothing is moved to have them one after the other."""
    g = GraphBuilder()
    q = g.op("Transpose", g.input("q", 1, 128, 12, 64), perm=[0, 2, 1, 3])
    k = g.op("Transpose", g.input("k", 1, 128, 12, 64), perm=[0, 2, 3, 1])

    asked = sought(g.model(g.op("MatMul", q, k)), "cublas.matmul_transposed", build, descriptors)

    assert layout(asked, "a") == (64, 128, 768, 12, 64)
    assert layout(asked, "b") == (64, 128, 768, 12, 64)
    assert layout(asked, "d") == (128, 128, 128, 12, 128 * 128)
    assert (asked["desc"][Desc.TRANSA], asked["desc"][Desc.TRANSB]) == (1, 0)


def test_a_mask_is_added_to_every_head_with_a_stride_of_zero(build: BuildContext, descriptors: Descriptors) -> None:
    g = GraphBuilder()
    product = g.op("MatMul", g.input("q", 1, 12, 128, 64), g.input("k", 1, 12, 64, 128))
    mask = g.op("Neg", g.input("m", 1, 1, 128, 128))

    asked = sought(g.model(g.op("Add", product, mask)), "cublas.matmul_residual", build, descriptors)

    assert layout(asked, "c") == (128, 128, 128, 12, 0)
    assert layout(asked, "d") == (128, 128, 128, 12, 128 * 128)


def test_leading_axes_with_one_weight_are_more_rows_of_one_product(
    build: BuildContext, descriptors: Descriptors
) -> None:
    g = GraphBuilder()
    product = g.op("MatMul", g.input("x", 2, 3, 16), g.weight("w", 16, 8))

    asked = sought(g.model(product), "cublas.matmul", build, descriptors)

    assert [layout(asked, name) for name in "abd"] == [(8, 16, 8, 1, 0), (16, 6, 16, 1, 0), (8, 6, 8, 1, 0)]


def test_factors_are_one_alpha_and_what_is_read_is_not_scaled_before(build: BuildContext) -> None:
    g = GraphBuilder()
    x = g.op("Mul", g.constant("seven", np.float32(7)), g.input("x", 4, 16))
    z = g.op("Div", g.input("z", 16, 8), g.constant("three", np.full((1, 1), 3, np.float32)))

    what = function(g.model(g.op("Gemm", x, z, alpha=0.5)))
    artifact = lowered(Emulator(), build, what)[0]

    product: Any = artifact.metadata["product"]
    assert product["alpha"] == pytest.approx(0.5 * 7 / 3, rel=1e-15)
    assert artifact.metadata["operands"] == {"a": 0, "b": 1}
    assert artifact.constants == {}


# Loading and running


STREAM = 7
"""The handle of no stream, for kernels that are loaded and not run."""


def test_a_call_enqueues_and_nothing_happens_before_the_stream_comes_to_it(build: BuildContext) -> None:
    device = FakeDevice("cuda:0")
    stream = device.open("cuda:0")
    what = function()
    artifact = lowered(Emulator(), build, what)[1]
    run = run_context(artifact, what, TARGET, stream)
    kernel = plugin_over(Emulator()).collage_load(TARGET, artifact, run)
    assert not isinstance(kernel, Unsupported)
    x = placed_on(stream, what.inputs[0].name, np.ones((4, 16), np.float32))
    y = buffer_on(stream, what.outputs[0])
    spoilt = np.full((4, 8), -1, np.float32)
    stream.write(y.pointer, spoilt)
    stream.synchronise()
    array = device.peek(y.pointer, (4, 8), np.float32)

    kernel.bind([x], [y], None)()

    assert (array == -1).all()
    stream.synchronise()
    assert (array >= 0).all()
    assert (array > 0).any()


@pytest.mark.parametrize(
    ("artifact", "run", "reason"),
    [
        ({}, {"stream": None}, "it enqueues on a stream, and none was given"),
        (
            {"version": 120000},
            {},
            "one of cuBLASLt 12.0.0, which keeps it for no other version; this is 13.0.0",
        ),
        ({}, {}, "was not supplied"),
    ],
)
def test_what_cannot_run_is_refused_when_loaded(
    artifact: dict[str, int], run: dict[str, Any], reason: str, build: BuildContext
) -> None:
    emulator = Emulator()
    made = lowered(emulator, build)[0]
    made = dataclasses.replace(made, metadata={**json.loads(json.dumps(made.metadata)), **artifact})

    answer = plugin_over(emulator).collage_load(
        TARGET, made, RunContext(threads=1, host=HOST, device="cuda:0", **{"stream": STREAM, **run})
    )

    assert isinstance(answer, Unsupported)
    assert reason in answer.reason


def test_a_place_that_is_less_aligned_than_the_algorithm_needs_is_refused_when_bound(build: BuildContext) -> None:
    g = GraphBuilder()
    what = function(g.model(g.op("MatMul", g.input("x", 4, 16), g.input("z", 16, 8))))
    emulator = Emulator()
    artifact = lowered(emulator, build, what)[1]
    kernel = plugin_over(emulator).collage_load(
        TARGET, artifact, RunContext(threads=1, host=HOST, device="cuda:0", stream=STREAM)
    )
    assert not isinstance(kernel, Unsupported)
    x, z, y = (
        Buffer.at(spec, device="cuda:0", pointer=pointer)
        for spec, pointer in zip((*what.inputs, *what.outputs), (4096, 8196, 16384), strict=True)
    )

    with pytest.raises(
        KernelError, match="b 'z' is at 0x2004; the algorithm was chosen for places at multiples of 256"
    ):
        kernel.bind([x, z], [y], None)


@pytest.mark.skipif(bool(this_host().devices), reason="this machine has a GPU")
def test_the_real_library_without_a_gpu_says_so_when_it_is_first_needed(library: CublasLt, build: BuildContext) -> None:
    with pytest.raises(LoweringError, match=r"libcuda\.so\.1"):
        plugin_over(library).collage_lower(TARGET, function(), build)
