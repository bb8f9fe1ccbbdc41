"""Candidates against ONNX's reference, on the emulation."""

from __future__ import annotations

import onnx_ir

from collage.reference import evaluate
from collage.setup.random_inputs import random_inputs
from collage_core.contract import Target
from collage_core.ir.graph.dataflow import DataflowGraph

from .emulator import Emulator
from .machine import TARGET, emulated, proposals

TOLERANCES = {"FLOAT": 1e-4, "FLOAT16": 1e-2, "BFLOAT16": 5e-2}


def check_numbers(
    model: onnx_ir.Model, target: Target = TARGET, *, tolerance: float = 1e-4, regions: bool = False
) -> tuple[list[str], Emulator]:
    """Lowers every candidate of a model in both layouts, and compares.

    Returns:
        Their labels, and the library with what it was asked.
    """
    graph, emulator = DataflowGraph(model), Emulator()
    values = evaluate(model, random_inputs(graph, seed=0)).values
    found = proposals(graph, target, regions=regions)
    sub_graphs = [candidate.sub_graph for candidate in found.candidates]
    emulated(emulator).check(sub_graphs, values, target, tolerance=tolerance, max_variants=2)
    return [candidate.sub_graph.label for candidate in found.candidates], emulator
