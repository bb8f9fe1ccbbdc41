"""Find what nothing that is installed can use any more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from collage.store.plugin_versions import applicable
from collage.store.records import RecordKey, TuningRecord, of_any_plugin
from collage.store.tuning_store import Removal, TuningStore
from collage_core.contract import TargetSpelling


def unusable(
    store: TuningStore, fingerprints: Collection[str], plugins: Mapping[str, str], keep: Collection[str] = ()
) -> Removal:
    """Return the records, attempts and blobs that no installed version of a library or plugin can use.

    Args:
        store: Where they are.
        fingerprints: Versions of libraries whose records and blobs are of use.
        plugins: Installed version of each toolchain's plugin; records of a toolchain that is not named are of use
            whichever version made them.
        keep: Other versions of plugins whose records are of use.
    """
    by_key: dict[RecordKey, list[TuningRecord]] = defaultdict(list)
    stale: set[str] = set()
    for record in store.all_records():
        by_key[of_any_plugin(record.key)].append(record)
    for key, records in by_key.items():
        plugin = plugins.get(toolchain_of(key.target))
        useful = records if plugin is None else applicable(records, plugin, lambda each: each.outcome != "measured")
        if key.fingerprint not in fingerprints:
            stale.update(record.content_id for record in records)
        stale.update(record.content_id for record in records if record not in useful and record.key.plugin not in keep)
    attempts = {
        key
        for key in store.attempt_keys()
        if key.fingerprint not in fingerprints
        or key.plugin not in (plugins.get(toolchain_of(key.target), key.plugin), *keep)
    }
    blobs = {place for place in store.blob_keys() if place[0].fingerprint not in fingerprints}
    return Removal(records=frozenset(stale), attempts=frozenset(attempts), blobs=frozenset(blobs))


def toolchain_of(target: str) -> str:
    """Return the toolchain of a target's name; the name itself if it is none that a target can have."""
    try:
        return TargetSpelling.parse(target).toolchain
    except ValueError:
        return target
