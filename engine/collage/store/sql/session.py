"""What statements need of a database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

Value: TypeAlias = str | int | float | bytes
"""What a column holds."""
Row: TypeAlias = tuple[Any, ...]
T = TypeVar("T")


class Session(Protocol):
    """Statements within one transaction. Placeholders are question marks; no statement has one elsewhere."""

    def rows(self, statement: str, values: Sequence[Value] = ()) -> list[Row]:
        """Run a statement and return its rows."""

    def change(self, statement: str, values: Sequence[Value] = ()) -> int:
        """Run a statement and return how many rows it changed."""

    def change_each(self, statement: str, rows: Iterable[Sequence[Value]]) -> int:
        """Run a statement once for each row of values, and return how many rows it changed."""


class Database(Protocol):
    """One database, used by one thread at a time.

    Every method but `close` may raise `DatabaseError` or one of its kinds.
    """

    @property
    def url(self) -> str:
        """URL by which a user names it, without secrets."""

    def read(self, work: Callable[[Session], T], *, snapshot: bool = False) -> T:
        """Return what some work returns that only reads.

        Args:
            work: The work; it may be run again, after a lost connection.
            snapshot: Whether all its statements are to see the same state.
        """

    def write(self, work: Callable[[Session], T]) -> T:
        """Return what some work returns whose changes are made all or not at all, and are durable on return.

        Args:
            work: The work; it may be run again, after a lost connection or a conflict with another writer.
        """

    def close(self) -> None:
        """Release it; closing again does nothing, any other call is an error."""
