"""Candidates against ONNX's reference, on the emulation."""

from __future__ import annotations

import onnx_ir

from collage_core.contract import Target
from collage_testing.kit.device_checks import check_candidates

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
    emulator, found = Emulator(), proposals(model, target, regions=regions).candidates
    return check_candidates(emulated(emulator), found, target, tolerance=tolerance, max_variants=2), emulator
