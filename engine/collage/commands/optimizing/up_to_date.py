"""Find the package that an optimization would only make again, as `make` does with files."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any, ClassVar

from collage.commands.origin import origin_of
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
        record: SHA-256 of that package's record, in hexadecimal.
        model: SHA-256 of the model's file.
        targets: Names of the targets that could have taken part.
    """

    KIND: ClassVar[str] = "optimization"
    VERSION: ClassVar[int] = 2

    package: str
    record: str
    model: str
    targets: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class UpToDate:
    """What needs no optimization.

    Attributes:
        record: Record of the optimization that made the package.
        copied_from: Where the package was copied from; None if it was where it should be.
    """

    record: Record
    copied_from: Path | None


def remember(origin: str, package: Path, tuning_db: str | None) -> None:
    """Record in the tuning database that an optimization ended with a package; if that fails, the next one is run.

    Args:
        origin: What `origin_of` says of it.
        package: The package that was saved.
        tuning_db: URL of the tuning database.
    """
    with contextlib.suppress(CollageError), open_database(tuning_db) as database:
        document = load_package(package).record
        record = record_from_document(document, str(package))
        concluded = Concluded(
            package=str(package.resolve()),
            record=_digest(document),
            model=record.model.sha256,
            targets=tuple(sorted(name for toolchain in record.toolchains for name in toolchain.targets)),
        )
        database.put_document(origin, concluded)


def up_to_date(model: Path, options: OptimizeOptions, output: Path) -> UpToDate | None:
    """Keep or copy the package that the last such optimization made; return None if there is none.

    Such an optimization is one of the same model, with the same options and software, on this machine. The package may
    be where it should be, or where that optimization saved it, from where it is copied; the copy is as trusted as it.
    Its content is checked, and that it was written on this machine. Who wants to retry what failed wants another
    optimization.

    Args:
        model: The ONNX file.
        options: What would be done.
        output: Where the package should be.
    """
    if options.retry_failed:
        return None
    try:
        # opened first: without a database nothing is hashed
        with open_database(options.tuning_db, read_only=True) as database:
            origin = origin_of(model, options)
            known = None if origin is None else database.get_document(Concluded, origin)
    except (CollageError, OSError):  # whatever it is, the optimization will say so
        return None
    if known is None:
        return None
    for place in (output, Path(known.package)):
        with contextlib.suppress(CollageError):
            package = load_package(place)
            # anybody may write this record into a package of another content
            if package.digest in TrustedPackages() and _digest(package.record) == known.record:
                package.verify()
                record = record_from_document(package.record, str(place))
                if place is not output:
                    package.save_copy(output)
                return UpToDate(record=record, copied_from=None if place is output else place)
    return None


def _digest(document: Any) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
