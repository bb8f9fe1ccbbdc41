"""The schema files are what the dataclasses say, and refuse what is not so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import ValidationError

from collage.report.documents.codec import to_jsonable
from collage.report.documents.outputs import plans_json
from tests.engine.report.records import ESTIMATED, RECORD
from tests.json_schemas import FOLDER, SCHEMAS, file_of, text_of
from tests.valid_json import valid

CLI = Path(__file__).parents[1] / "engine" / "collage" / "cli"


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_file_is_what_would_be_written_now(name: str) -> None:
    assert file_of(name).read_text(encoding="utf-8") == text_of(name), "python -m tests.json_schemas --write"


def test_there_is_no_other_schema_file() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {file_of(name).name for name in SCHEMAS}


def test_every_command_with_json_has_a_schema() -> None:
    commands = {
        path.stem.replace("_", "-") for path in CLI.rglob("*.py") if "@json_option" in path.read_text(encoding="utf-8")
    }
    named = {word for whose, _, _ in SCHEMAS.values() for word in whose.replace("`", " ").split()}

    assert commands <= named, "a command without a schema"


def spoilt(change: dict[str, Any]) -> str:
    return json.dumps({**json.loads(plans_json([RECORD])), **change})


def test_what_is_as_it_says_passes() -> None:
    valid("plan", plans_json([RECORD]))
    valid("plan", plans_json([RECORD, ESTIMATED]))


@pytest.mark.parametrize(
    "change",
    [
        {"predicted_ms": "fast"},
        {"decision": None},
        {"surprise": 1},
        {"regions": [{"id": "k0000"}]},
        {"model": {**to_jsonable(RECORD.model), "nodes": 1.5}},
        {"search": {**to_jsonable(RECORD.search), "exact": "yes"}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_is_not_as_it_says_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        valid("plan", spoilt(change))
