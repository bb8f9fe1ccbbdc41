"""A package with kernels of Halide, from optimizing to running it where Halide is not."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx_ir
import pytest

import collage
from collage_testing import GraphBuilder
from collage_testing.kit.host_kernels import python


def upsampled() -> onnx_ir.Model:
    """Five classes, four times as large, and the best of them."""
    g = GraphBuilder("upsampled")
    sizes = g.constant("s", np.array([1, 1, 4, 4], np.float32))
    scaled = g.op("Resize", g.op("Relu", g.input("x", 1, 5, 24, 24)), None, sizes, mode="linear")
    return g.model(g.op("ArgMax", scaled, axis=1))


@pytest.mark.slow
def test_a_package_runs_in_a_process_with_neither_halide_nor_a_linker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = collage.optimize(upsampled(), toolchains="halide", preset="quick", tuning_db="memory:")
    package, values = tmp_path / "model.collage", tmp_path / "values.npz"
    module.save(package)
    x = np.random.default_rng(0).standard_normal((1, 5, 24, 24)).astype(np.float32)
    [right] = module.session().run(None, {"x": x})
    np.savez(values, x=x, right=right)

    (tmp_path / "halide.py").write_text("raise ImportError('there is none')\n", encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("PATH", "")
    python(
        "-W",
        "error",
        "-c",
        "import sys, numpy as np, collage\n"
        "values = np.load(sys.argv[2])\n"
        "[found] = collage.load(sys.argv[1], strict=True).run(None, {'x': values['x']})\n"
        "assert np.array_equal(found, values['right'])\n",
        str(package),
        str(values),
    )
