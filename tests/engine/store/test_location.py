from __future__ import annotations

from pathlib import Path

import pytest

from collage.store import MemoryStore, SqliteStore, default_path, is_shared, open_database, shown_name
from collage.store.errors import DatabaseError, DatabaseNameError


def test_a_url_and_a_path_name_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "db"
    for name in (f"sqlite:///{path}", str(path), path):
        with open_database(name) as store:
            assert isinstance(store, SqliteStore)
            assert store.url == f"sqlite:///{path}"


def test_memory_is_kept_nowhere() -> None:
    with open_database("memory:") as store:
        assert isinstance(store, MemoryStore)


def test_the_environment_names_the_database_unless_the_user_does(tmp_path: Path) -> None:
    environment = {"COLLAGE_TUNING_DB": str(tmp_path / "theirs")}
    with open_database(environment=environment) as store:
        assert store.url == f"sqlite:///{tmp_path / 'theirs'}"
    with open_database("memory:", environment=environment) as store:
        assert store.url == "memory:"


def test_by_default_it_is_among_the_users_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platformdirs.user_data_path", lambda *_, **__: tmp_path)

    with open_database(environment={"COLLAGE_TUNING_DB": ""}) as store:
        assert store.url == f"sqlite:///{default_path()}"


@pytest.mark.parametrize("url", ["sqlite:", "sqlite://host/db", "sqlite:///", "mysql://u:p@x/db", ""])
def test_another_url_is_an_error(url: str) -> None:
    with pytest.raises(DatabaseError, match="sqlite:///"):
        open_database(url)


SECRET = "postgresql://alice:hush@db.example:5433/team?sslmode=require&password=hush"


@pytest.mark.parametrize(
    ("named", "shown"),
    [
        (SECRET, "postgresql://db.example:5433/team"),
        ("postgres://alice:hush@db.example/team", "postgresql://db.example/team"),
        ("postgresql://alice:hush@[::1/team", "postgresql://..."),
        ("@/home/alice/url", "@/home/alice/url"),
        ("relative.sqlite3", "relative.sqlite3"),
    ],
)
def test_what_is_shown_of_the_usual_database_has_no_secrets(named: str, shown: str) -> None:
    assert shown_name(environment={"COLLAGE_TUNING_DB": named}) == shown


@pytest.mark.parametrize("url", ["postgresql://u:hush@x/db", "postgresql://x/db?password=hush"])
def test_a_password_in_an_argument_is_refused(url: str) -> None:
    with pytest.raises(DatabaseNameError, match="can be read by others") as caught:
        open_database(url, environment={})

    assert "hush" not in str(caught.value)


def test_a_file_names_the_database_if_only_its_owner_may_read_it(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text(f"sqlite:///{tmp_path / 'db'}\n")
    file.chmod(0o644)
    with pytest.raises(DatabaseNameError, match=f"others may read the file: chmod 600 {file}"):
        open_database(f"@{file}")

    file.chmod(0o600)
    with open_database(f"@{file}") as store:
        assert store.url == f"sqlite:///{tmp_path / 'db'}"


@pytest.mark.parametrize("text", ["", "one\ntwo\n", "@other"])
def test_a_file_has_one_url(text: str, tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text(text)
    file.chmod(0o600)

    with pytest.raises(DatabaseNameError, match="the file is to have one line, the URL"):
        open_database(f"@{file}")


@pytest.mark.parametrize(
    ("named", "shared"), [("postgresql://x/db", True), ("postgresql.sqlite3", False), ("memory:", False)]
)
def test_a_server_is_shared(named: str, shared: bool) -> None:
    assert is_shared(named) == shared
