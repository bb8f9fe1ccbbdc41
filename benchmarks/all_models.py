"""The models that whole benchmarks run over: those of the suite, then those of the generator.

Usage:
    python -m benchmarks.all_models NAME... --out DIR
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.judge.inputs import beside, read
from benchmarks.models import MODELS
from benchmarks.models.__main__ import write_model
from benchmarks.regret.generator import all_grafted


def writers() -> dict[str, Callable[[Path], Path]]:
    """Return what writes each model into a folder and returns its file, by name; the suite's first."""
    suite = {name: _writing(name) for name in MODELS}
    return suite | {name: grafted.write for name, grafted in all_grafted().items()}


def shapes(model: Path) -> list[str]:
    """Return the options of `collage optimize` that bind a written model's input shapes.

    Args:
        model: The model's file; its inputs are beside it.
    """
    options = []
    for name, array in read(beside(model)).items():
        options += ["--input-shapes", f"{name}:[{','.join(map(str, array.shape))}]"]
    return options


def _writing(name: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / f"{name}.onnx"
        write_model(path, MODELS[name].build(), MODELS[name].make_inputs())
        return path

    return write


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the models that are named, each with its inputs beside it; 2 for misuse."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.all_models", description=__doc__)
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write to")
    options = parser.parse_args(arguments)
    known = writers()
    if unknown := sorted(set(options.names) - set(known)):
        parser.error(f"there is no model {', '.join(unknown)}; there are {', '.join(known)}")
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.names:
        print(known[name](options.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
