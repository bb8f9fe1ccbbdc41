"""Find the package that an optimization would only make again, as `make` does with files."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from collage.commands.optimizing.beside_each_other import beside_each_other
from collage.commands.optimizing.origin import origin_of
from collage.options import OptimizeOptions
from collage.report.documents.codec import record_from_document
from collage.report.facts.record import Record
from collage.runtime.package import TrustedPackages, load_package
from collage.store import open_database
from collage_core.errors import CollageError


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Concluded:
    """What the last optimization ended with, in the tuning database by its origin.

    Attributes:
        package: Absolute path of the package that was saved.
        record: SHA-256 of that package's records, in hexadecimal.
        model: SHA-256 of the model's file.
        targets: Names of the targets that could have taken part.
    """

    KIND: ClassVar[str] = "optimization"
    VERSION: ClassVar[int] = 3

    package: str
    record: str
    model: str
    targets: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class UpToDate:
    """What needs no optimization.

    Attributes:
        records: Records of the optimizations that made the package, one for each plan.
        copied_from: Where the package was copied from; None if it was where it should be.
    """

    records: tuple[Record, ...]
    copied_from: Path | None


def remember(origins: Sequence[str], package: Path, made: Sequence[Record], tuning_db: str | None) -> None:
    """Record in the tuning database that an optimization ended with a package; if that fails, the next one is run.

    Nothing is recorded if another process has put a package of its own there.

    Args:
        origins: What `origin_of` says of it, for each set of input shapes.
        package: The package that was saved.
        made: The records that were saved in it.
        tuning_db: URL of the tuning database.
    """
    with contextlib.suppress(CollageError), open_database(tuning_db) as database:
        plans = load_package(package).plans
        records = [record_from_document(plan.record, str(package)) for plan in plans]
        if records != list(made):
            return
        concluded = Concluded(
            package=str(package.resolve()),
            record=_digest([plan.record for plan in plans]),
            model=records[0].model.sha256,
            targets=tuple(
                sorted({name for record in records for toolchain in record.toolchains for name in toolchain.targets})
            ),
        )
        database.put_document(_joined(origins), concluded)


def up_to_date(model: Path, each: Sequence[OptimizeOptions], output: Path) -> UpToDate | None:
    """Keep or copy the package that the last such optimization made; return None if there is none.

    Such an optimization is one of the same model, with the same options and software, on this machine. The package may
    be where it should be, or where that optimization saved it, from where it is copied; the copy is as trusted as it.
    Its content is checked, and that it was written on this machine. Who wants to retry what failed wants another
    optimization.

    Args:
        model: The ONNX file.
        each: What would be done, for each set of input shapes.
        output: Where the package should be.
    """
    if each[0].retry_failed:
        return None
    try:
        # opened first: without a database nothing is hashed
        with open_database(each[0].tuning_db, read_only=True) as database:
            wanted = beside_each_other(each)
            origins = [origin for options in wanted if (origin := origin_of(model, options)) is not None]
            whole = len(origins) == len(wanted)
            known = database.get_document(Concluded, _joined(origins)) if whole else None
    except (CollageError, OSError):  # whatever it is, the optimization will say so
        return None
    if known is None:
        return None
    for place in (output, Path(known.package)):
        with contextlib.suppress(CollageError):
            package = load_package(place)
            # anybody may write these records into a package of another content
            documents = [plan.record for plan in package.plans]
            if package.digest in TrustedPackages() and _digest(documents) == known.record:
                package.verify()
                records = tuple(record_from_document(document, str(place)) for document in documents)
                if place is not output:
                    package.save_copy(output)
                return UpToDate(records=records, copied_from=None if place is output else place)
    return None


def _joined(origins: Sequence[str]) -> str:
    """Return the origin of plans for several shapes."""
    return origins[0] if len(origins) == 1 else hashlib.sha256("\n".join(origins).encode()).hexdigest()


def _digest(documents: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(documents, sort_keys=True).encode()).hexdigest()
