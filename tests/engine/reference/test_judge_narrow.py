"""Kernels that compute in 16 bits pass where they round as such kernels do, and not where they are wrong."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir
import pytest

from collage.reference import evaluate
from collage.reference.judge import Judge, Verdict

RANDOM = np.random.default_rng(5)
NORM = "y = LayerNormalization(x, scale, bias)"
TYPES = pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])


def given(dtype: Any) -> dict[str, Any]:
    """Inputs of a normalisation whose first column is far larger than the others, as those of trained models are."""
    scale = np.ones(256)
    scale[0] = 40.0
    return {
        "x": RANDOM.standard_normal((64, 256)).astype(dtype),
        "scale": scale.astype(dtype),
        "bias": RANDOM.standard_normal(256).astype(dtype),
    }


def rounded_often(dtype: Any, inputs: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Compute in the steps of the standard's own function, and round after each; the reference rounds at the end."""
    x, scale, bias = (inputs[name] for name in ("x", "scale", "bias"))
    wide = x.astype(np.float64)
    apart = wide - wide.mean(axis=-1, keepdims=True)
    normalised = (apart / np.sqrt((apart**2).mean(axis=-1, keepdims=True) + 1e-5)).astype(dtype)
    made: np.ndarray[Any, Any] = (normalised * scale) + bias
    return made


def judged(inputs: dict[str, Any], actual: Any, relative: float = 1e-3) -> Verdict:
    kind = onnx_ir.DataType.from_numpy(actual.dtype).name.lower()
    listed = ", ".join(f"{kind}[{','.join(map(str, each.shape))}] {name}" for name, each in inputs.items())
    text = f'<ir_version: 10, opset_import: ["" : 21]> g ({listed}) => ({kind}[64,256] y) {{ {NORM} }}'
    model = onnx_ir.from_onnx_text(text)
    run = evaluate(model, inputs, conditioned=True)
    judge = Judge.over(model.graph, run, correct=True, relative=relative, mismatched=1e-3)
    return judge.verdict("y", actual, run.values["y"], run.conditioning["y"])


@TYPES
def test_a_rounding_more_or_less_is_right(dtype: Any) -> None:
    inputs = given(dtype)

    verdict = judged(inputs, rounded_often(dtype, inputs))

    assert verdict.error > 1e-3, "more than is usual in 32 bits"
    assert not verdict.problem


@TYPES
def test_what_no_rounding_explains_is_wrong(dtype: Any) -> None:
    inputs = given(dtype)
    right = rounded_often(dtype, inputs).astype(np.float64)

    for wrong in (right * 1.2, right[:, ::-1], np.zeros_like(right), right + 0.3):
        assert judged(inputs, wrong.astype(dtype)).problem


@TYPES
def test_whoever_asks_for_less_than_is_usual_gets_it(dtype: Any) -> None:
    inputs = given(dtype)

    assert "allowed 0.0001" in judged(inputs, rounded_often(dtype, inputs), relative=1e-4).problem
