"""Run a package on several inputs, one after the other in one process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from collage.build.package_contender import SERIES_CALL
from collage.measure.contenders.interleaved import Contender, ContenderProcess
from collage.measure.wire.outcomes import Failed
from collage_core.contract import Json


def run_series(
    name: str,
    package: Path,
    inputs: Sequence[Path],
    outputs: Sequence[Path],
    *,
    blobs: Path,
    threads: int,
    deadline_s: float,
) -> Failed | None:
    """Run a package that this process has just written; return how it fails, if it does.

    Args:
        name: Of the plan, for messages.
        package: Path of the package.
        inputs: Paths of documents of `write_values` with the model's inputs.
        outputs: Paths of the documents to write the outputs to, one for each.
        blobs: Directory for the bytes of the outputs.
        threads: CPU threads of each kernel.
        deadline_s: Time limit for loading the package and all runs.
    """
    arguments: dict[str, Json] = {"package": str(package), "blobs": str(blobs), "threads": threads}
    arguments |= {"inputs": [str(path) for path in inputs], "outputs": [str(path) for path in outputs]}
    with ContenderProcess(Contender(name=name, call=SERIES_CALL, arguments=arguments)) as process:
        ran = process.prepare(deadline_s)
    return ran if isinstance(ran, Failed) else None
