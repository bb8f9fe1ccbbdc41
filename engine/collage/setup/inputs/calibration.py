"""Read samples of a model's inputs from which ranges of activations are taken."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from collage.setup.inputs.random_arrays import checked_inputs, required_inputs
from collage.values.npz import to_arrays
from collage.values.npz_file import read_arrays
from collage_core.errors import FeedError
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.io.special_files import why_no_file
from collage_core.ir.values.content import content_hash

Calibration: TypeAlias = str | os.PathLike[str] | Iterable[Mapping[str, Any]]
"""Samples by input name: in memory, in an NPZ file, or in a folder of such files.

An array of a file holds one sample, or has one dimension more than the input, which counts the samples.
"""

_WHAT: Final = "calibration"


def digest_values(digest: hashlib._Hash, values: Mapping[str, Any]) -> None:
    """Add names and contents of values to a hash.

    Args:
        digest: The hash.
        values: Values by input name.
    """
    for key, array in sorted(to_arrays(values).items()):
        digest.update(f"{key}={content_hash(array)}".encode())


def sample_files(given: str | os.PathLike[str], what: str = _WHAT) -> list[Path]:
    """Return the files that hold samples: the one that is named, or those of a folder, by name.

    Args:
        given: The file, or the folder.
        what: What samples these are, for messages.

    Raises:
        FeedError: If there is none.
    """
    path = Path(given)
    if not path.is_dir():
        if reason := why_no_file(path):
            raise FeedError(str(path), f"no {what} samples can be read from it: {reason}")
        return [path]
    files = sorted(path.glob("*.npz"))
    if not files:
        raise FeedError(str(path), f"the folder holds no {what} samples: it has no NPZ file")
    return files


def calibration_samples(graph: DataflowGraph, given: Calibration) -> list[dict[str, Any]]:
    """Return samples for exactly the inputs of a prepared model, at least one.

    Args:
        graph: The prepared model's graph.
        given: The samples.

    Raises:
        FeedError: If a file cannot be read, or a sample is missing, does not fit the model, or is not finite.
    """
    return [checked_sample(graph, sample, f"{_WHAT}, {where}") for where, sample in named_samples(graph, given)]


def named_samples(graph: DataflowGraph, given: Calibration, what: str = _WHAT) -> list[tuple[str, Mapping[str, Any]]]:
    """Return samples as given, at least one, each with the place that it comes from.

    Args:
        graph: The prepared model's graph.
        given: The samples.
        what: What samples these are, for messages.

    Raises:
        FeedError: If a file cannot be read, its arrays hold different numbers of samples, or there is none.
    """
    if isinstance(given, str | os.PathLike):
        named = [
            (f"{path} ({number})" if len(samples) > 1 else str(path), sample)
            for path in sample_files(given, what)
            for samples in [_split(graph, read_arrays(path), path, what)]
            for number, sample in enumerate(samples)
        ]
    else:
        named = [(f"sample {number}", sample) for number, sample in enumerate(given)]
    if not named:
        raise FeedError(what, "there is no sample")
    return named


def _split(graph: DataflowGraph, arrays: Mapping[str, Any], path: Path, what: str) -> Sequence[Mapping[str, Any]]:
    """Return the samples of a file."""
    ranks = {str(value.name): len(value.shape) for value in required_inputs(graph) if value.shape is not None}
    inputs = {name: array for name, array in arrays.items() if name in ranks}
    several = {name: len(array) for name, array in inputs.items() if array.ndim == ranks[name] + 1}
    if not several:
        return [arrays]
    counts = several | {name: len(array) for name, array in arrays.items() if name not in ranks and array.ndim}
    if len({*counts.values()}) > 1 or counts.keys() != arrays.keys():
        listed = ", ".join(f"{name}: {counts.get(name, 'one')}" for name in arrays)
        raise FeedError(str(path), f"its arrays hold different numbers of {what} samples ({listed})")
    count = next(iter(several.values()))
    return [{name: array[number] for name, array in arrays.items()} for number in range(count)]


def checked_sample(graph: DataflowGraph, sample: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return values for exactly the inputs of a prepared model.

    Args:
        graph: The prepared model's graph.
        sample: Values by input name.
        where: Where it comes from, for the message.

    Raises:
        FeedError: If a value is missing, does not fit, or is not finite, or there is one that is no input.
    """
    try:
        values = checked_inputs(graph, sample)
    except FeedError as error:
        raise FeedError(error.value, f"{where}: {error.reason}") from error
    for name, value in values.items():
        array = np.asarray(value)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            count = int(np.count_nonzero(~np.isfinite(array)))
            raise FeedError(name, f"{where}: {count} of {array.size} elements are NaN or infinite")
    return values
