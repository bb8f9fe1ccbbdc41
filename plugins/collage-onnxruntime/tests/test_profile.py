"""Times of ONNX Runtime's profiler belong to the nodes they are of, whatever the optimiser made of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collage_core.contract import KernelProfile, Target
from collage_onnxruntime.kernel import OnnxRuntimeKernel
from collage_onnxruntime.plugin import plugin
from collage_testing.kit.profiling import BLOCKS, profiled

TARGET = Target(toolchain="onnxruntime", fingerprint="test")
FEEDS = {"If, Loop": {"x": np.full((64, 64), 0.01, np.float32), "c": np.array(True)}}


def profile(block: str, scratch: Path, *, runs: int = 1) -> KernelProfile:
    return profiled(plugin, TARGET, BLOCKS[block](), scratch, feeds=FEEDS.get(block), runs=runs)


def parts(found: KernelProfile) -> list[tuple[str, ...]]:
    return [part.nodes for part in found.parts]


def test_a_convolution_and_its_activation_are_one_part(tmp_path: Path) -> None:
    found = profile("Conv, Relu", tmp_path)

    assert parts(found) == [("conv", "relu")]
    assert found.parts[0].conversion_us <= found.parts[0].time_us


def test_a_residual_is_of_the_convolution_that_adds_it(tmp_path: Path) -> None:
    assert parts(profile("residual", tmp_path)) == [("conv0", "relu0"), ("conv1", "add", "relu1"), ("conv2",), ("y",)]


def test_fusions_of_a_transformer_are_seen(tmp_path: Path) -> None:
    found = parts(profile("transformer", tmp_path))

    assert {("q", "qb"), ("k", "kb"), ("v", "vb"), ("p", "pb"), ("up", "ub"), ("down", "db")} <= set(found)
    assert {("norm",), ("norm1",), ("weights",), ("scores", "scaled"), ("mixed",)} <= set(found)
    assert ("g0", "g1", "g2", "g3", "gelu") in found
    assert sum(map(len, found)) == len(list(BLOCKS["transformer"]().function.model.graph))


def test_a_quantised_operator_is_one_part_with_its_conversions(tmp_path: Path) -> None:
    assert ("d", "dw1", "conv1", "q1") in parts(profile("quantised", tmp_path))


def top_level(events: list[dict[str, Any]]) -> float:
    """Microseconds of the last run's nodes that no other node's time contains."""
    runs = [event for event in events if event["name"] == "model_run"]
    began = runs[-1]["ts"]
    nodes = [event for event in events if event.get("cat") == "Node" and event["ts"] >= began]
    spans = [(event["ts"], event["ts"] + event["dur"], event["dur"]) for event in nodes]
    outer = [each for each in spans if not any(o[0] <= each[0] and each[1] <= o[1] and o[2] > each[2] for o in spans)]
    return float(sum(span[2] for span in outer))


@pytest.mark.parametrize("block", BLOCKS)
def test_all_time_of_a_run_is_there_once_and_bodies_are_in_their_node(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = OnnxRuntimeKernel.end_trace
    kept = tmp_path / "kept.json"

    def end_trace(kernel: OnnxRuntimeKernel) -> Path:
        return Path(shutil.copy(end(kernel), kept))

    monkeypatch.setattr(OnnxRuntimeKernel, "end_trace", end_trace)

    found = profile(block, tmp_path)

    assert found.total_us == top_level(json.loads(kept.read_text()))
    assert found.unattributed == ()


def test_a_node_with_bodies_is_one_part(tmp_path: Path) -> None:
    assert parts(profile("If, Loop", tmp_path)) == [("a",), ("b",), ("l",), ("y",)]
