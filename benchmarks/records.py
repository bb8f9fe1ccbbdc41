"""Read what packages say of their plans."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any


def record_of(package: Path) -> dict[str, Any]:
    """Return the record of a package, as JSON."""
    with zipfile.ZipFile(package) as archive:
        record: dict[str, Any] = json.loads(archive.read("record.json"))
    return record


def plan_of(package: Path) -> list[dict[str, Any]]:
    """Return the kernels of a package's plan: target and nodes of each, in the record's order."""
    return [{"target": region["target"], "nodes": region["nodes"]} for region in record_of(package)["regions"]]
