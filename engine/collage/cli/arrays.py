"""Read values from NPZ files, write them to NPZ files, and generate random ones."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from collage_core.ir.io.replacement import Replacement

if TYPE_CHECKING:
    from collage.runtime import NodeArg


def read_values(path: Path, inputs: Sequence[NodeArg]) -> dict[str, Any]:
    """Read the values that the arrays of an NPZ file stand for; `collage.values.npz` says how.

    Raises:
        click.BadParameter: If it is not an NPZ file of plain arrays.
    """
    from collage.values.npz import from_arrays
    from collage.values.npz_file import read_arrays
    from collage_core.errors import FeedError

    try:
        arrays = read_arrays(path)
    except FeedError as error:
        raise click.BadParameter(f"cannot read {str(path)!r}: {error.reason}", param_hint="--inputs") from error
    return from_arrays(arrays, {each.name: each.type for each in inputs})


def write_values(path: Path, values: Mapping[str, Any]) -> None:
    """Write values to an NPZ file, whole or not at all; `collage.values.npz` says how.

    `numpy.savez` cannot be used: an array may have the name of one of its parameters, and it adds `.npz` to names.

    Raises:
        click.ClickException: If one is no value of a model.
    """
    import numpy as np

    from collage.values.npz import to_arrays
    from collage_core.errors import FeedError

    try:
        arrays = to_arrays(values)
    except FeedError as error:
        raise click.ClickException(f"output {error}") from error
    with Replacement(path) as file, zipfile.ZipFile(file.stream, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def random_arrays(inputs: list[NodeArg], seed: int) -> dict[str, Any]:
    """Generate an array for each input: normal numbers for floats, 0 or 1 for integers, which most models accept.

    Raises:
        click.UsageError: If an input has no fixed shape or is not a tensor of numbers.
    """
    import numpy as np

    from collage.values.npz import element_type, how_to_give

    generator = np.random.default_rng(seed)
    arrays: dict[str, Any] = {}
    for node_arg in inputs:
        shape = [extent for extent in node_arg.shape if isinstance(extent, int)]
        dtype = element_type(node_arg.type) if node_arg.type.startswith("tensor(") else None
        if dtype is None or dtype.kind == "O" or len(shape) != len(node_arg.shape):
            how = how_to_give(node_arg.name, node_arg.type)
            raise click.UsageError(
                f"input {node_arg.name!r} ({node_arg.type}, shape {node_arg.shape}) cannot be drawn at random; "
                "give it with --inputs FILE.npz" + (f": {how}" if how else "")
            )
        whole = dtype.kind in "iub"
        drawn = generator.integers(0, 2, shape) if whole else generator.standard_normal(shape)
        arrays[node_arg.name] = np.asarray(drawn).astype(dtype)
    return arrays
