"""A probe with NaN says where a plan differs from the reference, and exists where that can be seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from collage.build.verifying.nan_probe import NanProbe
from collage.report.facts.record import NAN_AS_EXPECTED

ZEROS = np.zeros((2, 3), np.float32)


def doubled(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"y": 2 * inputs["x"], "n": np.arange(3)}


def probe_of(**inputs: Any) -> NanProbe:
    probe = NanProbe.of(inputs, doubled)
    assert probe is not None
    return probe


def test_each_input_of_numbers_holds_one_nan() -> None:
    probe = probe_of(x=ZEROS, half=np.ones(5, np.float16), ids=np.ones(5, np.int64))

    assert {name: int(np.isnan(value).sum()) for name, value in probe.inputs.items()} == {"x": 1, "half": 1, "ids": 0}
    assert not np.isnan(ZEROS).any()


def test_a_plan_that_keeps_nan_is_told_from_one_that_hides_or_moves_it() -> None:
    probe = probe_of(x=ZEROS)
    moved = np.roll(probe.expected["y"], 1)

    assert probe.found({"y": 3 * probe.inputs["x"], "n": np.arange(3)}) == NAN_AS_EXPECTED
    assert "0 elements of output 'y' are NaN instead of 1" in probe.found({"y": ZEROS, "n": np.arange(3)})
    assert "1 elements of output 'y' are NaN instead of 1" in probe.found({"y": moved, "n": np.arange(3)})


def test_there_is_none_where_nothing_can_be_seen() -> None:
    assert NanProbe.of({"x": np.ones(3, np.int64)}, doubled) is None, "integers"
    assert NanProbe.of({"x": ZEROS}, lambda _: {"y": ZEROS}) is None, "the model hides NaN itself"
    assert NanProbe.of({"x": np.zeros(0, np.float32)}, doubled) is None, "nothing"
