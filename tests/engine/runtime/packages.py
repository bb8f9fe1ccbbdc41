"""Packages of a small model by a mock toolchain, and what somebody with a ZIP tool does to them."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from collage.devices.this_host import usable_cpus
from collage.runtime.package import save_package
from collage_core.contract import Supported, Target
from collage_core.hookspecs import hookimpl
from collage_core.registry import Registry, Toolchain
from tests.engine.runtime.mocks import MOCK, ExecutingMock, partition

Parse = Callable[[str], ir.Model]

X = np.random.default_rng(0).normal(size=(2, 32)).astype(np.float32)


def three_products(parsed: Parse) -> ir.Model:
    """Two products with one large weight, one with another, and a small bias."""
    made = parsed("""g (float[2,32] x, float[32,32] w, float[32,32] v) => (float[2,32] y) <float one = {1.0}>
    { a = MatMul(x, w) b = MatMul(a, w) c = MatMul(b, v) y = Add(c, one) }""")
    rng = np.random.default_rng(1)
    for value in list(made.graph.inputs)[1:]:
        made.graph.inputs.remove(value)
        value.const_value = ir.tensor(rng.normal(size=(32, 32)).astype(np.float32), name=value.name)
        made.graph.register_initializer(value)
    return made


def of_batch(parsed: Parse, batch: int) -> ir.Model:
    """`three_products` of other rows, with the same weights."""
    model = three_products(parsed)
    for value in (*model.graph.inputs, *(output for node in model.graph for output in node.outputs)):
        value.shape = ir.Shape([batch, 32])
    return model


def save(path: Path, model: ir.Model, toolchain: ExecutingMock | None = None, **options: Any) -> Path:
    partitioned = partition(model)
    artifacts = (toolchain or ExecutingMock(embed=False)).lower_all(partitioned)
    settings = {"record": {"decision": "so"}, "threads": 3, "model_name": "m.onnx", "model_sha256": "ab", **options}
    save_package(path, partitioned, artifacts, dict.fromkeys(artifacts, MOCK), **settings)
    return path


class Plugin:
    """The mock toolchain as a plugin."""

    def __init__(self, toolchain: ExecutingMock | None = None) -> None:
        self.toolchain = toolchain or ExecutingMock()

    @hookimpl
    def collage_targets(self) -> list[Target]:
        return [MOCK]

    @hookimpl
    def collage_check_data(self) -> Supported:
        return Supported()

    @hookimpl
    def collage_load(self, target: Any, artifact: Any, run: Any) -> Any:
        assert run.threads == min(3, usable_cpus())
        return self.toolchain.load(target, artifact, run)


def registry(toolchain: ExecutingMock | None = None) -> Registry:
    return Registry.of(Toolchain("mock", Plugin(toolchain)))


def rewrite(path: Path, change: Callable[[dict[str, bytes]], None], compression: int = zipfile.ZIP_STORED) -> None:
    """Change a package as somebody with a ZIP tool would."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    change(entries)
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)


def changed_manifest(changes: Mapping[str, Any]) -> Callable[[dict[str, bytes]], None]:
    def change(entries: dict[str, bytes]) -> None:
        entries["manifest.json"] = json.dumps(json.loads(entries["manifest.json"]) | changes).encode()

    return change
