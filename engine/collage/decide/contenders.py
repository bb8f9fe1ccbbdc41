"""Contenders of a comparison: packages as they are."""

from __future__ import annotations

from pathlib import Path

import onnx_ir
from onnx_ir.passes.common import InlinePass

from collage.build.package_contender import PACKAGE_CALL
from collage.measure.contenders.interleaved import Contender
from collage.runtime import load_package

PACKAGE_SUFFIX = ".collage"


def is_package(path: Path) -> bool:
    """Whether a file is a package rather than a model, going by its name."""
    return path.suffix == PACKAGE_SUFFIX


def model_of(path: Path) -> Path | onnx_ir.Model:
    """The model a path stands for: itself, or what a package was made from, prepared.

    Raises:
        PackageError: If a package cannot be read.
    """
    if not is_package(path):
        return path
    model = load_package(path).model.clone()
    InlinePass()(model)
    return model


def package_contender(name: str, path: Path, inputs: Path, threads: int, *, warmup: int = 0) -> Contender:
    """A package, to be timed.

    Args:
        name: Unique among the contenders.
        path: The package.
        inputs: Document of `write_values` with the model's inputs.
        threads: CPU threads of each kernel.
        warmup: Untimed runs before its first turn.
    """
    return Contender(
        name=name,
        call=PACKAGE_CALL,
        arguments={"package": str(path), "inputs": str(inputs), "threads": threads, "warmup": warmup},
    )
