"""Which records count for a version of a plugin."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from collage.store.records import Purpose, TuningRecord


def applicable(
    records: Iterable[TuningRecord], plugin: str, is_failure: Callable[[TuningRecord], bool]
) -> list[TuningRecord]:
    """Return the records that count for a version of a plugin, in their order.

    A failure of another version says nothing: the kernel may be mended. A time of another version is better than none:
    of each purpose those of this version count or, where it has none, those of the version that was measured last.

    Args:
        records: The records of a key, of any version, in the order they were taken.
        plugin: The version.
        is_failure: Returns whether a record makes a candidate unusable.
    """
    kept = [record for record in records if record.key.plugin == plugin or not is_failure(record)]
    deciding: dict[Purpose, str] = {}
    for record in kept:
        if deciding.get(record.purpose) != plugin:
            deciding[record.purpose] = record.key.plugin
    return [record for record in kept if record.key.plugin == deciding[record.purpose]]
