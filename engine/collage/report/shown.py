"""Reports that show themselves: as text where they are printed, as HTML in a notebook."""

from __future__ import annotations

import abc
import dataclasses
import html
import io
from collections.abc import Sequence
from typing import Any, Self

from rich.console import Console, RenderableType

from collage.report.facts.bench_facts import BenchReport
from collage.report.facts.compare_facts import CompareReport
from collage.report.facts.inspect_facts import InspectReport
from collage.report.facts.record import Record
from collage.report.text.explanation import WIDTH, explain
from collage.report.text.fact_tables import bench_summary, compare_summary, inspect_summary

_BLOCK = '<pre style="white-space: pre; overflow-x: auto; line-height: normal; font-family: monospace">{code}</pre>'


class Shown(abc.ABC):
    """What shows itself: `str` gives text, IPython and Jupyter show HTML, `rich` prints it in colour."""

    __slots__ = ()

    @abc.abstractmethod
    def __rich__(self) -> RenderableType:
        """Return what `rich` prints."""

    def __str__(self) -> str:
        console = _console()
        console.print(self)
        return str(console.export_text()).rstrip("\n")

    def _repr_html_(self) -> str:
        console = _console()
        console.print(self)
        return str(console.export_html(inline_styles=True, code_format=_BLOCK))


class _ShownReport(Shown):
    """A report of facts that shows itself: a subclass names what it shows."""

    __slots__ = ()

    @classmethod
    def of(cls, report: Any) -> Self:
        """Return a report as one that shows itself.

        Args:
            report: An instance of the class of facts that this one extends.
        """
        return cls(**{field.name: getattr(report, field.name) for field in dataclasses.fields(report)})


class ShownInspectReport(_ShownReport, InspectReport):
    """What `collage.inspect` returns."""

    __slots__ = ()

    def __rich__(self) -> RenderableType:
        """Return the tables of `collage inspect`."""
        return inspect_summary(self)


class ShownBenchReport(_ShownReport, BenchReport):
    """What `collage.bench` returns."""

    __slots__ = ()

    def __rich__(self) -> RenderableType:
        """Return the table of `collage bench`."""
        return bench_summary(self)


class ShownCompareReport(_ShownReport, CompareReport):
    """What `collage.compare` returns."""

    __slots__ = ()

    def __rich__(self) -> RenderableType:
        """Return the table of `collage compare`."""
        return compare_summary(self)


@dataclasses.dataclass(frozen=True, slots=True)
class Explanation:
    """What `collage.explain` returns: why each region of a plan went where it did.

    Attributes:
        records: Record of each plan: one, or one for each set of input shapes.
        everything: Whether every node of every region and refusal is named.
    """

    records: Sequence[Record]
    everything: bool = False

    def __str__(self) -> str:
        texts = [explain(record, width=WIDTH, everything=self.everything) for record in self.records]
        return "\n".join(texts).rstrip("\n")

    def _repr_html_(self) -> str:
        return _BLOCK.format(code=html.escape(str(self)))


def _console() -> Console:
    return Console(record=True, file=io.StringIO(), width=WIDTH, markup=False, highlight=False, emoji=False)
