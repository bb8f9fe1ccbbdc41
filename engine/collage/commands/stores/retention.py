"""What a store need not keep: what is old, and what no package needs."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Collection, Iterable

from collage.build.verifying.verify import Verified
from collage.build.verifying.wrong_plans import WrongPlan
from collage.commands.optimizing.up_to_date import Concluded
from collage.decide.races.saved_races import SavedRace
from collage.measure.profiling.saved_profiles import SavedProfile, document_name
from collage.report.documents.codec import record_from_document
from collage.resolve.saved_takes import SavedTake
from collage.runtime.package import load_package
from collage.setup.queries import QUERIES
from collage.store import KernelOfModel, Removal, TuningRecord, TuningStore, kernels_of, plan_subject

_AGEING = frozenset({SavedRace.KIND, Verified.KIND, WrongPlan.KIND, Concluded.KIND, SavedTake.KIND})
"""Documents about plans and models, of which there are more with every search; others are replaced by what is newer."""
_FIRST = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LONGEST_S = 1e10
"""Longer than any computer runs; `timedelta` has a limit."""


def older_than(store: TuningStore, seconds: float, now: datetime.datetime) -> Removal:
    """Return the records and plans that are older; what is known of machines and devices stays.

    Args:
        store: The store.
        seconds: Their least age.
        now: The time.
    """
    before = now - min(datetime.timedelta(seconds=min(seconds, _LONGEST_S)), now - _FIRST)
    records = [each for each in store.all_records() if datetime.datetime.fromisoformat(each.created) < before]
    keys = {each for each in store.document_keys(before=before.timestamp()) if each[0] in _AGEING}
    return _removal(store, records, lambda kind, name: (kind, name) in keys)


def of_other_models(store: TuningStore, packages: Iterable[str | os.PathLike[str]]) -> Removal:
    """Return what is known of kernels and plans of models that are in none of some packages.

    Args:
        store: The store.
        packages: Packages of the models that are in use.

    Raises:
        PackageError: If one cannot be read.
        RecordError: If another version of Collage wrote it.
    """
    models = {
        record_from_document(plan.record, os.fspath(package)).model.sha256
        for package in packages
        for plan in load_package(package).plans
    }
    kernels = frozenset[str]().union(*(kernels_of(store, model) for model in models))
    functions = {each.partition("+")[0] for each in kernels}

    def is_other(kind: str, name: str) -> bool:
        if kind == KernelOfModel.KIND:
            return name.partition("/")[0] not in models
        if kind == SavedTake.KIND:
            return name.partition("/")[0] not in functions
        if kind == Concluded.KIND:
            concluded = store.get_document(Concluded, name)
            return concluded is None or concluded.model not in models
        return kind in (SavedRace.KIND, Verified.KIND, WrongPlan.KIND) and plan_subject(name)[0] not in models

    records = [each for each in store.all_records() if each.key.structural_hash not in kernels]
    removal = _removal(store, records, is_other)
    blobs = {
        (space, key)
        for space, key in store.blob_keys()
        if space.toolchain == QUERIES and (parts := key.split("/")) and parts[1:2] and parts[1] not in functions
    }
    return Removal(records=removal.records, documents=removal.documents, blobs=frozenset(blobs))


def together(removals: Collection[Removal]) -> Removal:
    """Return all that some removals remove."""
    return Removal(
        records=frozenset[str]().union(*(each.records for each in removals)),
        attempts=frozenset().union(*(each.attempts for each in removals)),
        blobs=frozenset().union(*(each.blobs for each in removals)),
        documents=frozenset().union(*(each.documents for each in removals)),
    )


def _removal(store: TuningStore, records: Collection[TuningRecord], is_document: Callable[[str, str], bool]) -> Removal:
    going = {each.content_id for each in records}
    left = {document_name(each.key) for each in store.all_records() if each.content_id not in going}
    profiles = {(SavedProfile.KIND, name) for each in records if (name := document_name(each.key)) not in left}
    return Removal(
        records=frozenset(going),
        documents=frozenset(each for each in store.document_keys() if each in profiles or is_document(*each)),
    )
