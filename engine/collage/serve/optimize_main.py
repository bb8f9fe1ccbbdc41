"""The process of an `AskOptimize`: `python -m collage.serve.optimize_main --blobs DIR`, one job and its answer."""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

from collage.commands.optimize import optimize
from collage.errors import WireError
from collage.fleet.jobs import CODEC, AskOptimize, OptimizeDone, is_inside
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.channel import Channel, prepare_process
from collage.measure.wire.outcomes import Failed, Stage
from collage.options import OptimizeOptions
from collage.temporary_folders import TemporaryFolder
from collage_core.errors import CollageError


def main() -> None:
    """Answer one job."""
    parser = argparse.ArgumentParser(prog="python -m collage.serve.optimize_main", description=__doc__)
    parser.add_argument("--kernel-kills", action="store_true")
    parser.add_argument("--blobs", type=Path, required=True, metavar="DIR")
    given = parser.parse_args()
    prepare_process(kernel_kills=given.kernel_kills)
    channel = Channel.take_standard_streams(CODEC)
    channel.die_with_driver()
    frame = channel.receive()
    if frame is None:
        return
    ask = CODEC.decode(frame)
    if not isinstance(ask, AskOptimize):
        raise WireError(f"{type(ask).__name__} is not for this process")
    with TemporaryFolder("optimize") as folder:
        channel.send(CODEC.encode(_optimized(ask, BlobStore(given.blobs), folder), frame.id))


def _optimized(ask: AskOptimize, store: BlobStore, folder: Path) -> OptimizeDone | Failed:
    try:
        model = _model(ask, store, folder / "model")
        package = folder / "model.collage"
        optimize(model, _options(ask)).save(package)
        return OptimizeDone(package=store.put(package.read_bytes()))
    except (CollageError, OSError) as error:
        return Failed(stage=Stage.RUN, reason=" ".join(str(error).split()))


def _options(ask: AskOptimize) -> OptimizeOptions:
    return OptimizeOptions(
        toolchains=ask.toolchains,
        exclude=ask.exclude,
        input_shapes=ask.input_shapes,
        preset=ask.preset,
        search=ask.search,
        budget_s=ask.budget_s,
        max_error=ask.max_error,
        threads=ask.threads,
        seed=ask.seed,
    )


def _model(ask: AskOptimize, store: BlobStore, folder: Path) -> Path:
    """Write a model and the files beside it.

    Raises:
        WireError: If one would be elsewhere.
    """
    for name, blob in {ask.name: ask.model, **ask.files}.items():
        if not is_inside(name):
            raise WireError(f"{name[:80]!r} is no name of a model's file")
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(store.path(blob), path)  # its bytes, not a copy of them
        except OSError:
            shutil.copyfile(store.path(blob), path)
    return folder / ask.name


if __name__ == "__main__":
    main()
