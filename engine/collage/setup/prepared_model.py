"""A prepared model with values to run it on, and every value of one reference run."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from collage.disk_space import check_disk_space
from collage.measure.budget import Budget
from collage.measure.driver.capture import DEADLINE_S, Capture
from collage.measure.models.model_process import ModelProcess
from collage.measure.wire.blobs import BlobStore
from collage.reference import Fallback
from collage.reference.vacuous import vacuous_outputs
from collage_core.ir.graph.dataflow import DataflowGraph

_LEAST_S = 5.0
"""Seconds of a reference run, though the budget is spent: no plan can do without."""


class Runnable(Protocol):
    """A model that toolchains are asked about, and that the reference can run."""

    @property
    def graph(self) -> DataflowGraph:
        """The prepared model's graph."""

    @property
    def inputs(self) -> Mapping[str, Any]:
        """Values to search on, by input name."""

    def redraw(self) -> bool:
        """Take other values, because the model makes nothing of these; return whether there are any."""

    @property
    def sha256(self) -> str:
        """SHA-256 of the model as given, in hexadecimal; empty if it is unknown."""


@dataclasses.dataclass(frozen=True)
class PreparedModel:
    """A model that was prepared elsewhere.

    Attributes:
        graph: The prepared model's graph.
        inputs: Values to run it on, by input name; none where it is not run.
        sha256: SHA-256 of the model as given, in hexadecimal; empty if it is unknown.
    """

    graph: DataflowGraph
    inputs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    sha256: str = ""

    def redraw(self) -> bool:
        """Return that there are no other values."""
        return False


def capture_of(
    model: Runnable, store: BlobStore, models: ModelProcess, fallback: Fallback | None, budget: Budget
) -> Callable[[], Capture]:
    """Return what takes every value of one reference run when first called, and remembers it.

    Args:
        model: The model.
        store: Takes the values.
        models: The process that evaluates the model.
        fallback: Computes nodes that the reference cannot; None for nothing.
        budget: Time that the run may take.

    Raises:
        DiskSpaceError: By what is returned, if the values do not fit on the store's disk.
    """

    @functools.cache
    def take() -> Capture:
        check_disk_space(model.graph, store.directory)
        deadline_s = budget.within(DEADLINE_S, least_s=_LEAST_S)
        while True:
            found = Capture.take(
                model.graph.model, model.inputs, store, models=models, fallback=fallback, deadline_s=deadline_s
            )
            if not vacuous_outputs(model.graph, found.value) or not model.redraw():
                return found

    return take
