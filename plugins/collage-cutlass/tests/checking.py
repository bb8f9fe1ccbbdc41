"""Candidates against ONNX's reference, on the emulation."""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx_ir

from collage.reference import evaluate
from collage.setup.random_inputs import random_inputs
from collage_core.contract import Target, Unsupported
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.registry import Toolchain
from collage_testing.kit import FakeDevice
from collage_testing.kit.kernel_check import KernelCheck

from .emulator import FakeCompiler
from .machine import HOST, TARGET, plugin_over, proposals

TOLERANCES = {"FLOAT": 1e-5, "FLOAT16": 1e-2, "BFLOAT16": 5e-2}


def check_numbers(
    model: onnx_ir.Model, target: Target = TARGET, *, tolerance: float = 1e-5
) -> tuple[list[str], list[str]]:
    """Lowers every candidate of a model and compares.

    Returns:
        Their labels, and the calls that were made.
    """
    graph = DataflowGraph(model)
    calls: list[str] = []
    values = evaluate(model, random_inputs(graph, seed=0)).values
    found = proposals(graph, target)
    with tempfile.TemporaryDirectory() as folder:
        check = KernelCheck(
            Toolchain("cutlass", plugin_over(FakeCompiler(), calls)),
            target,
            Path(folder),
            threads=1,
            tolerance=tolerance,
            max_variants=1,
            host=HOST,
            device=FakeDevice("cuda:0").open("cuda:0"),
        )
        for candidate in found.candidates:
            outcome = check.run(candidate.sub_graph, values)
            assert not isinstance(outcome, Unsupported), outcome.reason
            assert outcome == [], candidate.sub_graph.names
    return [candidate.sub_graph.label for candidate in found.candidates], calls
