"""Kernel functions as toolchains get them: read from what another process wrote."""

from __future__ import annotations

import dataclasses

from collage_core.contract import KernelFunction
from collage_core.ir.io.model_io import model_from_bytes, model_to_bytes


def received(function: KernelFunction) -> KernelFunction:
    """Return a function as a worker reads it, without whatever a file does not keep."""
    return dataclasses.replace(function, model=model_from_bytes(model_to_bytes(function.model)))
