"""Read samples of a model's inputs with what a metric of the user's needs besides, such as labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from collage.setup.inputs.calibration import Calibration, checked_sample, named_samples
from collage.setup.inputs.random_arrays import required_inputs
from collage_core.errors import FeedError
from collage_core.ir.graph.dataflow import DataflowGraph

_WHAT: Final = "labelled"
"""What samples are, in messages."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """One labelled sample.

    Attributes:
        inputs: Values for the model's inputs, by name.
        given: All arrays of the sample, by name and read-only, as the metric gets them.
    """

    inputs: Mapping[str, Any]
    given: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LabelledSamples:
    """Samples on which a metric is computed.

    Every second one is held out, so files that are in the order of their labels have all of them in both halves.

    Attributes:
        deciding: Those on which plans are chosen.
        held_out: Those on which the chosen plan is verified; the same if there is only one.
    """

    deciding: Sequence[Labelled]
    held_out: Sequence[Labelled]

    @property
    def are_apart(self) -> bool:
        """Whether what is held out decided nothing."""
        return self.deciding is not self.held_out


def labelled_samples(graph: DataflowGraph, given: Calibration) -> LabelledSamples:
    """Return labelled samples, at least one.

    Args:
        graph: The prepared model's graph.
        given: Samples with values for the model's inputs, and arrays of other names besides.

    Raises:
        FeedError: If a file cannot be read, a value for an input is missing, does not fit, or is not finite, or another
            is no array.
    """
    inputs = {str(value.name) for value in required_inputs(graph)}
    samples = []
    for where, sample in named_samples(graph, given, _WHAT):
        own = {name: value for name, value in sample.items() if name in inputs}
        arrays = {name: _read_only(name, value, where) for name, value in sample.items()}
        samples.append(Labelled(inputs=checked_sample(graph, own, f"{_WHAT}, {where}"), given=arrays))
    deciding = samples[::2]
    return LabelledSamples(deciding=deciding, held_out=samples[1::2] or deciding)


def _read_only(name: str, value: Any, where: str) -> np.ndarray[Any, Any]:
    """Return a view that a metric cannot write to: the arrays serve for ranges, too, and for the next plan."""
    array = np.asarray(value)
    if array.dtype.kind in "OV":
        raise FeedError(name, f"{_WHAT}, {where}: it has no elements of a type that NumPy knows")
    view = array.view()
    view.flags.writeable = False
    return view
