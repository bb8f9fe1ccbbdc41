"""Candidates against ONNX's reference, on the emulation."""

from __future__ import annotations

import onnx_ir

from collage_core.contract import Target
from collage_testing.kit.device_checks import check_candidates

from .machine import TARGET, emulated, proposals

TOLERANCES = {"FLOAT": 1e-5, "FLOAT16": 1e-2, "BFLOAT16": 5e-2}


def check_numbers(
    model: onnx_ir.Model, target: Target = TARGET, *, tolerance: float = 1e-5
) -> tuple[list[str], list[str]]:
    """Lowers every candidate of a model and compares.

    Returns:
        Their labels, and the calls that were made.
    """
    calls: list[str] = []
    found = proposals(model, target).candidates
    return check_candidates(emulated(calls), found, target, tolerance=tolerance), calls
