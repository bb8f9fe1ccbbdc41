"""Numbers of every epilogue, type and transposition, all variants, and calls in a CUDA graph.

Each test runs on two machines: in the default run on one without a GPU, where the library is emulated on a fake device,
and with `-m gpu` on a real one, which needs the library and CuPy.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
import pytest

from collage.reference import evaluate
from collage.setup.inputs.random_arrays import random_inputs
from collage_core.contract import Unsupported
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.registry import Toolchain
from collage_cublas.plugin import CublasPlugin
from collage_testing import GraphBuilder
from collage_testing.kit import DeviceMachine, check_plugin

from .machine import emulated, largest

DTYPES = ("FLOAT", "FLOAT16", "BFLOAT16")
TOLERANCES = {"FLOAT": 1e-4, "FLOAT16": 1e-2, "BFLOAT16": 5e-2}
EPILOGUES = (
    "",
    "bias",
    "residual",
    "Relu",
    "Gelu",
    "bias Relu",
    "bias Gelu",
    "bias residual Relu",
    "bias residual Gelu",
)
LAYOUTS = tuple(itertools.product((False, True), (False, True), ((), (3,))))
"""Whether each factor is given transposed, and the batch."""


WORKSPACE_BYTES = 1 << 25


def real() -> DeviceMachine:
    machine = DeviceMachine.real(Toolchain("cublas", CublasPlugin()))
    if isinstance(machine, Unsupported):
        pytest.skip(machine.reason)
    return machine


MACHINES = {"emulated": emulated, "real": real}


@pytest.fixture(params=["emulated", pytest.param("real", marks=pytest.mark.gpu("cupy"))])
def machine(request: pytest.FixtureRequest) -> DeviceMachine:
    return MACHINES[request.param]()


def product(
    dtype: str, epilogue: str, *, transpose_a: bool = False, transpose_b: bool = False, batch: tuple[int, ...] = ()
) -> onnx_ir.Model:
    """`[..., 48, 64]` times `[..., 64, 40]`, each perhaps given the other way round."""
    g = GraphBuilder("product")
    element = onnx_ir.DataType[dtype]
    factors = []
    for name, matrix, turned in (("x", (48, 64), transpose_a), ("z", (64, 40), transpose_b)):
        value = g.input(name, *batch, *(matrix[::-1] if turned else matrix), dtype=element)
        rank = len(batch) + 2
        order = [*range(rank - 2), rank - 1, rank - 2]
        factors.append(g.op("Transpose", value, perm=order) if turned else value)
    value = g.op("MatMul", *factors)
    if "bias" in epilogue:
        value = g.op("Add", value, g.input("b", 40, dtype=element))
    if "residual" in epilogue:
        value = g.op("Add", value, g.input("r", *batch, 48, 40, dtype=element))
    if "Relu" in epilogue:
        value = g.op("Relu", value)
    if "Gelu" in epilogue:
        value = g.op("Gelu", value, approximate="tanh")
    return g.model(value)


def combinations() -> Iterator[Any]:
    """On a GPU all of them; emulated each epilogue once, types and layouts in turn."""
    for number, epilogue in enumerate(EPILOGUES):
        layouts = [LAYOUTS[number % len(LAYOUTS)]]
        yield pytest.param(emulated, DTYPES[number % len(DTYPES)], epilogue, layouts, id=f"emulated-{epilogue}")
    for dtype, epilogue in itertools.product(DTYPES, EPILOGUES):
        yield pytest.param(real, dtype, epilogue, LAYOUTS, id=f"real-{dtype}-{epilogue}", marks=pytest.mark.gpu("cupy"))


@pytest.mark.parametrize(("on", "dtype", "epilogue", "layouts"), list(combinations()))
def test_every_epilogue_type_and_transposition_is_right(
    on: Any, dtype: str, epilogue: str, layouts: Sequence[tuple[bool, bool, tuple[int, ...]]]
) -> None:
    machine = on()
    models = {
        f"{a} {b} {batch}": product(dtype, epilogue, transpose_a=a, transpose_b=b, batch=batch)
        for a, b, batch in layouts
    }

    conformance = check_plugin(
        machine.toolchain,
        models,
        host=machine.host,
        open_device=machine.providers.open,
        tolerance=TOLERANCES[dtype],
        max_variants=8 if machine.is_real else 1,
    )

    assert set(conformance.ran) == set(models)


def test_variants_differ_and_each_keeps_its_limit_and_computes_the_same(machine: DeviceMachine, tmp_path: Path) -> None:
    target = machine.target()
    model = product("FLOAT16", "bias Relu")
    function = largest(model, target)
    variants = machine.variants(function, target, tmp_path, workspace_limit_bytes=WORKSPACE_BYTES)
    feeds = random_inputs(DataflowGraph(model), seed=0)
    right = evaluate(model, feeds).values[function.outputs[0].name].astype(np.float32)

    assert len({each.variant for each in variants}) == len(variants) > 1
    for artifact in variants:
        assert artifact.workspace_bytes <= WORKSPACE_BYTES
        [found] = machine.bound(function, target, artifact, feeds).run()
        limit = 1e-2 * np.abs(right).max()
        np.testing.assert_allclose(found.astype(np.float32), right, atol=limit, rtol=0, err_msg=artifact.variant)


LIMITS = {"": 1e-6, "tf32": 1e-2, "fp16": 1e-2, "bf16": 5e-2}
"""Most a product of 64 terms is off, relative to its largest element, by the target's precision."""


@pytest.mark.parametrize("weight", [False, True], ids=["two inputs", "a weight"])
def test_a_lower_precision_is_off_unless_asked_for(weight: bool, machine: DeviceMachine, tmp_path: Path) -> None:
    g = GraphBuilder("product")
    model = g.model(g.op("MatMul", g.input("x", 48, 64), g.weight("z", 64, 40) if weight else g.input("z", 64, 40)))
    feeds = random_inputs(DataflowGraph(model), seed=0)
    z = model.graph.initializers["z"].const_value.numpy() if weight else feeds["z"]  # type: ignore[union-attr]
    right = feeds["x"].astype(np.float64) @ z.astype(np.float64)
    for target in machine.targets:
        precision, function = target.option("precision"), largest(model, target)
        variants = machine.variants(function, target, tmp_path, workspace_limit_bytes=WORKSPACE_BYTES)
        ways = {artifact.variant.partition("_")[0]: artifact for artifact in reversed(variants)}
        for way, artifact in ways.items():
            [found] = machine.bound(function, target, artifact, feeds).run()
            error = np.abs(found - right).max() / np.abs(right).max()
            assert error < LIMITS[precision], (precision, artifact.variant)
            # the library may round where it is only allowed to; what is held in 16 bits is rounded
            assert error > 1e-6 or way != "cast"
        assert {"cast", "fast"} <= set(ways) or precision in ("", "tf32")


@pytest.mark.parametrize(("name", "dtype"), [("cublas@cuda:0", "FLOAT16"), ("cublas(precision=fp16)@cuda:0", "FLOAT")])
def test_a_call_in_a_graph_gives_the_same_bits_a_thousand_times(
    name: str, dtype: str, machine: DeviceMachine, tmp_path: Path
) -> None:
    model = product(dtype, "bias residual Gelu", batch=(3,))
    [target] = [each for each in machine.targets if each.name == name]
    function = largest(model, target)
    feeds = random_inputs(DataflowGraph(model), seed=0)
    variants = machine.variants(function, target, tmp_path, workspace_limit_bytes=WORKSPACE_BYTES)
    assert variants
    for artifact in variants:
        machine.bound(function, target, artifact, feeds).check_replays(1000 if machine.is_real else 10)
