"""Tables that fit the screen: what does not fit is left out by column, and no word is broken."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_WIDE = 10_000
"""Columns at which every table has its natural width."""


class FittedTable(Table):
    """A table that leaves out columns where the screen is too narrow for their longest words.

    Args:
        drop: Headers of the columns that may be left out, in the order in which they are.
    """

    def __init__(self, drop: Sequence[str] = ()) -> None:
        super().__init__(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True, padding=(0, 1))
        self._drop = tuple(drop)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the columns that fit."""
        yield from super(FittedTable, self._fitted(console, options)).__rich_console__(console, options)

    def _fitted(self, console: Console, options: ConsoleOptions) -> FittedTable:
        """Return the table without the columns that do not fit, the others at least as wide as their words."""
        wide = options.update(width=_WIDE, max_width=_WIDE)
        table = self._without("")
        for header in self._drop:
            if table._least(console, wide) <= options.max_width:
                break
            table = table._without(header)
        room = options.max_width - table._least(console, wide)
        if room >= 0:
            # rich would take what lacks from the widest column alone, and break its words
            for column, (least, most) in zip(table.columns, table._widths(console, wide), strict=True):
                more = min(room, most - least)
                column.width = least + more
                room -= more
        return table

    def _least(self, console: Console, wide: ConsoleOptions) -> int:
        """Return the width of the table if every column is as narrow as it can be without breaking a word."""
        widths = self._widths(console, wide)
        borders = Measurement.get(console, wide, self).maximum - sum(most for _, most in widths)
        return borders + sum(least for least, _ in widths)

    def _widths(self, console: Console, wide: ConsoleOptions) -> list[tuple[int, int]]:
        """Return the least width of each column's content, and its natural width."""
        found = []
        for column in self.columns:
            cells = [Measurement.get(console, wide, cell) for cell in (column.header, *column.cells)]
            most = max(cell.maximum for cell in cells)
            found.append((most if column.no_wrap else max(cell.minimum for cell in cells), most))
        return found

    def _without(self, header: str) -> FittedTable:
        """Return a copy of the table without the columns of a header."""
        table = copy.copy(self)
        kept = [column for column in self.columns if str(column.header) != header]
        table.columns = [copy.copy(column) for column in kept]
        for number, column in enumerate(table.columns):
            column._index = number
        return table


def plain_table(*headers: str, drop: Sequence[str] = ()) -> FittedTable:
    """Create a table; a header that begins with `>` right-aligns its column.

    Args:
        *headers: Headers of the columns.
        drop: Headers of the columns that are left out where the screen is narrow, the first one first.
    """
    table = FittedTable(drop)
    for header in headers:
        right = header.startswith(">")
        table.add_column(
            Text(header.removeprefix(">")),
            justify="right" if right else "left",
            no_wrap=right,
            # what is longer than the screen is cut, and seen to be
            overflow="ellipsis",
        )
    return table


def add_cells(table: Table, *cells: str, style: str = "") -> None:
    """Add a row of plain text."""
    table.add_row(*(Text(cell) for cell in cells), style=style)
