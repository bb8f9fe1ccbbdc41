"""One PostgreSQL server for all tests, and a database of its own for each."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.shared_store.server import PostgresServer, programs

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    pytest.importorskip("psycopg")
    found = programs()
    if found is None:
        pytest.skip("no PostgreSQL server here: apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    folder.chmod(0o755)
    running = PostgresServer(folder / "s", found)
    running.start()
    try:
        yield running
    finally:
        running.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def database(server: PostgresServer) -> str:
    """The URL of an empty database."""
    return server.make_database(f"test_{next(_NUMBERS)}")
