"""Typed documents: what is found out once and is no tuning record, each kind a frozen dataclass."""

from __future__ import annotations

import abc
from collections.abc import Iterable
from typing import Any, ClassVar, Protocol, TypeVar

from collage.documents.strict import strict_converter
from collage.store.records import StoredDocument, dumps, loads


class Document(Protocol):
    """A frozen dataclass that the database keeps as JSON.

    Attributes:
        KIND: What it is; with a name it identifies a document.
        VERSION: Of its fields and what they mean; to be raised when either changes.
    """

    KIND: ClassVar[str]
    VERSION: ClassVar[int]


D = TypeVar("D", bound=Document)

_CONVERTER = strict_converter()


class TypedDocuments(abc.ABC):
    """Typed access to the documents of a store, which itself keeps them unread."""

    @abc.abstractmethod
    def put_stored(self, document: StoredDocument) -> None:
        """See `TuningStore`."""

    @abc.abstractmethod
    def put_all_stored(self, documents: Iterable[StoredDocument], *, replace: bool = True) -> int:
        """See `TuningStore`."""

    @abc.abstractmethod
    def get_stored(self, kind: str, name: str) -> StoredDocument | None:
        """See `TuningStore`."""

    def put_document(self, name: str, document: Document) -> None:
        """See `TuningStore`."""
        self.put_stored(_stored(name, document))

    def keep_first(self, name: str, document: D) -> D:
        """See `TuningStore`."""
        if self.put_all_stored([_stored(name, document)], replace=False):
            return document
        known = self.get_document(type(document), name)
        if known is None:  # what another version left
            self.put_document(name, document)
        return document if known is None else known

    def get_document(self, kind: type[D], name: str) -> D | None:
        """See `TuningStore`."""
        stored = self.get_stored(kind.KIND, name)
        if stored is None or stored.version != kind.VERSION:
            return None
        return _understood(stored.body, kind)


def _stored(name: str, document: Document) -> StoredDocument:
    body = _CONVERTER.unstructure(document)
    return StoredDocument(kind=document.KIND, name=name, version=document.VERSION, body=body)


def _understood(body: Any, kind: type[D]) -> D | None:
    """Return the document that a body of JSON is; None if it is not one of this kind, which is then found out anew."""
    try:
        return _CONVERTER.structure(body, kind)
    except Exception:  # cattrs and the constructors raise many types
        return None


def document_to_bytes(document: Document) -> bytes:
    """Return a document as a blob, for one that belongs to a library version and is removed with it."""
    return dumps({"version": document.VERSION, "body": _CONVERTER.unstructure(document)}).encode()


def document_from_bytes(data: bytes, kind: type[D]) -> D | None:
    """Return what `document_to_bytes` was given; None if it is not understood."""
    try:
        held = loads(data.decode())
    except ValueError:
        return None
    if not isinstance(held, dict) or held.get("version") != kind.VERSION:
        return None
    return _understood(held.get("body"), kind)
