"""Weights that kernels want in another type: converted once, kept once, and told from others."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from collage.errors import PackageDamagedError
from collage.reference import evaluate
from collage.runtime import Executable, loader
from collage.runtime.package import load_package, save_package
from collage.runtime.session import Session
from collage_core.contract import (
    Artifact,
    KernelFunction,
    Target,
    Weights,
    content_hash,
    converted,
    in_precision,
    weight_named,
)
from collage_core.passes.call_sites import call_sites
from collage_core.registry import Registry, Toolchain
from collage_testing import GraphBuilder
from collage_testing.kit import ExecutingMock, FakeDevice, fake_providers
from collage_testing.kit.fake_kernel import lower_for_fake
from tests.engine.runtime.fakes import on, split

FP16 = on("fake:0", precision="fp16")
NODES = ("matmul_0", "relu_0", "matmul_1")


def twice() -> ir.Model:
    """Two products with one weight, too large to stay inside of the model."""
    g = GraphBuilder()
    w = g.weight("w", 32, 32)
    return g.model(g.op("MatMul", g.op("Relu", g.op("MatMul", g.input("x", 5, 32), w)), w))


def narrow(function: KernelFunction) -> KernelFunction:
    found = in_precision(function, ir.DataType.FLOAT16)
    assert isinstance(found, KernelFunction), found
    return found


def artifacts(model: ir.Model) -> dict[str, Artifact]:
    return {
        site.name: next(lower_for_fake(narrow(site.kernel_function()), capturable=True)) for site in call_sites(model)
    }


def on_device(model: ir.Model) -> dict[str, Target]:
    return {site.name: FP16 for site in call_sites(model)}


Array = np.ndarray[Any, Any]


def expected(model: ir.Model, x: Array) -> Array:
    w = model.graph.initializers["w"].const_value.numpy().astype(np.float16).astype(np.float32)  # type: ignore[union-attr]
    hidden = np.maximum(x.astype(np.float16).astype(np.float32) @ w, 0)
    result: Array = hidden.astype(np.float16).astype(np.float32) @ w
    return result


def session(model: ir.Model, device: FakeDevice) -> Session:
    made = split(model, dict.fromkeys(NODES, FP16))
    toolchain = Toolchain("mock", ExecutingMock("mock", costs_us={}))
    return Session(
        Executable.build(
            made,
            artifacts(made),
            on_device(made),
            loader(Registry.of(toolchain)),
            threads=1,
            providers=fake_providers(device),
        )
    )


def test_kernels_and_clones_share_one_conversion_on_the_device() -> None:
    model, device = twice(), FakeDevice()
    x = np.random.default_rng(1).normal(size=(5, 32)).astype(np.float32)

    made = session(model, device)
    clone = made.clone()

    assert len(device.kinds("write")) == 1  # by two kernels of either
    device.log.clear()
    for each in (made, clone):
        for _ in range(3):
            np.testing.assert_allclose(each.run(None, {"x": x})[0], expected(model, x), rtol=0, atol=1e-4)
    assert not [entry for entry in device.log if str(32 * 32 * 2) in str(entry)]  # nothing of its size in any run


def test_kernels_of_the_cpu_share_one_array_as_long_as_one_of_them_lives() -> None:
    held = {"h": np.linspace(-1, 1, 64, dtype=np.float32)}
    weights = Weights(held)
    key = converted("h", ir.DataType.BFLOAT16)

    first = weights[key]

    assert weights[key] is first
    assert weights["h"] is held["h"]
    assert first.dtype == ir.DataType.BFLOAT16.numpy()
    assert not first.flags.writeable
    np.testing.assert_allclose(first.astype(np.float32), held["h"], rtol=2**-8)
    assert (key in weights, "other:FLOAT16" in weights) == (True, False)


def test_a_package_holds_the_weight_once_and_as_the_model_has_it(tmp_path: Path) -> None:
    model = split(twice(), dict.fromkeys(NODES, FP16))
    path = tmp_path / "m.collage"

    save_package(path, model, artifacts(model), on_device(model), None, threads=1, model_name="m", model_sha256="")

    package = load_package(path)
    kept = {key: (weight.dtype, weight.shape) for key, weight in package.manifest.weights.items()}
    w = model.graph.initializers["w"].const_value
    assert w is not None
    assert kept == {content_hash(w.numpy()): ("FLOAT", (32, 32))}
    wanted = {key for artifact in package.plan.artifacts.values() for key in artifact.constants.values()}
    assert wanted == {converted(content_hash(w.numpy()), ir.DataType.FLOAT16)}


def test_a_package_that_wants_a_type_nobody_converts_to_is_damaged(tmp_path: Path) -> None:
    model = split(twice(), dict.fromkeys(NODES, FP16))
    path, other = tmp_path / "m.collage", tmp_path / "other.collage"
    save_package(path, model, artifacts(model), on_device(model), None, threads=1, model_name="m", model_sha256="")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(other, "w") as new:
        for entry in old.infolist():
            data = old.read(entry)
            if entry.filename == "manifest.json":
                data = json.dumps(json.loads(data)).replace(":FLOAT16", ":INT4").encode()
            new.writestr(entry, data)

    with pytest.raises(PackageDamagedError, match="weights are converted to FLOAT16 or BFLOAT16, not to 'INT4'"):
        load_package(other)


@pytest.mark.parametrize("key", ["h:FLOAT8E4M3FN", "h:", "h:float16"])
def test_only_types_of_the_contract_are_wanted(key: str) -> None:
    with pytest.raises(ValueError, match="weights are converted to"):
        weight_named(key)


def test_what_is_narrowed_computes_what_its_model_says() -> None:
    model = twice()
    [a, *_] = call_sites(split(model, dict.fromkeys(NODES, FP16)))
    function = narrow(a.kernel_function())
    x = np.random.default_rng(2).normal(size=(5, 32)).astype(np.float32)

    [name] = [spec.name for spec in function.outputs]
    got = evaluate(function.model, {function.inputs[0].name: x}).values[name]

    w = model.graph.initializers["w"].const_value
    assert w is not None
    halves = [each.astype(np.float16).astype(np.float64) for each in (x, w.numpy())]
    np.testing.assert_allclose(got, halves[0] @ halves[1], rtol=0, atol=1e-5)
