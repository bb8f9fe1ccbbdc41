"""Numbers of every form and type, all variants, and calls in a CUDA graph.

Each test runs on two machines: in the default run on one without a GPU, where the library is emulated on a fake device,
and with `-m gpu` on a real one, which needs the library and CuPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from collage_cudnn.plugin import CudnnPlugin
from collage_testing.kit import DeviceMachine, check_plugin

from .cases import (
    attention,
    batch_norm,
    block,
    convolution,
    instance_norm,
    layer_norm,
    product,
    rms_norm,
)
from .checking import TOLERANCES
from .machine import emulated, largest

Make = Callable[[onnx_ir.DataType], onnx_ir.Model]
WIDE: dict[str, Any] = {"x": (2, 64, 14, 14), "kernel": (64, 64, 3, 3), "pads": [1] * 4}
"""Channels as tensor cores want them."""
FORMS: dict[str, Make] = {
    "convolution": lambda dtype: convolution("Relu", **WIDE, dtype=dtype),
    "residual": lambda dtype: convolution("Relu", **WIDE, residual=(2, 64, 14, 14), dtype=dtype),
    "SiLU": lambda dtype: convolution("Silu", **WIDE, dtype=dtype),
    "groups": lambda dtype: convolution(
        "Relu", x=(2, 64, 14, 14), kernel=(64, 8, 3, 3), group=8, pads=[1] * 4, dtype=dtype
    ),
    "depthwise": lambda dtype: convolution(
        "Relu6", x=(2, 64, 14, 14), kernel=(64, 1, 3, 3), group=64, pads=[1] * 4, dtype=dtype
    ),
    "stem": lambda dtype: convolution("Relu", x=(1, 3, 32, 32), kernel=(64, 3, 7, 7), strides=[2, 2], dtype=dtype),
    "one axis": lambda dtype: convolution("Relu", x=(2, 32, 40), kernel=(64, 32, 3), pads=[1, 1], dtype=dtype),
    "three axes": lambda dtype: convolution(
        "Relu", x=(1, 32, 6, 7, 8), kernel=(32, 32, 3, 3, 3), pads=[1] * 6, dtype=dtype
    ),
    "transposed": lambda dtype: convolution(
        operator="ConvTranspose", bias="", x=(2, 64, 7, 7), kernel=(64, 32, 4, 4), strides=[2, 2], dtype=dtype
    ),
    "product": lambda dtype: product("Gelu", a=(48, 64), b=(64, 40), bias=True, dtype=dtype),
    "attention": lambda dtype: attention("added", queries=64, keys=64, size=64, dtype=dtype),
    "causal attention of groups": lambda dtype: attention(
        "causal", queries=64, keys=64, size=64, key_heads=2, dtype=dtype
    ),
    "layer norm": layer_norm,
    "RMS norm": rms_norm,
    "instance norm": lambda dtype: instance_norm(2, 64, 14, 14, dtype=dtype),
    "batch norm": lambda dtype: batch_norm(2, 64, 14, 14, activation="Relu", dtype=dtype),
    "region": block,
}
DTYPES = ("FLOAT", "FLOAT16", "BFLOAT16")
WORKSPACE_BYTES = 1 << 26


def real() -> DeviceMachine:
    machine = DeviceMachine.real(Toolchain("cudnn", CudnnPlugin()))
    if isinstance(machine, Unsupported):
        pytest.skip(machine.reason)
    return machine


MACHINES = {"emulated": emulated, "real": real}


@pytest.fixture(params=["emulated", pytest.param("real", marks=pytest.mark.gpu("cupy", "cudnn"))])
def machine(request: pytest.FixtureRequest) -> DeviceMachine:
    return MACHINES[request.param]()


def combinations() -> Iterator[Any]:
    """On a GPU all of them; emulated a few, since every form is computed there by other tests."""
    for number, form in enumerate(("residual", "attention", "layer norm")):
        yield pytest.param(emulated, DTYPES[-1 - number % 2], form, id=f"emulated-{form}")
    for dtype in DTYPES:
        for form in FORMS:
            yield pytest.param(real, dtype, form, id=f"real-{dtype}-{form}", marks=pytest.mark.gpu("cupy", "cudnn"))


@pytest.mark.parametrize(("on", "dtype", "form"), list(combinations()))
def test_every_form_is_right_in_every_type_or_refused_with_a_reason(on: Any, dtype: str, form: str) -> None:
    machine = on()

    conformance = check_plugin(
        machine.toolchain,
        {form: FORMS[form](onnx_ir.DataType[dtype])},
        host=machine.host,
        open_device=machine.providers.open,
        tolerance=TOLERANCES[dtype],
        max_variants=4,
    )

    assert form in conformance.ran or conformance.refused[form]
    if dtype != "FLOAT":
        assert form in conformance.ran


@pytest.mark.parametrize("dtype", ["FLOAT", "FLOAT16"])
def test_variants_differ_and_a_graph_of_each_gives_the_same_bits_every_time(
    dtype: str, machine: DeviceMachine, tmp_path: Path
) -> None:
    model = FORMS["convolution"](onnx_ir.DataType[dtype])
    function, target = largest(model), machine.target()
    variants = machine.variants(function, target, tmp_path, workspace_limit_bytes=WORKSPACE_BYTES, max_variants=8)
    feeds = random_inputs(DataflowGraph(model), seed=0)
    right = evaluate(model, feeds).values[str(model.graph.outputs[0].name)].astype(np.float32)
    feeds = {spec.name: next(iter(feeds.values())) for spec in function.inputs}  # the one image, by its name inside

    assert len({each.variant for each in variants}) == len(variants) > 1
    assert {each.variant.partition("_")[0] for each in variants} == {"nchw", "nhwc"}
    for artifact in variants:
        assert artifact.workspace_bytes <= WORKSPACE_BYTES
        kernel = machine.bound(function, target, artifact, feeds)
        [eager] = kernel.run()
        limit = TOLERANCES[dtype] * np.abs(right).max()
        np.testing.assert_allclose(eager.astype(np.float32), right, atol=limit, rtol=0, err_msg=artifact.variant)
        kernel.check_replays(1000 if machine.is_real else 10)
