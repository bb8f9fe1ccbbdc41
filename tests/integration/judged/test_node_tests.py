"""What ONNX's node tests accept of two runtimes, the judge accepts, too."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx.backend.test.loader import load_model_tests

from collage.build.verifying.output_check import ValueJudge, needed
from collage.reference import evaluate
from collage_core.ir.graph.dataflow import DataflowGraph
from tests.integration.judged.runtimes import LIMIT, RUNTIMES

pytestmark = [pytest.mark.plugins, pytest.mark.slow]


def accepted_by_onnx(actual: Any, expected: Any, case: Any) -> bool:
    """Return whether ONNX's runner would accept a tensor."""
    if not isinstance(expected, np.ndarray) or expected.dtype.kind in "OUSV":
        return False  # not compared here
    if np.shape(actual) != expected.shape or np.asarray(actual).dtype != expected.dtype:
        return False
    return bool(np.allclose(actual, expected, rtol=case.rtol, atol=case.atol, equal_nan=True))


def judged(case: Any) -> Iterator[tuple[str, str]]:
    """Yield each output that ONNX accepts, and what the judge says is wrong with it."""
    model = ir.serde.deserialize_model(case.model)
    names = [str(value.name) for value in model.graph.outputs if value.name]
    for inputs, outputs in case.data_sets or ():
        feeds = {str(value.name): given for value, given in zip(model.graph.inputs, inputs, strict=False)}
        try:
            graph = DataflowGraph(model)
            run = evaluate(graph.model, feeds, keep=needed(graph, names).__contains__, conditioned=True)
        except Exception:  # what the reference cannot compute, or is no graph of tensors
            continue
        judge = ValueJudge(graph, run, correct=True, relative=LIMIT, mismatched=LIMIT)
        for runtime, compute in RUNTIMES.items():
            try:
                made = compute(case.model.SerializeToString(), feeds)
            except Exception:  # each runtime refuses some in its own way
                continue
            for name, actual, expected in zip(names, made, outputs, strict=False):
                if accepted_by_onnx(actual, expected, case):
                    yield f"{case.name}, {runtime}, {name}", judge.verdict(name, actual, as_output=True).problem


def test_the_judge_refuses_nothing_that_onnx_accepts() -> None:
    accepted = 0
    refused: dict[str, str] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in load_model_tests(kind="node"):
            found = list(judged(case))
            accepted += len(found)
            refused |= {where: problem for where, problem in found if problem}

    assert refused == {}
    assert accepted > 3000
