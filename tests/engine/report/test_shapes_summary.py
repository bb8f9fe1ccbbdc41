"""Plans for several shapes beside each other: what was kept, against what, and where the choice changes."""

from __future__ import annotations

import dataclasses
import io

from rich.console import Console

from collage.report.facts.record import Record
from collage.report.text.shapes_summary import shapes_summary
from tests.engine.report.records import COMPARISON, MODEL, RECORD


def shown(*records: Record) -> list[str]:
    """The lines of a wide console."""
    stream = io.StringIO()
    Console(file=stream, width=160).print(shapes_summary(records))
    return [" ".join(line.split()) for line in stream.getvalue().splitlines()]


def of_batch(batch: int, **changed: object) -> Record:
    record = dataclasses.replace(RECORD, model=dataclasses.replace(MODEL, input_shapes={"x": (batch, 3)}))
    return dataclasses.replace(record, **changed)  # type: ignore[arg-type]


def test_the_ratio_is_of_the_plan_that_was_kept_though_a_mixed_one_lost() -> None:
    mixed, *others = COMPARISON.contenders
    kept = dataclasses.replace(others[0], name="collage", kind="single", ratio=1.0, ratio_ci95=(1.0, 1.0))
    lost = dataclasses.replace(mixed, name="mixed-1", ratio=1.08, ratio_ci95=(1.05, 1.11))
    comparison = dataclasses.replace(COMPARISON, contenders=(kept, lost, *others))

    [row] = [line for line in shown(of_batch(1, comparison=comparison)) if line.startswith("x:[1,3] ")]

    assert "1.000 1.000 - 1.000" in row
    assert "1.080" not in row


def test_a_plan_of_the_same_choices_is_as_above_and_another_is_written_out() -> None:
    other = of_batch(8, regions=RECORD.regions[:1])

    lines = shown(of_batch(1), of_batch(4), other)

    rows = {line.split()[0]: line for line in lines if line.startswith("x:[") and not line.split()[0].endswith(":")}
    assert rows["x:[4,3]"].endswith("as above")
    assert not rows["x:[1,3]"].endswith("as above")
    assert not rows["x:[8,3]"].endswith("as above")
    measured, known = 3 * RECORD.search.measured, 3 * RECORD.search.cache_hits
    assert lines[-1] == f"{measured} candidates were measured, {known} were known from other shapes or earlier runs"
