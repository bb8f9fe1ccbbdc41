"""What models and targets the entries of a database are about."""

from __future__ import annotations

import dataclasses
import functools
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


class ModelKernels:
    """The kernels that a model asked for, in this run and before.

    Args:
        store: Where that is noted.
        model: SHA-256 of the model's file; nothing is noted if it is empty.
    """

    def __init__(self, store: TuningStore, model: str) -> None:
        self._store = store
        self._model = model
        self._noted: set[str] = set()

    @functools.cached_property
    def before(self) -> frozenset[str]:
        """Structural hashes of those that earlier runs asked for, as in `RecordKey`."""
        return kernels_of(self._store, self._model) if self._model else frozenset()

    def note(self, hashes: Iterable[str]) -> None:
        """Record that the model asks for kernels; what is known already is not written again."""
        new = set(hashes) - self._noted - self.before
        if new and self._model:
            self._noted |= new
            notes = [
                StoredDocument(
                    kind=KernelOfModel.KIND, name=f"{self._model}/{each}", version=KernelOfModel.VERSION, body={}
                )
                for each in sorted(new)
            ]
            self._store.put_all_stored(notes, replace=False)


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
