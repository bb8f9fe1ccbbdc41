"""Writes models of the suite: `python -m benchmarks.models [NAME...] --out DIR`."""

from __future__ import annotations

import argparse
import functools
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx

from benchmarks.judge.inputs import beside
from benchmarks.models import MODELS
from benchmarks.models.entry import Inputs


def write(path: Path, content: Callable[[BinaryIO], object]) -> None:
    """Write a file as a whole or not at all.

    Args:
        path: Where; an existing file is replaced.
        content: Writes to the open file.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            content(stream)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_model(path: Path, model: onnx.ModelProto, inputs: Inputs) -> int:
    """Write a model, and its inputs beside it; return the size of the model in bytes."""
    data = model.SerializeToString(deterministic=True)
    write(path, functools.partial(_dump, data))
    write(beside(path), functools.partial(_pack, inputs))
    return len(data)


def _dump(data: bytes, stream: BinaryIO) -> None:
    stream.write(data)


def _pack(arrays: Inputs, stream: BinaryIO) -> None:
    np.savez(stream, **arrays)  # type: ignore[arg-type]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the models that are named, or all, each with its inputs beside it; 2 for misuse."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder to write to")
    parser.add_argument("--seed", type=int, default=0, help="of weights and inputs")
    parser.add_argument("--list", action="store_true", help="list the models and stop")
    options = parser.parse_args(arguments)
    if options.list:
        for entry in MODELS.values():
            shapes = ", ".join(
                f"{name}:[{','.join(map(str, array.shape))}]" for name, array in entry.make_inputs().items()
            )
            print(f"{entry.name:18} {entry.about} ({shapes})")
        return 0
    unknown = [name for name in options.names if name not in MODELS]
    if unknown:
        parser.error(f"there is no model {', '.join(unknown)}; there are {', '.join(MODELS)}")
    if options.out is None:
        parser.error("--out DIR is missing")
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.names or MODELS:
        model = MODELS[name].build(options.seed)
        inputs = MODELS[name].make_inputs(options.seed)
        path = options.out / f"{name}.onnx"
        size = write_model(path, model, inputs)
        print(f"{path}: {len(model.graph.node)} nodes, {size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
