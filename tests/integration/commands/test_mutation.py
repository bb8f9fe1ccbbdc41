"""Whatever is wrong inside a package, `compare` sees it in the numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.models import MODELS as SUITE
from collage.cli import main
from collage.prepare.steps import prepare
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.io.model_io import load_model
from tests.integration.commands.models import written
from tests.integration.commands.mutation import Mutation, Workshop, mutations

pytestmark = pytest.mark.plugins


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    with Workshop() as workshop:
        yield workshop


def worst(model: Path, package: Path, *arguments: object) -> tuple[int, float]:
    """Exit status of `compare`, and the largest error it found."""
    result = CliRunner().invoke(main, ["compare", str(model), str(package), "--json", "-", *map(str, arguments)])
    assert result.exit_code in (0, 1), result.stderr
    values = json.loads(result.stdout)["values"]
    return result.exit_code, max(float(value["error"]) for value in values)


def packaged(workshop: Workshop, model: Path, plan: str, shapes: dict[str, tuple[int, ...]], path: Path) -> None:
    """Saves a package of a model: all of it one toolchain's, or half of it each one's."""
    graph = DataflowGraph(prepare(load_model(model), input_shapes=shapes))
    if plan != "mixed":
        workshop.package(graph, [(plan, graph.needs_kernel)], path)
        return
    first = sum(1 << index for index in range(len(graph) // 2)) & graph.needs_kernel
    workshop.package(graph, [("onnxruntime", first), ("openvino", graph.needs_kernel & ~first)], path)


@pytest.mark.parametrize(
    "plan", [*(pytest.param(name, marks=pytest.mark.slow) for name in ("onnxruntime", "openvino")), "mixed"]
)
def test_a_small_cnn_is_right_or_compare_fails(plan: str, workshop: Workshop, tmp_path: Path) -> None:
    model, package = written("cnn", tmp_path), tmp_path / "right.collage"
    packaged(workshop, model, plan, {}, package)
    possible = mutations(package)

    assert worst(model, package)[0] == 0
    assert {kind: len(found) for kind, found in possible.items()} == {"activation": 2, "weight": 3, "bias": 3}
    passed = []
    for number, mutation in enumerate(mutation for found in possible.values() for mutation in found):
        workshop.mutated(package, mutation, np.random.default_rng(number), tmp_path / "wrong.collage")
        status, error = worst(model, tmp_path / "wrong.collage")
        if status != 1:
            passed.append((mutation, error))
    assert passed == []


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("name", ["resnet50", "bert_base_6"])
def test_a_real_model_is_right_or_compare_fails(name: str, plan: str, workshop: Workshop, tmp_path: Path) -> None:
    entry = SUITE[name]
    model, package, inputs = tmp_path / f"{name}.onnx", tmp_path / "right.collage", tmp_path / "in.npz"
    model.write_bytes(entry.build().SerializeToString())
    feeds = entry.make_inputs(1)
    np.savez(inputs, **feeds)  # type: ignore[arg-type]
    packaged(workshop, model, plan, {key: array.shape for key, array in feeds.items()}, package)
    random = np.random.default_rng(7)
    sampled: list[Mutation] = []
    for found in mutations(package).values():
        sampled += [found[place] for place in random.choice(len(found), 5, replace=False)]

    status, right = worst(model, package, "--inputs", inputs)
    assert status == 0
    passed = []
    for mutation in sampled:
        workshop.mutated(package, mutation, random, tmp_path / "wrong.collage")
        status, error = worst(model, tmp_path / "wrong.collage", "--inputs", inputs)
        print(f"{name} {plan}: {mutation.kind} {mutation.about}: error {error:.2e} (right: {right:.2e})")
        if status != 1:
            passed.append((mutation, error))
    assert passed == []
