"""Times of OpenVINO's counters belong to the nodes they are of, whatever it fused, split and reordered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collage_openvino.profile
from collage_core.contract import KernelProfile, Target
from collage_openvino.plugin import plugin
from collage_testing.kit.profiling import BLOCKS, profiled

TARGET = Target(toolchain="openvino", fingerprint="test")
FEEDS = {"If, Loop": {"x": np.full((64, 64), 0.01, np.float32), "c": np.array(True)}}


def profile(block: str, scratch: Path, *, runs: int = 1) -> KernelProfile:
    return profiled(plugin, TARGET, BLOCKS[block](), scratch, feeds=FEEDS.get(block), runs=runs)


def parts(found: KernelProfile) -> list[tuple[str, ...]]:
    return [part.nodes for part in found.parts]


def test_a_convolution_and_its_activation_are_one_part(tmp_path: Path) -> None:
    found = profile("Conv, Relu", tmp_path)

    assert parts(found) == [("conv", "relu")]
    assert found.parts[0].conversion_us <= found.parts[0].time_us


def test_convolutions_of_a_residual_block_are_apart(tmp_path: Path) -> None:
    found = parts(profile("residual", tmp_path))

    assert ("conv0", "relu0") in found
    assert [part for part in found if "conv1" in part] != [part for part in found if "conv2" in part]
    assert sum(map(len, found)) == 7


def test_fusions_of_a_transformer_are_seen(tmp_path: Path) -> None:
    found = parts(profile("transformer", tmp_path))

    assert {("q", "qb"), ("k", "kb"), ("v", "vb"), ("p", "pb"), ("down", "db")} <= set(found)
    assert ("up", "ub", "g0", "g1", "g2", "g3", "gelu") in found
    assert ("norm",) in found
    assert sum(map(len, found)) == len(list(BLOCKS["transformer"]().function.model.graph))


def test_a_quantised_operator_is_one_part_with_its_conversions(tmp_path: Path) -> None:
    found = parts(profile("quantised", tmp_path))

    assert ("dx", "dw", "conv", "relu", "q") in found
    assert ("d", "dw1", "conv1", "q1") in found


def test_a_node_with_bodies_is_one_part(tmp_path: Path) -> None:
    assert parts(profile("If, Loop", tmp_path)) == [("a",), ("b",), ("l",), ("y",)]


@pytest.mark.parametrize("block", BLOCKS)
def test_all_counted_time_is_there_once(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[dict[str, float]] = []
    read = collage_openvino.profile._mean_times

    def mean_times(compiled: Any) -> dict[str, float]:
        counted.append(read(compiled))
        return counted[-1]

    monkeypatch.setattr(collage_openvino.profile, "_mean_times", mean_times)

    found = profile(block, tmp_path)

    first, mean = counted
    one_run = sum(max(0.0, 2 * mean[name] - first[name]) for name in mean)
    assert found.total_us == pytest.approx(one_run)
    assert found.unattributed == ()
