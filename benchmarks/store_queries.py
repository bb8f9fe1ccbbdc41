"""Count the queries of a warm `optimize` of a 12-layer BERT, and compare its time over PostgreSQL with SQLite.

Usage:
    python -m benchmarks.store_queries --postgres URL --work DIR [--results FILE.json] [--runs N]

`URL` names an empty database of a server on this machine. A cold run fills a SQLite database, which is copied to the
server. Then each warm run searches, builds and decides again over what is known, in a process of its own; the two
stores take turns. Every statement counts as a query.

Exits with 1 if a warm run issues more than 60 queries, or takes more than a tenth longer over PostgreSQL.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.models.stacked import ENTRY
from benchmarks.page import environment, head, lines_of, noting, written
from collage.measure.statistics import median_interval, ratio_interval

MOST_QUERIES: Final = 60
MOST_RATIO: Final = 1.1
STORES: Final = ("SQLite", "PostgreSQL")


def counted(run: Callable[[], Any]) -> tuple[Any, Counter[str]]:
    """Return what some work returns, and how often it asked a store what: statements by their first words."""
    from collage.store.postgresql.postgres_database import PostgresSession
    from collage.store.sqlite.sqlite_database import SqliteSession

    queries: Counter[str] = Counter()
    for session in (SqliteSession, PostgresSession):
        for name in ("rows", "change", "change_each"):
            _count(session, name, queries)
    return run(), queries


def _count(session: type, name: str, queries: Counter[str]) -> None:
    asked = getattr(session, name)

    def counting(self: Any, statement: str, *values: Any) -> Any:
        queries[" ".join(statement.split()[:4])] += 1
        return asked(self, statement, *values)

    setattr(session, name, counting)


def one_run(model: Path, database: str, report: Path) -> None:
    """Optimize a model in this process, and write seconds and queries to a file."""
    from collage.commands.optimize import optimize
    from collage.options import OptimizeOptions

    options = OptimizeOptions(toolchains="onnxruntime,openvino", tuning_db=database)
    began = time.monotonic()
    found, queries = counted(lambda: optimize(model, options))
    result = {
        "seconds": round(time.monotonic() - began, 3),
        "measured": found.record.search.measured,
        "queries": dict(queries.most_common()),
    }
    report.write_text(json.dumps(result), encoding="utf-8")


def in_a_process(model: Path, database: str, work: Path) -> dict[str, Any]:
    """Run `one_run` in a process of its own and return its result.

    Raises:
        CalledProcessError: If it fails.
    """
    report = work / "run.json"
    command = [sys.executable, "-m", "benchmarks.store_queries", "--one", str(model), database, str(report)]
    subprocess.run(command, check=True)
    result: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return result


def ratio(report: Mapping[str, Any]) -> tuple[float, float, float]:
    """Return the time over PostgreSQL as a multiple of that over SQLite, and its 95 % interval."""
    seconds = {store: [[each["seconds"]] for each in report["runs"][store]] for store in STORES}
    found = ratio_interval(seconds["PostgreSQL"], seconds["SQLite"], seed=0)
    return found.value, found.low, found.high


def most_queries(report: Mapping[str, Any], store: str) -> int:
    """Return the queries of the run with most."""
    return max(int(sum(each["queries"].values())) for each in report["runs"][store])


def lost(report: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each figure that does not hold."""
    said = [
        f"{store}: {most_queries(report, store)} queries"
        for store in STORES
        if most_queries(report, store) > MOST_QUERIES
    ]
    said += [f"{store}: a warm run measured" for store in STORES if any(e["measured"] for e in report["runs"][store])]
    value, *_ = ratio(report)
    return [*said, *([f"PostgreSQL takes {value:.3f} of the time"] if value > MOST_RATIO else [])]


def markdown(report: Mapping[str, Any]) -> str:
    """Format the results as a page."""
    how = (
        "A warm `optimize` of a 12-layer BERT (ONNX Runtime and OpenVINO, default settings): all that it asks for is "
        f"in the tuning database. {len(report['runs'][STORES[0]])} runs over each store, in turns, each in a process "
        "of its own; the server is on the same machine. Every statement is a query."
    )
    lines = head("Queries of a search", report["environment"], how, "one process and its workers")
    rows = []
    for store in STORES:
        seconds = median_interval([each["seconds"] for each in report["runs"][store]])
        rows.append(
            (store, f"{seconds.value:.2f} [{seconds.low:.2f}, {seconds.high:.2f}]", str(most_queries(report, store)))
        )
    lines += lines_of(("store", "seconds", "queries, at most"), rows)
    value, low, high = ratio(report)
    lines += ["", f"Over PostgreSQL it takes {value:.3f} [{low:.3f}, {high:.3f}] of the time over SQLite."]
    said = lost(report)
    lines += ["", "Not held: " + "; ".join(said) + "." if said else "No figure is above its limit."]
    queries = report["runs"]["PostgreSQL"][0]["queries"]
    lines += ["", "Statements of a run over PostgreSQL:", "", *lines_of(("statement", "times"), _rows(queries))]
    return "\n".join(lines) + "\n"


def _rows(queries: Mapping[str, int]) -> list[tuple[str, str]]:
    return [(f"`{statement}`", str(count)) for statement, count in queries.items()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything; return 1 if a figure does not hold."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:1] == ["--one"]:
        given_model, database, to = given[1:]
        one_run(Path(given_model), database, Path(to))
        return 0
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store_queries", description=__doc__)
    parser.add_argument("--postgres", required=True, metavar="URL", help="an empty database on this machine")
    parser.add_argument("--work", type=Path, default=Path("demo-out/queries"), metavar="DIR", help="folder for files")
    parser.add_argument("--results", type=Path, metavar="FILE.json", help="write everything there and a page beside it")
    parser.add_argument("--runs", type=int, default=10, metavar="N", help="warm runs over each store")
    noting(parser)
    options = parser.parse_args(given)
    options.work.mkdir(parents=True, exist_ok=True)
    from collage.store import merge, open_database

    model, file = options.work / "bert_base_12.onnx", options.work / "tuning.sqlite3"
    if not model.exists():
        model.write_bytes(ENTRY.build().SerializeToString())
    databases = {"SQLite": str(file), "PostgreSQL": options.postgres}
    print("cold", json.dumps(in_a_process(model, str(file), options.work)), flush=True)
    with open_database(file, read_only=True) as known, open_database(options.postgres) as server:
        merge(server, known, cached_files=True)
    for store, database in databases.items():  # what each keeps for itself alone is there afterwards
        print(store, json.dumps(in_a_process(model, database, options.work)), flush=True)
    runs: dict[str, list[dict[str, Any]]] = {store: [] for store in STORES}
    for turn in range(options.runs):
        for store in STORES if turn % 2 else STORES[::-1]:
            runs[store].append(in_a_process(model, databases[store], options.work))
            print(store, json.dumps(runs[store][-1]), flush=True)
    report = {"schema_version": 1, "environment": environment(), "runs": runs}
    if options.results:
        written(options.results, report, markdown(report), options.note, afresh=True)
    said = lost(report)
    print("; ".join(said) or "no figure is above its limit")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
