"""The PostgreSQL store: the contract of every store, versions, reading only, and what errors say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from collage.store import TuningStore, open_database
from collage.store.errors import (
    DatabaseError,
    DatabaseNameError,
    DatabaseReadOnlyError,
    DatabaseUnreachableError,
    DatabaseVersionError,
)
from collage_testing.kit.tuning_stores import KEY, SPACE, TuningStoreConformance, measured
from tests.integration.shared_store.server import PostgresServer

pytestmark = pytest.mark.slow


class TestPostgresStore(TuningStoreConformance):
    @pytest.fixture
    def store(self, database: str) -> Iterator[TuningStore]:
        from collage.store.postgresql import PostgresStore

        with PostgresStore(database) as store:
            yield store


def execute(database: str, *statements: str) -> None:
    import psycopg

    with psycopg.connect(database, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def test_a_database_of_a_later_version_is_refused_and_left_alone(database: str) -> None:
    open_database(database).close()
    execute(database, "UPDATE collage.schema_version SET version = 99")

    for read_only in (False, True):
        with pytest.raises(DatabaseVersionError, match="schema version 99"):
            open_database(database, read_only=read_only)


def test_reading_makes_no_tables_and_writes_nothing(database: str) -> None:
    with pytest.raises(DatabaseError, match="no tables yet"):
        open_database(database, read_only=True)
    with open_database(database) as store:
        store.append(measured())

    with open_database(database, read_only=True) as store:
        assert store.records(KEY) == (measured(),)
        with pytest.raises(DatabaseReadOnlyError):
            store.append(measured(2.0))


def test_a_user_without_rights_is_told_so(server: PostgresServer, database: str) -> None:
    open_database(database).close()
    execute(database, "DROP ROLE IF EXISTS guest", "CREATE ROLE guest LOGIN")

    with pytest.raises(DatabaseError, match="permission denied"):
        open_database(database.replace("tester@", "guest@"))


def test_blobs_stay_with_the_user_unless_trusted(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for user in ("alice", "bob"):
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / user))
        with open_database(database) as store:
            assert store.get_blob(SPACE, "k") is None
            store.put_blob(SPACE, "k", user.encode())
            assert store.get_blob(SPACE, "k") == user.encode()

    trusting = {"COLLAGE_TRUST_SHARED_BLOBS": "1"}
    with open_database(database, environment=trusting) as store:
        assert store.get_blob(SPACE, "k") is None
        store.put_blob(SPACE, "k", b"shared")
    with open_database(database, environment=trusting) as store:
        assert store.get_blob(SPACE, "k") == b"shared"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hush-hush@127.0.0.1:1/db",
        "postgresql://u:hush-hush@[::1/db",
        "postgresql://u@127.0.0.1:port/db?password=hush-hush",
        "postgresql://u:hush-hush@127.0.0.1:1/db?wrong=1",
    ],
)
def test_no_error_shows_a_password(url: str, tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text(url)
    file.chmod(0o600)

    for named, environment in ((f"@{file}", {}), (None, {"COLLAGE_TUNING_DB": url})):
        with pytest.raises((DatabaseNameError, DatabaseUnreachableError)) as caught:
            open_database(named, environment=environment)
        assert "hush" not in str(caught.value)
        assert "hush" not in repr(caught.value.__cause__)
    with pytest.raises(DatabaseNameError, match=r"can be read by others|libpq"):
        open_database(url)


def test_a_server_that_is_not_there_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnreachableError, match="See that it runs"):
        open_database(f"postgresql://tester@/db?host={tmp_path}")
