"""All databases of a folder as one compressed file, so that anybody may replay the searches and measure nothing."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.regret.work import Work
from benchmarks.replay.bench import Machine
from collage.store import export_lines, import_lines
from collage_core.contract import Host

_BLOB = '{"blob"'


def write_archive(file: Path, work: Work, names: Sequence[str], machine: Machine) -> None:
    """Write the records of models, as JSON lines in an XZ file.

    A line for the machine; then for each model a line with its name and known candidates, before the lines of its
    database's export, without what toolchains cached.

    Args:
        file: Where to.
        work: Folder of the databases.
        names: Models whose database is filled.
        machine: What they were filled on.
    """
    host = machine.host
    facts = {
        "system": host.system,
        "cpu": host.cpu,
        "physical_cores": host.physical_cores,
        "cpu_flags": sorted(host.cpu_flags),
        "memory_bytes": host.memory_bytes,
    }
    with lzma.open(file, "wt", encoding="utf-8", preset=9) as stream:
        print(json.dumps({"machine": facts, "dispatch_us": machine.dispatch_us, "timing": machine.timing}), file=stream)
        for name in names:
            known, filled = (json.loads(path.read_text("utf-8")) for path in (work.known(name), work.filled(name)))
            print(json.dumps({"model": name, "known": known, "filled": filled}), file=stream)
            with work.store(name) as store:
                for line in export_lines(store):
                    if not line.startswith(_BLOB):
                        print(line, file=stream)


def read_archive(file: Path, work: Work) -> Machine:
    """Add the models of an archive to a folder; those whose database is filled there stay as they are.

    Args:
        file: What `write_archive` wrote.
        work: Folder of the databases.

    Returns:
        The machine on which they were filled.
    """
    with lzma.open(file, "rt", encoding="utf-8") as stream:
        first = json.loads(next(stream))
        for model, lines in _by_model(stream):
            name = model["model"]
            if work.filled(name).is_file():
                continue
            with work.store(name) as store:
                import_lines(store, lines, source=f"{file}, {name}")
            work.known(name).write_text(json.dumps(model["known"]) + "\n", encoding="utf-8")
            work.filled(name).write_text(json.dumps(model["filled"]) + "\n", encoding="utf-8")
    facts = {**first["machine"], "cpu_flags": frozenset(first["machine"]["cpu_flags"])}
    # an archive without it is of before kernels were timed behind other work
    return Machine(host=Host(**facts), dispatch_us=first["dispatch_us"], timing=first.get("timing", "blocks 1"))


def _by_model(lines: Iterable[str]) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Yield the line of each model, parsed, with the lines of its export."""
    model: dict[str, Any] | None = None
    export: list[str] = []
    for line in lines:
        if line.startswith('{"model"'):
            if model is not None:
                yield model, export
            model, export = json.loads(line), []
        else:
            export.append(line)
    if model is not None:
        yield model, export
