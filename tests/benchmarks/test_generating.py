"""Generating with a cache that grows: the loop, the limits and the page."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from benchmarks.generating import TEXTS, TOKENS, exceeded, generated, markdown, ratio_of
from benchmarks.models.varying import GPT2_LAYERS
from benchmarks.sessions import OWN

ENVIRONMENT = {"date": "2026-01-01T00:00:00", "host": {"cpu": "c", "cores": 2, "system": "s"}, "versions": {}}


def report(own: float = 0.9, later: float = 0.8, *, same: bool = True) -> dict[str, Any]:
    first = {OWN: [[own * 30e3] * 8] * 12, "onnxruntime": [[30e3] * 8] * 12, "openvino": [[40e3] * 8] * 12}
    after = {OWN: [[later * 20e3] * 16] * 12, "onnxruntime": [[30e3] * 16] * 12, "openvino": [[20e3] * 16] * 12}
    return {
        "environment": ENVIRONMENT,
        "result": {
            "optimize": {"seconds": 60.0, "plans": [{"measured": 17, "plan": [["onnxruntime", 400]]}]},
            "times_us": {"first": first, "later": after},
            "same": dict.fromkeys(first, True) | {OWN: same},
            "tokens": [[1] * TOKENS] * TEXTS,
        },
    }


def test_what_a_step_returns_is_given_to_the_next() -> None:
    lengths = []

    def step(feeds: Mapping[str, np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        past = [array for name, array in feeds.items() if name != "input_ids"]
        lengths.append({array.shape[2] for array in past})
        logits = np.zeros((1, 1, 100), np.float32)
        logits[0, 0, (int(feeds["input_ids"][0, 0]) + 1) % 100] = 1
        return [
            logits,
            *(np.concatenate([array, array[:, :, :1]], 2) if array.size else np.ones((1, 12, 1, 64)) for array in past),
        ]

    tokens, times_us = zip(*generated(step), strict=True)

    assert lengths == [{length} for length in range(TOKENS)]
    assert all((after - before) % 100 == 1 for before, after in itertools.pairwise(tokens))
    assert len(times_us) == TOKENS
    assert GPT2_LAYERS == 6


@pytest.mark.parametrize(
    ("changed", "count"), [({}, 0), ({"own": 1.1}, 1), ({"own": 1.1, "later": 1.2}, 2), ({"same": False}, 1)]
)
def test_what_is_not_as_it_has_to_be_is_named(changed: dict[str, Any], count: int) -> None:
    assert len(exceeded(report(**changed))) == count


def test_the_page_has_a_row_for_each_contender() -> None:
    page = markdown(report())

    assert ratio_of(report()["result"], "first")[0] == "onnxruntime"
    assert ratio_of(report()["result"], "later")[0] == "openvino"
    own = "0.900 [0.900, 0.900] of onnxruntime | 16.00 | 0.800 [0.800, 0.800] of openvino"
    assert f"| collage | 27.00 | {own} | yes |" in page
    assert "17 candidates were measured in 60 s. Plan: onnxruntime: 400 nodes." in page
