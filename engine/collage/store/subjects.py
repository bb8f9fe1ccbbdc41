"""What models and targets the entries of a database are about."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from typing import ClassVar

from collage.store.records import StoredDocument
from collage.store.tuning_store import TuningStore

_BETWEEN = "|"


@dataclasses.dataclass(frozen=True, slots=True)
class KernelOfModel:
    """A note that a model asked for what is known of a kernel, which it may share with other models."""

    KIND: ClassVar[str] = "kernel of a model"
    VERSION: ClassVar[int] = 1


def note_kernels(store: TuningStore, model: str, hashes: Iterable[str]) -> None:
    """Record that a model asks for kernels; what is known already is not written again.

    Args:
        store: Where to note it.
        model: SHA-256 of the model's file; nothing is noted if it is empty.
        hashes: Hashes of the kernels, as in `RecordKey`.
    """
    if not model:
        return
    new = frozenset(hashes) - kernels_of(store, model)
    notes = [
        StoredDocument(kind=KernelOfModel.KIND, name=f"{model}/{each}", version=KernelOfModel.VERSION, body={})
        for each in sorted(new)
    ]
    if notes:
        store.put_all_stored(notes, replace=False)


def kernels_of(store: TuningStore, model: str) -> frozenset[str]:
    """Return the structural hashes of the kernels that a model asked for."""
    return frozenset(name.partition("/")[2] for _, name in store.document_keys(KernelOfModel.KIND, f"{model}/"))


def plan_name(model: str, targets: Collection[str], digest: str) -> str:
    """Return a name for a document about plans of a model.

    Args:
        model: SHA-256 of the model's file.
        targets: Names of the targets whose kernels the plans have.
        digest: Hash of all that the document belongs to.

    Examples:
        >>> plan_subject(plan_name("ab", {"b", "a(x=1/2)"}, "cd"))
        ('ab', ('a(x=1/2)', 'b'))
    """
    return f"{model}/{_BETWEEN.join(sorted(targets))}/{digest}"


def plan_subject(name: str) -> tuple[str, tuple[str, ...]]:
    """Return the model and the targets that a document is about, by its name."""
    model, _, rest = name.partition("/")
    targets = rest.rpartition("/")[0]
    return model, tuple(targets.split(_BETWEEN)) if targets else ()
