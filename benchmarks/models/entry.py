"""What the registry knows of a model."""

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
        name: Stem of the file it is written to.
        about: One line for `--list`.
        skeleton: Makes the model with declared weights.
        inputs: Makes inputs by name; their shapes are the ones to bind where the model's own are symbolic.
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
        """The model with weights of this seed."""
        return fill(self.skeleton(), seed)

    def make_inputs(self, seed: int = 0) -> Inputs:
        """Inputs of this seed, by name."""
        return self.inputs(np.random.default_rng(seed))


def images(name: str, *shape: int) -> Callable[[np.random.Generator], Inputs]:
    """Makes one float32 input of zero mean and unit variance with detail at three scales.

    White noise is no picture: averaged over a few pixels any two samples of it are alike, so that the logits of a
    classifier hardly depend on which it sees.

    Args:
        name: Of the input.
        *shape: Its shape; the last two axes are the image.
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
