"""Read what packages say of their plans, and tuning databases of their kernels."""

from __future__ import annotations

import collections
import json
import zipfile
from pathlib import Path
from typing import Any

from collage.store import SqliteStore


def record_of(package: Path) -> dict[str, Any]:
    """Return the record of a package, as JSON."""
    with zipfile.ZipFile(package) as archive:
        record: dict[str, Any] = json.loads(archive.read("record.json"))
    return record


def plan_of(package: Path) -> list[dict[str, Any]]:
    """Return the kernels of a package's plan: target and nodes of each, in the record's order."""
    return [{"target": region["target"], "nodes": region["nodes"]} for region in record_of(package)["regions"]]


def built_in(database: Path) -> dict[str, dict[str, Any]]:
    """Return what building kernels took of each toolchain, all variants of a kernel together.

    Returns:
        By toolchain: `kernels`, how many were built; `failed`, of how many nothing could be measured; `seconds` of all
        of them; and `longest`, the seconds of one.
    """
    found: dict[str, list[tuple[str, float]]] = collections.defaultdict(list)
    with SqliteStore(database, read_only=True) as store:
        for record in store.all_records():
            toolchain = record.key.target.partition("(")[0]
            found[toolchain].append((record.outcome, float(record.extra.get("build_s", 0.0))))
    return {
        toolchain: {
            "kernels": len(built),
            "failed": sum(outcome != "measured" for outcome, _ in built),
            "seconds": round(sum(seconds for _, seconds in built), 2),
            "longest": round(max(seconds for _, seconds in built), 2),
        }
        for toolchain, built in sorted(found.items())
    }
