"""Weights that cuDNN needs in another form than the model has: derived once, when a kernel is loaded."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from collage_core.contract import Json


class Recipe(enum.Enum):
    """How a weight is derived from the model's constants."""

    AS_IS = "as_is"
    """The constant itself, possibly with its axes in another order in memory."""
    BATCH_FACTOR = "batch_factor"
    """From scale, bias, mean and variance: scale / sqrt(variance + number)."""
    BATCH_SHIFT = "batch_shift"
    """From the same: bias - mean * scale / sqrt(variance + number)."""
    ZEROS = "zeros"
    """A bias that cuDNN requires and the model lacks."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """A weight in the form a graph needs.

    Attributes:
        recipe: How it is derived.
        constants: Names of the constants it is derived from.
        dims: Extents in the graph.
        strides: Strides in the graph.
        dtype: NumPy name of its type.
        number: Numeric parameter of the recipe.
    """

    recipe: Recipe
    constants: tuple[str, ...]
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    number: float = 0.0

    def array(self, constants: Mapping[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        """Return the weight's elements in memory order.

        Args:
            constants: The model's constants, by name.
        """
        of = [constants[name] for name in self.constants]
        match self.recipe:
            case Recipe.AS_IS:
                made = of[0].reshape(self.dims)
            case Recipe.BATCH_FACTOR | Recipe.BATCH_SHIFT:
                scale, bias, mean, variance = (each.astype(np.float64) for each in of)
                factor = scale / np.sqrt(variance + self.number)
                exact = factor if self.recipe is Recipe.BATCH_FACTOR else bias - mean * factor
                made = exact.astype(of[0].dtype).reshape(self.dims)
            case Recipe.ZEROS:
                made = np.zeros(self.dims, np.dtype(self.dtype))
        return packed(made, self.strides)

    def to_json(self) -> dict[str, Json]:
        """Return the form stored in artifacts."""
        return {**dataclasses.asdict(self), "recipe": self.recipe.value}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Weight:
        """Create a product from the output of `to_json`."""
        lists = {name: tuple(kept[name]) for name in ("constants", "dims", "strides")}
        return cls(**{**kept, **lists, "recipe": Recipe(kept["recipe"])})


def packed(array: np.ndarray[Any, Any], strides: Sequence[int]) -> np.ndarray[Any, Any]:
    """Return the elements of an array in the memory order of packed strides.

    Examples:
        >>> packed(np.arange(6).reshape(2, 3), (1, 2)).tolist()
        [0, 3, 1, 4, 2, 5]
    """
    order = sorted(range(array.ndim), key=lambda axis: (-strides[axis], axis))
    return np.ascontiguousarray(array.transpose(order)).reshape(-1)
