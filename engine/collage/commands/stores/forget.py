"""`forget`: find what the tuning database knows of a target or of a model, to be removed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from collage.build.verifying.verify import Verified
from collage.build.verifying.wrong_plans import WrongPlan
from collage.commands.optimizing.up_to_date import Concluded
from collage.decide.races.saved_races import SavedRace
from collage.measure.profiling.saved_profiles import SavedProfile, document_name
from collage.resolve.saved_takes import SavedTake
from collage.setup.facts import file_sha256
from collage.setup.queries import QUERIES
from collage.store import KernelOfModel, RecordKey, Removal, TuningStore, kernels_of, plan_subject
from collage_core.contract import TargetSpelling
from collage_core.errors import UsageError

_SHA256 = re.compile(r"[0-9a-f]{64}")


def known_of(store: TuningStore, what: str) -> Removal:
    """Return everything that a database knows of a target or of a model.

    Args:
        store: The database.
        what: A model's file, or its SHA-256 in hexadecimal; or a target, as `--toolchains` spells it: a toolchain
            without options or device stands for all its targets.

    Raises:
        UsageError: If it can be neither.
    """
    if Path(what).is_file():
        return of_model(store, file_sha256(Path(what)))
    if _SHA256.fullmatch(what):
        return of_model(store, what)
    try:
        spelling = TargetSpelling.parse(what)
    except ValueError:
        raise UsageError(f"there is no file {what!r}, and it is no target either") from None
    return of_target(store, spelling)


def of_model(store: TuningStore, sha256: str) -> Removal:
    """Return everything that is known of a model's kernels, which other models may share, and of its plans."""
    kernels = kernels_of(store, sha256)
    functions = {each.partition("+")[0] for each in kernels}

    def is_blob(toolchain: str, key: str) -> bool:
        parts = key.split("/")
        return parts[1 if toolchain == QUERIES and len(parts) > 1 else 0] in functions

    def is_document(kind: str, name: str) -> bool:
        if kind == KernelOfModel.KIND:
            return name.startswith(f"{sha256}/")
        if kind == SavedTake.KIND:
            return name.partition("/")[0] in functions
        if kind in (SavedRace.KIND, Verified.KIND, WrongPlan.KIND):
            return plan_subject(name)[0] == sha256
        concluded = store.get_document(Concluded, name) if kind == Concluded.KIND else None
        return concluded is not None and concluded.model == sha256

    return _removal(store, lambda key: key.structural_hash in kernels, is_blob, is_document)


def of_target(store: TuningStore, spelling: TargetSpelling) -> Removal:
    """Return everything that is known of targets, and of plans that have kernels of them."""
    whole = not spelling.options and spelling.device is None

    def is_blob(toolchain: str, key: str) -> bool:
        if toolchain == QUERIES:
            return is_meant(spelling, key.split("/")[0])
        return whole and toolchain == spelling.toolchain  # a toolchain's cache is of all its targets

    def is_document(kind: str, name: str) -> bool:
        if kind == SavedTake.KIND:
            return is_meant(spelling, SavedTake.target_of(name))
        if kind in (SavedRace.KIND, Verified.KIND, WrongPlan.KIND):
            return any(is_meant(spelling, each) for each in plan_subject(name)[1])
        concluded = store.get_document(Concluded, name) if kind == Concluded.KIND else None
        return concluded is not None and any(is_meant(spelling, each) for each in concluded.targets)

    return _removal(store, lambda key: is_meant(spelling, key.target), is_blob, is_document)


def is_meant(spelling: TargetSpelling, target: str) -> bool:
    """Return whether a spelling means a target; one without options, or without a device, means those with any.

    Args:
        spelling: What the user wrote.
        target: The target's name.
    """
    try:
        named = TargetSpelling.parse(target)
    except ValueError:
        return False
    return (
        named.toolchain == spelling.toolchain
        and (not spelling.options or named.options == spelling.options)
        and spelling.device in (None, named.device or "cpu")
    )


def _removal(
    store: TuningStore,
    is_key: Callable[[RecordKey], bool],
    is_blob: Callable[[str, str], bool],
    is_document: Callable[[str, str], bool],
) -> Removal:
    records = [record for record in store.all_records() if is_key(record.key)]
    profiles = {(SavedProfile.KIND, document_name(record.key)) for record in records}
    places = store.document_keys()
    return Removal(
        records=frozenset(record.content_id for record in records),
        attempts=frozenset(key for key in store.attempt_keys() if is_key(key)),
        blobs=frozenset((space, key) for space, key in store.blob_keys() if is_blob(space.toolchain, key)),
        documents=frozenset(each for each in places if each in profiles or is_document(*each)),
    )
