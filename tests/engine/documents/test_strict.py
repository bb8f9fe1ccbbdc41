"""What the converter reads is what it writes, and nothing else."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from cattrs import ForbiddenExtraKeysError

from collage.documents.strict import strict_converter


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inner:
    words: frozenset[str] | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outer:
    whole: int
    number: float
    text: str
    flag: bool
    perhaps: float | None
    samples: tuple[float, ...]
    inner: Inner
    limit: int = 3


VALUE = Outer(
    whole=1, number=2.0, text="t", flag=True, perhaps=None, samples=(1.0, 2.5), inner=Inner(words=frozenset("ba"))
)
DOCUMENT = json.loads(json.dumps(strict_converter().unstructure(VALUE)))


def test_a_value_comes_back_and_sets_are_written_in_order() -> None:
    assert strict_converter().structure(DOCUMENT, Outer) == VALUE
    assert DOCUMENT["inner"] == {"words": ["a", "b"]}


@pytest.mark.parametrize(
    "change",
    [
        {"whole": 1.0},
        {"whole": "1"},
        {"whole": True},
        {"number": "2"},
        {"number": True},
        {"number": float("nan")},
        {"number": float("inf")},
        {"text": 3},
        {"flag": 1},
        {"perhaps": "none"},
        {"samples": [1.0, "2"]},
        {"samples": None},
        {"inner": {"words": [1]}},
        {"inner": {}},
        {"more": 1},
    ],
    ids=str,
)
def test_anything_else_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises((TypeError, KeyError, ForbiddenExtraKeysError)):
        strict_converter().structure(DOCUMENT | change, Outer)


def test_unknown_keys_can_be_ignored_and_nothing_else() -> None:
    converter = strict_converter(forbid_extra_keys=False)

    assert converter.structure(DOCUMENT | {"more": 1}, Outer) == VALUE
    with pytest.raises(TypeError, match="expected int, got '1'"):
        converter.structure(DOCUMENT | {"whole": "1"}, Outer)


def test_a_whole_number_is_a_float_where_one_is_wanted() -> None:
    assert strict_converter().structure(DOCUMENT | {"number": 2, "perhaps": 3}, Outer) == dataclasses.replace(
        VALUE, perhaps=3.0
    )
