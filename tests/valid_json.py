"""Validate what commands wrote with `--json` against the schema files that the documentation has of it."""

from __future__ import annotations

import functools
import json
from typing import Any

from jsonschema import Draft202012Validator

from tests.json_schemas import file_of


def valid(name: str, text: str) -> Any:
    """Return the document after validating it against a schema file.

    Raises:
        ValidationError: If it does not conform; the error has the place.
    """
    document = json.loads(text)
    _validator(name).validate(document)
    return document


@functools.cache
def _validator(name: str) -> Draft202012Validator:
    schema = json.loads(file_of(name).read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)
