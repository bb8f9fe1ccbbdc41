from __future__ import annotations

from pathlib import Path

import pytest

from collage.store import MemoryStore, SqliteStore, default_path, open_database
from collage.store.errors import DatabaseError


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
