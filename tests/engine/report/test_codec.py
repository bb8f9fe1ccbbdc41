from __future__ import annotations

import dataclasses
import json
import math

import pytest

from collage.errors import RecordError
from collage.report.documents.codec import read_part, record_from_document, to_json, to_jsonable
from collage.report.facts.device_facts import DeviceWorkFacts
from collage.report.facts.record import Record
from tests.engine.report.records import GPU, RECORD, WORK


def test_a_record_comes_back_as_it_was() -> None:
    assert record_from_document(json.loads(to_json(RECORD))) == RECORD


def test_devices_and_what_they_do_come_back_as_they_were() -> None:
    record = dataclasses.replace(RECORD, devices=(GPU,), device_work=WORK)

    assert record_from_document(json.loads(to_json(record))) == record
    assert read_part(to_jsonable(WORK), DeviceWorkFacts, "x") == WORK
    with pytest.raises(RecordError, match="copies"):
        read_part(to_jsonable(WORK) | {"copies": "many"}, DeviceWorkFacts, "copies")


def test_equal_records_are_the_same_bytes_whatever_order_their_mappings_were_filled_in() -> None:
    seconds = dict(reversed(list(RECORD.search.seconds.items())))
    turned = dataclasses.replace(RECORD, search=dataclasses.replace(RECORD.search, seconds=seconds))

    assert to_json(turned) == to_json(RECORD)


def test_an_integer_given_for_a_number_is_written_as_one() -> None:
    assert to_json(dataclasses.replace(RECORD, predicted_ms=88)) == to_json(
        dataclasses.replace(RECORD, predicted_ms=88.0)
    )


@pytest.mark.parametrize("error", [math.inf, -math.inf, math.nan])
def test_an_error_without_a_number_survives(error: float) -> None:
    text = to_json(dataclasses.replace(RECORD, max_error=error))

    assert repr(record_from_document(json.loads(text)).max_error) == repr(error)
    assert "NaN" not in text
    assert "Infinity" not in text


def changed(**changes: object) -> dict[str, object]:
    return {**to_jsonable(RECORD), **changes}


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        (changed(schema_version=1), "schema version is 1, this Collage reads 2"),
        ({"decision": "none"}, "it has no schema_version"),
        ([1, 2], "it has no schema_version"),
        (changed(surprise=1), "surprise"),
        (changed(threads="2"), "expected int, got '2'"),
        (changed(threads=True), "expected int, got True"),
        (changed(predicted_ms="fast"), "expected a number, got 'fast'"),
        ({key: value for key, value in changed().items() if key != "regions"}, "regions"),
    ],
)
def test_anything_else_is_refused_naming_where_it_is_from(document: object, complaint: str) -> None:
    with pytest.raises(RecordError) as caught:
        record_from_document(document, "a.collage")

    assert caught.value.source == "a.collage"
    assert complaint in str(caught.value)


def test_every_field_of_a_record_is_written() -> None:
    assert list(json.loads(to_json(RECORD))) == [field.name for field in dataclasses.fields(Record)]
