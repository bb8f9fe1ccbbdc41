"""A package with kernels of Halide, from optimizing to running it where Halide is not."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx_ir
import pytest

import collage
from collage_testing import GraphBuilder
from collage_testing.kit.elsewhere import python


def upsampled(side: int = 24) -> onnx_ir.Model:
    """Five classes, four times as large, and the best of them."""
    g = GraphBuilder("upsampled")
    sizes = g.constant("s", np.array([1, 1, 4, 4], np.float32))
    scaled = g.op("Resize", g.op("Relu", g.input("x", 1, 5, side, side)), None, sizes, mode="linear")
    return g.model(g.op("ArgMax", scaled, axis=1))


SHARED = """
import os, sys, threading
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import collage

def tasks():
    return len(os.listdir("/proc/self/task"))

session = collage.load(sys.argv[1], threads=3)
values = np.load(sys.argv[2])
images = [values[name] for name in sorted(values.files)]
before = tasks()
expected = [session.run(None, {"x": image})[0].tobytes() for image in images]
pool = tasks() - before
most, together = [0], threading.Barrier(8)

def work(number):
    mine = session.clone()
    together.wait()  # all eight clones are there
    wrong = 0
    for turn in range(40):
        wrong += mine.run(None, {"x": images[number]})[0].tobytes() != expected[number]
        most[0] = max(most[0], tasks())
    return wrong

with ThreadPoolExecutor(8) as threads:
    wrong = sum(threads.map(work, range(8)))
print(wrong, pool, most[0] - before - pool)
"""
"""Prints how many results were wrong, the threads that first runs started, and those that came with eight clones."""


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


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted by Linux's procfs")
def test_eight_threads_with_a_clone_each_share_one_pool(tmp_path: Path) -> None:
    """Of three threads two are the pool's, whoever calls; the eight that came are those that call."""
    module = collage.optimize(upsampled(96), toolchains="halide", preset="quick", tuning_db="memory:", threads=3)
    module.save(tmp_path / "model.collage")
    random = np.random.default_rng(0)
    images = {str(n): random.standard_normal((1, 5, 96, 96)).astype(np.float32) for n in range(8)}
    np.savez(tmp_path / "values.npz", **images)  # type: ignore[arg-type]

    said = python("-c", SHARED, str(tmp_path / "model.collage"), str(tmp_path / "values.npz"))

    assert said.split() == ["0", "2", "8"]
