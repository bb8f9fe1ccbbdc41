"""Tables that a plugin makes of its code and puts into its README, between marks that name the command."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path


@dataclasses.dataclass(frozen=True, slots=True)
class ReadmeTables:
    """Tables, and the command that prints them or writes them into a page.

    Attributes:
        module: The module that is run.
        make: Makes all tables, in Markdown.
    """

    module: str
    make: Callable[[], str]

    @property
    def begin(self) -> str:
        """The mark before them."""
        return f"<!-- python -m {self.module} --write README.md -->"

    @property
    def end(self) -> str:
        """The mark behind them."""
        return "<!-- end -->"

    def written(self, page: str) -> str:
        """Put the tables between the marks of a page.

        Raises:
            ValueError: If it has not both marks.
        """
        before, begin, rest = page.partition(self.begin)
        _, end, after = rest.partition(self.end)
        if not begin or not end:
            raise ValueError(f"the page has no {self.begin} with {self.end} behind it")
        return f"{before}{begin}\n\n{self.make()}\n\n{end}{after}"

    def main(self, arguments: Sequence[str] | None = None) -> None:
        """Print the tables, or write them into a page.

        Args:
            arguments: The command line's; those of the process if None.
        """
        parser = argparse.ArgumentParser(prog=self.module, description="Prints tables, or writes them into a page.")
        parser.add_argument("--write", type=Path, metavar="PAGE", help="a Markdown file with the two marks")
        page = parser.parse_args(arguments).write
        if page is None:
            print(self.make())
            return
        page.write_text(self.written(page.read_text(encoding="utf-8")), encoding="utf-8")


def table_rows(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Make a table in Markdown, line by line.

    Examples:
        >>> list(table_rows(["a", "b"], [["1", "2"]]))
        ['| a | b |', '| --- | --- |', '| 1 | 2 |']
    """
    for cells in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(cells)} |"
