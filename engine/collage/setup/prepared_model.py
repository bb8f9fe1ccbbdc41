"""A prepared model with values to run it on, and every value of one reference run."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from collage.disk_space import check_disk_space
from collage.measure.driver.capture import Capture
from collage.measure.wire.blobs import BlobStore
from collage.reference import Fallback
from collage.store import TuningStore, note_kernel
from collage_core.ir.graph.dataflow import DataflowGraph


class Runnable(Protocol):
    """A model that toolchains are asked about, and that the reference can run."""

    @property
    def graph(self) -> DataflowGraph:
        """The prepared model's graph."""

    @property
    def inputs(self) -> Mapping[str, Any]:
        """Values to search on, by input name."""

    @property
    def sha256(self) -> str:
        """SHA-256 of the model as given, in hexadecimal; empty if it is unknown."""

    @property
    def reference_s(self) -> float:
        """Seconds after which a reference run is taken for one that never ends."""


@dataclasses.dataclass(frozen=True)
class PreparedModel:
    """A model that was prepared elsewhere.

    Attributes:
        graph: The prepared model's graph.
        inputs: Values to run it on, by input name; none where it is not run.
        reference_s: Seconds after which a reference run is taken for one that never ends.
        sha256: SHA-256 of the model as given, in hexadecimal; empty if it is unknown.
    """

    graph: DataflowGraph
    inputs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    reference_s: float = 300.0
    sha256: str = ""


def capture_of(model: Runnable, store: BlobStore, fallback: Fallback | None) -> Callable[[], Capture]:
    """Return what takes every value of one reference run when first called, and remembers it.

    Args:
        model: The model.
        store: Takes the values.
        fallback: Computes nodes that the reference cannot; None for nothing.

    Raises:
        DiskSpaceError: By what is returned, if the values do not fit on the store's disk.
    """

    @functools.cache
    def take() -> Capture:
        check_disk_space(model.graph, store.directory)
        return Capture.take(model.graph, model.inputs, store, fallback=fallback, deadline_s=model.reference_s)

    return take


def kernel_notes(model: Runnable, database: TuningStore) -> Callable[[str], None]:
    """Return what records that a model asks for a kernel, given the kernel's hash."""
    return functools.partial(note_kernel, database, model.sha256)
