"""What runs a saved package in a process of its own, loaded and bound exactly as a user would.

As `package_call` in a contender's process, or once as `python -m collage_core.pipeline.contender`.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from collage_core.errors import CollageError
from collage_core.measure.blobs import BlobStore
from collage_core.pipeline.feeds import read_values, write_values
from collage_core.runtime import Session, load

PACKAGE_CALL = f"{__name__}:package_call" if __name__ != "__main__" else "collage_core.pipeline.contender:package_call"
"""Name of `package_call`, as a contender process is told it."""


class _Run(functools.partial[Any]):
    """A bound call that keeps the session it belongs to; calling a partial costs nothing that can be measured."""

    session: Session


def package_call(package: str, inputs: str, threads: int, warmup: int = 0) -> Callable[[], Any]:
    """Loads a package and binds one run of it.

    Args:
        package: Path of the package.
        inputs: Path of a document of `write_values` with the model's inputs.
        threads: CPU threads of each kernel.
        warmup: Runs before it is handed over.

    Returns:
        The call, without arguments; each call is one run of the model.
    """
    session = load(package, threads=threads)
    session.run(None, read_values(Path(inputs)))
    for _ in range(warmup):
        session.run_bound()
    run = _Run(session.bound_call)
    run.session = session
    return run


def main(arguments: list[str]) -> int:
    """Runs a package once, writes its outputs and its profile."""
    parser = argparse.ArgumentParser(prog="collage_core.pipeline.contender")
    parser.add_argument("package", type=Path)
    parser.add_argument("inputs", type=Path)
    parser.add_argument("outputs", type=Path)
    parser.add_argument("profile", type=Path)
    parser.add_argument("--blobs", type=Path, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--runs", type=int, default=20)
    given = parser.parse_args(arguments)
    try:
        session = load(given.package, threads=given.threads)
        feeds = read_values(given.inputs)
        names = [output.name for output in session.get_outputs()]
        outputs = dict(zip(names, session.run(None, feeds), strict=True))
        profile = session.profile(runs=given.runs)
    except CollageError as error:
        print(error, file=sys.stderr)
        return 1
    except Exception as error:  # whatever a toolchain raises is one line of a message to the user
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    write_values(given.outputs, outputs, BlobStore(given.blobs))
    given.profile.write_text(
        json.dumps({step.name: step.median_us for step in profile.steps if step.target != "host"}), encoding="utf-8"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
