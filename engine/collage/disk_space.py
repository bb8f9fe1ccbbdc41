"""How much room the temporary files of a run need, looked at before the run needs it."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from collage.errors import DiskSpaceError
from collage_core.contract import ValueKind
from collage_core.ir.graph.dataflow import DataflowGraph

_FULL = (errno.ENOSPC, errno.EDQUOT)


def needed_bytes(graph: DataflowGraph) -> int:
    """Return the least number of bytes that measuring a model writes among the temporary files.

    Every value of one reference run is kept, and the weights twice: for the workers, and in the package that is
    verified. Values whose size depends on data are not counted, nor what toolchains write.
    """
    values = [*graph.model.graph.inputs, *(value for node in graph.nodes for value in node.outputs)]
    specs = [graph.spec(value) for value in values if value.name]
    return sum(spec.nbytes for spec in specs if spec.kind is ValueKind.PLANNED) + 2 * graph.weights_bytes


def check_disk_space(graph: DataflowGraph, folder: Path) -> None:
    """Check that a model's tensors fit on the disk of a folder.

    Raises:
        DiskSpaceError: If they do not.
    """
    needed, free = needed_bytes(graph), shutil.disk_usage(folder).free
    if needed > free:
        raise DiskSpaceError(str(folder), needed, free)


@contextlib.contextmanager
def full_disk_named(graph: DataflowGraph, folder: Path) -> Iterator[None]:
    """Name what a run needs if the disk of its temporary files is full.

    Raises:
        DiskSpaceError: If something in the block could not be written there.
    """
    try:
        yield
    except Exception as error:
        if any(is_full(cause) and _is_on_disk_of(cause, folder) for cause in _causes(error)):
            raise DiskSpaceError(str(folder), needed_bytes(graph), shutil.disk_usage(folder).free) from error
        raise


def is_full(error: BaseException) -> bool:
    """Return whether an error says that a disk is full."""
    return isinstance(error, OSError) and error.errno in _FULL


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _is_on_disk_of(error: BaseException, folder: Path) -> bool:
    """Return whether an error is about a file on the disk of a folder; one without a name is taken to be."""
    name = getattr(error, "filename", None)
    if not isinstance(name, str):
        return True
    with contextlib.suppress(OSError):
        return os.stat(os.path.dirname(name) or ".").st_dev == folder.stat().st_dev
    return True
