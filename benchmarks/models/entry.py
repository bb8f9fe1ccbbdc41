"""Registry entry of a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from benchmarks.models.weights import fill

Inputs = dict[str, np.ndarray[Any, Any]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One model of the suite.

    Attributes:
        name: Stem of the model's file.
        about: One line for `--list`.
        skeleton: Makes the model with declared weights.
        inputs: Makes inputs by name; their shapes bind the model's symbolic dimensions.
        rejected_by: Toolchain -> why it does not run the whole model.
        large: Whether building and running it takes more than a moment.
    """

    name: str
    about: str
    skeleton: Callable[[], onnx.ModelProto]
    inputs: Callable[[np.random.Generator], Inputs]
    rejected_by: dict[str, str] = dataclasses.field(default_factory=dict)
    large: bool = False

    def build(self, seed: int = 0) -> onnx.ModelProto:
        """Build the model with weights drawn from a seed."""
        return fill(self.skeleton(), seed)

    def make_inputs(self, seed: int = 0) -> Inputs:
        """Generate the inputs by name, drawn from a seed."""
        return self.inputs(np.random.default_rng(seed))


def images(name: str, *shape: int) -> Callable[[np.random.Generator], Inputs]:
    """Create a generator of one float32 input of zero mean and unit variance with detail at three scales.

    White noise is not representative of images: averaged over a few pixels, any two samples of it are alike, so the
    logits of a classifier hardly depend on the sample.

    Args:
        name: Name of the input.
        *shape: Shape of the input; the last two axes are the image.
    """

    def make(generator: np.random.Generator) -> Inputs:
        height, width = shape[-2:]
        result = np.zeros(shape, dtype=np.float32)
        for cells in (4, 16, max(height, width)):
            coarse = generator.standard_normal((*shape[:-2], min(cells, height), min(cells, width)), dtype=np.float32)
            rows = np.arange(height) * coarse.shape[-2] // height
            columns = np.arange(width) * coarse.shape[-1] // width
            result += coarse[..., rows[:, None], columns[None, :]]
        return {name: np.ascontiguousarray(result / np.float32(np.sqrt(3.0)))}

    return make
