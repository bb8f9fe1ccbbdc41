"""The folder with models, databases, and what is known of them."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from benchmarks.regret.generator import Grafted
from benchmarks.regret.searches import EXHAUSTIVE
from benchmarks.replay.bench import Bench, Machine
from collage.report.progress import LineProgress, SilentProgress
from collage.store import TuningStore, open_database


class Work:
    """The files of all models, by the model's name.

    Args:
        folder: Created where it is missing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def bench(self, model: Grafted, *, loud: bool = False, machine: Machine | None = None) -> Bench:
        """Open a model with its toolchains; it is written where it is missing.

        Args:
            model: The model.
            loud: Whether progress is written to standard error.
            machine: The machine whose measurements are replayed; this one if None.
        """
        path = self.folder / f"{model.name}.onnx"
        if not path.is_file():
            model.write(self.folder)
        threads = None if machine is None else machine.host.physical_cores
        progress = LineProgress(sys.stderr) if loud else SilentProgress()
        return Bench(path, dataclasses.replace(EXHAUSTIVE, threads=threads), self.folder, progress, machine=machine)

    def store(self, name: str) -> TuningStore:
        """Open the database of a model."""
        return open_database(str(self.folder / f"{name}.sqlite"))

    def known(self, name: str) -> Path:
        """Return the file of a model's known candidates."""
        return self.folder / f"{name}.known.json"

    def filled(self, name: str) -> Path:
        """Return the file that says that the database of a model is filled."""
        return self.folder / f"{name}.filled.json"

    @property
    def replayed(self) -> Path:
        """The results of the last replay."""
        return self.folder / "replayed.json"
