"""Uses of all that `collage` offers from Python, for the type checker: nothing here is run."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, assert_type

import numpy as np
import onnx
import onnx_ir

import collage
from collage.report.progress import LineProgress
from collage.runtime.bound_run import BoundRun


def models(path: Path, serialized: bytes, proto: onnx.ModelProto, read: onnx_ir.Model) -> None:
    """Models in every form."""
    for model in (os.fspath(path), path, serialized, proto, read):
        assert_type(collage.optimize(model), collage.Optimized)
        assert_type(collage.inspect(model, toolchains="onnxruntime", budget_s=5).kernel_nodes, int)


def options(path: Path, feeds: Mapping[str, Any]) -> None:
    """Options of every kind; a misspelt one, and one of another type, are errors."""
    collage.optimize(
        path,
        toolchains=["onnxruntime", "openvino"],
        exclude=["halide"],
        preset="quick",
        search="exact",
        budget_s=90.0,
        threads=2,
        max_error=1e-2,
        calibration=[feeds],
        pins=("conv_*=openvino",),
        deterministic=True,
        progress=True,
    )
    collage.optimize(path, inputs=feeds, tuning_db="memory:", progress=LineProgress(sys.stderr))
    collage.optimize(path, metric=lambda outputs, labels: 0.0, max_drop=0.5, labelled=path)
    collage.optimize(path, presett="quick")  # type: ignore[call-overload]
    collage.optimize(path, threads="2")  # type: ignore[call-overload]
    collage.bench(path, round=3)  # type: ignore[call-arg]
    collage.load(path, thread=2)  # type: ignore[call-arg]


def shapes(path: Path, feeds: Mapping[str, Any]) -> None:
    """Several shapes."""
    sizes = collage.SizeRange(1, 512, 90)
    assert_type(collage.optimize(path, input_shapes={"x": (1, sizes)}), collage.Optimized)
    assert_type(collage.optimize(path, input_shapes={"x": (1, sizes)}, buckets=3), collage.OptimizedShapes)
    assert_type(collage.optimize(path, input_shapes=[{"x": (1, 3)}, {"x": (2, 3)}]), collage.OptimizedShapes)
    assert_type(collage.optimize(path, sample_feeds=[feeds], buckets=2), collage.OptimizedShapes)
    assert_type(collage.optimize(path, sample_feeds=[feeds]), collage.Optimized)


def results(path: Path, optimized: collage.Optimized | collage.OptimizedShapes) -> None:
    """What becomes of a plan."""
    optimized.save(path)
    print(optimized, collage.explain(optimized), collage.explain(path, everything=True))
    report = collage.bench(path, compare=True, rounds=3, duration_s=0.5, toolchains=["openvino"])
    assert_type(report.comparison.best_single, str | None)
    assert_type(collage.compare(path, path, inputs={"x": np.zeros(3)}).passed, bool)


def sessions(path: Path, feeds: Mapping[str, Any]) -> None:
    """What runs."""
    session = collage.load(path, threads=2, verify=feeds, strict=True)
    assert_type(session, collage.Session)
    assert_type(session.run(None, feeds), list[Any])
    session.run(["y"], feeds, run_options=None)
    assert_type(session.bind(feeds), BoundRun)
    assert_type(session.clone(), collage.Session)
    print(session, session.get_inputs()[0].shape, session.report())
