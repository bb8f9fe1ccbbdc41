"""What a run of `optimize` does that takes seconds and decides nothing is done once, by the tests that are about it."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Iterator

import pytest

from collage import options
from collage.decide.races import race
from collage.peaks import measured_limits
from collage.peaks.machine_peaks import MEMORY, LevelSpeed, MachinePeaks, ProductSpeed

PEAKS = MachinePeaks(
    levels=(LevelSpeed(name=MEMORY, holds_bytes=0, bytes_per_us=20_000.0),),
    products=tuple(
        ProductSpeed(arithmetic=arithmetic, flops_per_us=100_000.0, by="numpy") for arithmetic in ("float32", "float64")
    ),
)
"""Of a machine of these tests."""
COMMAND = f"from {__name__} import main; main()"
"""Program of a process of its own that runs the command so."""


@contextlib.contextmanager
def known_peaks() -> Iterator[None]:
    """The machine's peaks are known."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measured_limits, "_peaks", lambda *_, **__: (PEAKS, ""))
        yield


@contextlib.contextmanager
def few_rounds() -> Iterator[None]:
    """Whole plans run for a moment."""
    quick = options.PRESETS["quick"]
    with pytest.MonkeyPatch.context() as patch:
        small = dataclasses.replace(quick, operators=24, challengers=1, rounds=2, round_s=0.005)
        patch.setitem(options.PRESETS, "quick", small)
        patch.setattr(race, "FIRST_ROUNDS", 2)  # one heat: a second would start every process anew
        yield


def main() -> None:
    """Run the command with both."""
    from collage.cli import main

    with known_peaks(), few_rounds():
        main(sys.argv[1:], prog_name="collage")
