"""What is tried on a device: by `test_gpu` on one that is there, by `test_running` on a fake one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
import pytest

from collage.reference import evaluate
from collage.reference.discrepancy import relative_error
from collage.runtime import Executable, loader
from collage.runtime.package import load_package, save_package
from collage.runtime.session import Session
from collage.setup.inputs.random_arrays import random_inputs
from collage_core.contract import KernelFunction, Target
from collage_core.fusion import SubGraph, kernel_function
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.operators.quantising import Int8Product, Range, quantisable
from collage_core.passes.call_sites import call_sites
from collage_core.registry import Registry
from collage_testing import GraphBuilder, mnist
from collage_testing.kit import DeviceMachine
from tests.engine.runtime.fakes import split

from .machine import whole

D = onnx_ir.DataType
TOLERANCES = {D.FLOAT: 1e-4, D.FLOAT16: 1e-2, D.BFLOAT16: 5e-2}


def chain(dtype: D) -> onnx_ir.Model:
    """A product with what follows it, a convolution and a normalisation: all in one type, with two outputs."""
    g = GraphBuilder("chain")

    def typed(value: onnx_ir.Value) -> onnx_ir.Value:
        return value if dtype is D.FLOAT else g.op("Cast", value, to=int(dtype))

    x = g.input("x", 2, 4, 8, 8, dtype=dtype)
    value = g.op("Conv", x, typed(g.weight("k", 8, 4, 3, 3)), pads=[1, 1, 1, 1])
    kept = g.op("Relu", value)
    value = g.op("Softmax", g.op("MatMul", kept, typed(g.weight("w", 8, 8))), axis=-1)
    return g.model(value, kept)


MODELS: Mapping[str, onnx_ir.Model] = {"mnist": mnist(), **{dtype.name: chain(dtype) for dtype in TOLERANCES}}


def numbers_are_right(machine: DeviceMachine, folder: Path, model: onnx_ir.Model) -> None:
    """Every variant of the whole model, against ONNX's reference."""
    function, target = whole(model), machine.target()
    feeds = random_inputs(DataflowGraph(model), seed=0)
    right = evaluate(model, feeds).values
    variants = machine.variants(function, target, folder)
    assert len({each.variant for each in variants}) == len(variants) == 2
    for artifact in variants:
        found = machine.bound(function, target, artifact, feeds).run()
        for spec, array in zip(function.outputs, found, strict=True):
            assert spec.dtype is not None
            error = relative_error(array, right[spec.name])
            assert error < TOLERANCES[spec.dtype], (artifact.variant, spec.name)


def a_graph_gives_the_same_bits(machine: DeviceMachine, folder: Path, model: onnx_ir.Model, replays: int) -> None:
    """After one call that warms it up, a call is captured without running, and each launch gives what it gave."""
    function, target = whole(model), machine.target()
    [artifact] = machine.variants(function, target, folder, effort=1)
    assert artifact.deterministic
    machine.bound(function, target, artifact, random_inputs(DataflowGraph(model), seed=0)).check_replays(replays)


def a_saved_plan_is_one_graph(machine: DeviceMachine, folder: Path) -> None:
    """Two engines one after the other: saved, loaded, run four times. All runs after the second are one launch."""
    target = machine.target()
    model = mnist()
    graph = DataflowGraph(model)
    names = [graph.names[index] for index in range(len(graph.names)) if not graph.is_host(index)]
    halves = (names[: len(names) // 2], names[len(names) // 2 :])
    partitioned = split(model, {half[0]: target for half in halves}, halves)
    sites = {site.name: site for site in call_sites(partitioned)}
    artifacts = {
        name: machine.variants(site.kernel_function(), target, folder, effort=1)[0] for name, site in sites.items()
    }
    targets = dict.fromkeys(sites, target)
    path = folder / "two.collage"
    save_package(path, partitioned, artifacts, targets, {}, threads=1, model_name="two", model_sha256="")

    package = load_package(path)
    executable = Executable.build(
        package.plan.model,
        package.plan.artifacts,
        package.plan.targets,
        loader(Registry.of(machine.toolchain)),
        threads=1,
        weights=package.weights,
        host=machine.host,
        providers=machine.providers,
    )
    feeds = random_inputs(graph, seed=3)
    right = evaluate(model, feeds).values
    session = Session(executable)
    for _ in range(4):
        for value, found in zip(executable.outputs, session.run(None, feeds), strict=True):
            assert relative_error(found, right[str(value.name)]) < TOLERANCES[D.FLOAT]

    [launch] = session.launches
    assert (launch.mode, launch.reason, len(launch.steps)) == ("graph", "", 2)


def in_precision(machine: DeviceMachine, precision: str) -> Target | None:
    """The target of a lower precision; None if there is none."""
    return next((target for target in machine.targets if target.option("precision") == precision), None)


def error_of_a_product(machine: DeviceMachine, target: Target, folder: Path) -> float:
    """Error of one product of float32, relative to its largest element, against float64."""
    g = GraphBuilder("product")
    model = g.model(g.op("MatMul", g.input("x", 64, 256), g.input("z", 256, 64)))
    feeds = random_inputs(DataflowGraph(model), seed=0)
    right = feeds["x"].astype(np.float64) @ feeds["z"].astype(np.float64)
    return float(np.abs(ran(machine, target, model, feeds, folder) - right).max() / np.abs(right).max())


def model_error(machine: DeviceMachine, target: Target, model: onnx_ir.Model, folder: Path) -> float:
    """Error of the only output of a model, against ONNX's reference."""
    feeds = random_inputs(DataflowGraph(model), seed=0)
    [output] = model.graph.outputs
    return relative_error(ran(machine, target, model, feeds, folder), evaluate(model, feeds).values[str(output.name)])


def ran(
    machine: DeviceMachine, target: Target, model: onnx_ir.Model, feeds: Mapping[str, Any], folder: Path
) -> np.ndarray[Any, Any]:
    """The only output of a model, run whole."""
    function = whole(model)
    [artifact] = machine.variants(function, target, folder, effort=1)
    [found] = machine.bound(function, target, artifact, feeds).run()
    return found


EPSILONS = {"fp16": 2.0**-10, "bf16": 2.0**-7}
"""Of the types: float16 has 10 bits of fraction, bfloat16 7."""


def a_product_is_rounded_to_its_precision(machine: DeviceMachine, precision: str, folder: Path) -> None:
    """An error is there, and no larger than rounding two factors and their product makes it; a bias is exact."""
    rounded = in_precision(machine, precision)
    if rounded is None:
        pytest.skip(f"this GPU has no tensor cores for {precision}")
    epsilon = EPSILONS[precision]

    # three roundings, each of half an epsilon at most; those of the factors average out over the sum
    assert epsilon / 100 < error_of_a_product(machine, rounded, folder) < 2 * epsilon
    g = GraphBuilder("biased")
    zeros = g.constant("zeros", np.zeros((8, 8), np.float32))
    model = g.model(g.op("Add", g.op("MatMul", g.input("x", 4, 8), zeros), g.weight("b", 8)))
    assert model_error(machine, rounded, model, folder) == 0.0  # of the sum of 0 and a number that the type has not


def quantised(model: onnx_ir.Model, *, symmetric: bool = True, leave: int = 0) -> KernelFunction:
    """The whole model with its products in 8-bit integers, but for some at the end; activations from -4 to 5."""
    graph = DataflowGraph(model)
    span = Range(-4.0, 5.0).in_form(symmetric=symmetric)
    products = [Int8Product(index, span) for index, node in enumerate(graph.nodes) if quantisable(node) is not None]
    chosen = tuple(products[: len(products) - leave])
    return kernel_function(SubGraph(graph, graph.all_mask, int8=chosen), "quantised")


def products() -> onnx_ir.Model:
    """A product of each kind that can be quantised: convolutions dense, depthwise and of odd sizes; and the rest."""
    g = GraphBuilder("products")
    image = g.op("Conv", g.input("x", 1, 3, 16, 16), g.weight("k", 16, 3, 3, 3), g.weight("b", 16), pads=[1, 1, 1, 1])
    image = g.op("Conv", g.op("Relu", image), g.weight("depthwise", 16, 1, 3, 3), group=16)
    image = g.op("Conv", image, g.weight("odd", 7, 16, 1, 1), strides=[2, 2])
    rows = g.op("Reshape", image, g.constant("rows", np.array([7, 49])))
    rows = g.op("Gemm", rows, g.weight("w", 9, 49), g.weight("c", 9), transB=1, alpha=0.5, beta=2.0)
    rows = g.op("Tanh", g.op("MatMul", rows, g.weight("square", 9, 8)))
    return g.model(g.op("MatMul", g.op("Reshape", rows, g.constant("stack", np.array([1, 7, 8]))), g.weight("v", 8, 5)))


def products_are_those_of_integers(machine: DeviceMachine, precision: str, folder: Path) -> None:
    """What an engine of a quantised function computes is what ONNX's reference does of the pairs in it.

    Sums of integers are exact, so next to nothing is left to differ but the side to which a number half way between two
    integers is rounded; with float16 besides, what that rounds.
    """
    target = in_precision(machine, precision)
    if target is None:
        pytest.skip("this GPU multiplies no 8-bit integers")
    model = products()
    feeds = random_inputs(DataflowGraph(model), seed=0)
    [output] = [str(value.name) for value in model.graph.outputs]
    function = quantised(model, leave=1 if target.rounded_precision else 0)
    [artifact] = machine.variants(function, target, folder, effort=1)
    [found] = machine.bound(function, target, artifact, feeds).run()

    assert relative_error(found, evaluate(function.model, feeds).values[output]) < 1e-2
    assert relative_error(found, evaluate(model, feeds).values[output]) > 1e-3, "something was rounded"
