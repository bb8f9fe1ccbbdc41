from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from collage.store.records import RecordKey, TuningRecord, from_json, to_json
from collage_core.contract import Block

KEY = RecordKey(structural_hash="h", target="t", fingerprint="f", host="c", threads=2, launch="eager", timing="t")
RECORD = TuningRecord(
    key=KEY,
    outcome="measured",
    purpose="select",
    created="2026-01-01T00:00:00+00:00",
    samples_us=(1.5,),
)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"samples_us": ()}, "if, and only if"),
        ({"outcome": "failed"}, "if, and only if"),
        ({"samples_us": (float("nan"),)}, "finite"),
        ({"samples_us": (-1.0,)}, ">= 0"),
        ({"blocks": (Block(samples=2, calibration_us=1.0),)}, "in one block"),
        ({"error": float("inf")}, "error is finite"),
        ({"created": "yesterday"}, "isoformat"),
        ({"created": "2026-01-01T00:00:00"}, "offset"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(RECORD, **fields)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"warmup_runs":0', '"warmup_runs":"0"'),
        ('"warmup_runs":0', '"warmup_runs":true'),
        ('"warmup_runs":0', '"warmup_runs":0,"more":0'),
        ('"purpose":"select"', '"purpose":"play"'),
        ('"error":null', '"error":"0.5"'),
        ('"reason":""', '"reason":null'),
        ('"extra":{}', '"extra":[]'),
        ("[1.5]", "[NaN]"),
        ('"blocks":[]', '"blocks":[{"samples":1}]'),
        ("[1.5]", "[]"),
        ('"threads":2', '"threads":2.0'),
        ('"outcome":"measured",', ""),
    ],
)
def test_json_is_read_strictly(old: str, new: str) -> None:
    text = to_json(RECORD)
    assert old in text

    with pytest.raises(ValueError, match=r"JSON|TuningRecord"):
        from_json(text.replace(old, new), TuningRecord)


@pytest.mark.parametrize("text", ["", "[]", "1", "null", "{", '{"key":5}', "[" * 200_000])
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        from_json(text, TuningRecord)


def test_a_record_of_an_unknown_plugin_keeps_its_identifier() -> None:
    text = to_json(RECORD)

    assert "plugin" not in text
    assert from_json(text, TuningRecord) == RECORD
    known = dataclasses.replace(RECORD, key=dataclasses.replace(KEY, plugin="p 1"))
    assert from_json(to_json(known), TuningRecord) == known
    assert known.content_id != RECORD.content_id


def test_numbers_of_any_kind_give_the_same_record() -> None:
    of_numpy: Any = tuple(np.array([2.0], dtype=np.float32))
    whole = dataclasses.replace(RECORD, samples_us=(2,), blocks=(Block(samples=1, calibration_us=3),))
    floats = dataclasses.replace(whole, samples_us=of_numpy, blocks=(Block(samples=1, calibration_us=3.0),))

    assert whole.content_id == floats.content_id
    assert from_json(to_json(whole), TuningRecord).content_id == whole.content_id
