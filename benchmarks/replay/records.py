"""What a replay reads of tuning records: the one module that knows how samples are kept."""

from __future__ import annotations

import dataclasses
import itertools
import random
import statistics
from collections.abc import Sequence

from collage.store import Purpose, StoredDocument, TuningRecord, block_times_us


def seconds_of(record: TuningRecord) -> float:
    """Return the seconds that a measurement took: building, checking and timing."""
    return float(record.extra.get("seconds", 0.0))


def document_seconds(document: StoredDocument) -> float:
    """Return the seconds that it took to find out what a document says; 0 if it does not say."""
    return float(document.body.get("seconds", 0.0))


def resampled(record: TuningRecord, draw: int | None) -> TuningRecord:
    """Return a record whose blocks, and the samples in each, are drawn anew from its own, with replacement.

    Args:
        record: The record; what was not measured is returned unchanged.
        draw: Seed; None for the record itself.
    """
    if draw is None or not record.samples_us:
        return record
    rng = random.Random(f"{draw} {record.content_id}")
    if not record.blocks:
        samples = rng.choices(record.samples_us, k=len(record.samples_us))
        return dataclasses.replace(record, samples_us=tuple(samples))
    own = iter(record.samples_us)
    taken = [(block, tuple(itertools.islice(own, block.samples))) for block in record.blocks]
    drawn = [(block, rng.choices(samples, k=len(samples))) for block, samples in rng.choices(taken, k=len(taken))]
    return dataclasses.replace(
        record,
        samples_us=tuple(sample for _, samples in drawn for sample in samples),
        blocks=tuple(block for block, _ in drawn),
    )


def shortened(record: TuningRecord, blocks: int, warmup_s: float) -> TuningRecord:
    """Return what a record would be, had its measurement ended after the first blocks.

    Args:
        record: The record; without blocks it is returned unchanged.
        blocks: How many.
        warmup_s: Seconds of timing before the first block.
    """
    if len(record.blocks) <= blocks:
        return record
    kept = record.blocks[:blocks]
    count = sum(block.samples for block in kept)
    timed_s = record.extra.get("timed_s")
    if timed_s is None:  # of before that was recorded, when samples followed each other at once
        timed_s = warmup_s + sum(record.samples_us) * record.extra.get("calls_per_sample", 1) / 1e6
    saved_s = max(0.0, timed_s - warmup_s) * (1 - blocks / len(record.blocks))
    return dataclasses.replace(
        record,
        samples_us=record.samples_us[:count],
        blocks=kept,
        extra={**record.extra, "seconds": round(max(0.0, seconds_of(record) - saved_s), 4)},
    )


def again(records: Sequence[TuningRecord], purpose: Purpose, turn: int) -> TuningRecord:
    """Make up another measurement of a candidate out of those there are, where none can be made.

    Its samples are drawn from one of theirs, and so are the seconds it took.

    Args:
        records: At least one, of one key.
        purpose: Purpose of the new one.
        turn: How many were made up or served before; it chooses the record and seeds the draw.
    """
    chosen = records[turn % len(records)]
    return dataclasses.replace(resampled(chosen, turn), purpose=purpose)


def long_run_us(records: Sequence[TuningRecord], usual_us: float | None = None) -> float:
    """Return the long-run cost of a candidate: the median over its measurements of each one's median.

    Measurements were taken minutes apart, samples of one within a second: they share what disturbed them.

    Args:
        records: All of one key; at least one was measured.
        usual_us: What the calibration kernel usually takes.
    """
    return statistics.median(
        statistics.median(block_times_us(record.samples_us, record.blocks, usual_us))
        for record in records
        if record.samples_us
    )
