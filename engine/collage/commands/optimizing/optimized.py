"""Result of `optimize`: a plan to save or run, and everything found on the way."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from collage.build.assemble import Assembled
from collage.control.plan_file import plan_document, write_plan
from collage.errors import TrustError, UnrecordedPackageWarning
from collage.report.documents.codec import to_jsonable
from collage.report.facts.record import Record
from collage.report.shown import Shown
from collage.report.text.tables import optimize_summary
from collage.runtime.load import load
from collage.runtime.package import TrustedPackages
from collage.runtime.session import Session
from collage.temporary_folders import TemporaryFolder
from collage_core.candidates.pool import CandidatePool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimized(Shown):
    """An executable plan, with the evidence for its choice; printed, or shown by a notebook, it says both.

    Attributes:
        record: Record of the optimisation.
        assembled: The plan with its artifacts.
        pool: The candidates it was chosen from.
        origin: Hash of what decided the outcome; None where that is not known, or the next run may find another.
        trace: Every plan timed by a two-level search, as JSON; None for other searches.
    """

    record: Record
    assembled: Assembled = dataclasses.field(repr=False)
    pool: CandidatePool = dataclasses.field(repr=False)
    origin: str | None = None
    trace: Mapping[str, Any] | None = dataclasses.field(default=None, repr=False)

    @property
    def records(self) -> tuple[Record, ...]:
        """The record alone, as of a plan for several shapes there are several."""
        return (self.record,)

    def __rich__(self) -> RenderableType:
        """Return the tables of `collage optimize`."""
        return optimize_summary(self.record)

    def save_plan(self, path: str | os.PathLike[str]) -> None:
        """Write the plan, and the cost of every candidate that has one, to a file that can be edited and forced.

        Raises:
            OSError: If it cannot be written.
        """
        model, ranges = self.record.model, self.record.ranges
        write_plan(
            path, plan_document(self.assembled.plan, self.pool, model=model.name, nodes=model.nodes, ranges=ranges)
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the package atomically, and remember that it was written on this machine: its code may be loaded here.

        Raises:
            PackageError: If it cannot be written.
        """
        trusted_as_written(self.write(path), path)

    def write(self, path: str | os.PathLike[str]) -> str:
        """Write the package atomically, for this process alone, and return its `Package.digest`.

        Raises:
            PackageError: If it cannot be written.
        """
        return self.assembled.save(
            path,
            to_jsonable(self.record),
            threads=self.record.threads,
            model_name=self.record.model.name,
            model_sha256=self.record.model.sha256,
        )

    def session(self) -> Session:
        """Return a session that runs the plan in this process."""
        with TemporaryFolder() as folder:
            package = folder / "plan.collage"
            self.write(package)
            return load(package, trusted=True)


def trusted_as_written(digest: str, path: str | os.PathLike[str]) -> None:
    """Add a package to those written on this machine; warn if that is not possible.

    Args:
        digest: Its `Package.digest`.
        path: Its path, for the list and for messages.
    """
    try:
        TrustedPackages().add(digest, Path(path), "written")
    except TrustError as error:
        message = f"{os.fspath(path)} is saved, but code in it will not be loaded: {error}"
        warnings.warn(message, UnrecordedPackageWarning, stacklevel=3)
