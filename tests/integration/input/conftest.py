"""Something good for everything a command takes, to be spoilt by tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from collage_core.registry import Registry
from tests.integration.input.packages import packaged
from tests.integration.input.refusals import Desk

GOOD = """
    <ir_version: 10, opset_import: ["" : 21]>
    good (float[2, 3] x, int64[2] n) => (float[2, 3] y, int64[2] m)
    <float[2, 3] w = {1, 2, 3, 4, 5, 6}> { a = Mul(x, w) y = Neg(a) m = Add(n, n) }"""
RESULTS = ("result.json", "result.collage", "out.npz", "trace.json")
BEFORE = b"of an earlier day"


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """Made once; tests get copies."""
    desk = Desk(tmp_path_factory.mktemp("good"))
    onnx.save(onnx.parser.parse_model(GOOD), desk.model)
    onnx.save(onnx.parser.parse_model(GOOD.replace("float[2, 3] x", "float[batch, 3] x")), desk.free)
    packaged(desk.model, desk.package, "reference")
    np.savez(desk.inputs, x=np.ones((2, 3), np.float32), n=np.array([1, 2]))
    desk.result("").mkdir()
    for name in RESULTS:
        desk.result(name).write_bytes(BEFORE)
    return desk


@pytest.fixture
def desk(good: Desk, tmp_path: Path) -> Desk:
    return Desk(Path(shutil.copytree(good.folder, tmp_path / "desk")))


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch, installed: Registry) -> None:
    """The toolchains are those installed, looked for once: a look takes longer than most refusals."""
    monkeypatch.setattr(Registry, "discover", lambda: installed)


@pytest.fixture(scope="session")
def installed() -> Registry:
    return Registry.discover()


@pytest.fixture
def silent(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Nothing is written behind the command's back, as C++ would."""
    yield
    assert capfd.readouterr() == ("", "")
