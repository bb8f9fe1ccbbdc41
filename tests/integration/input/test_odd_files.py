"""Model files that are unusual and work: what they compute is right, and nothing has to be done to them."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.integration.input.bad_models import WEIGHT, Y, beside, file, free, model, node
from tests.integration.input.packages import packaged
from tests.integration.input.refusals import MISUSE, Desk, collage

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
NEGATED = -np.exp(X)

CHAIN = (node("Exp", "x", "a", "one"), node("Neg", "a", "y", "two"))
DEAD = (node("Sin", "x", "b", "dead"), node("Cos", "b", "c", "dead too"))


def written_as(suffix: str, kind: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        with warnings.catch_warnings(action="ignore"):  # of a format that is an experiment
            onnx.save(model(*CHAIN), folder / f"m{suffix}", format=kind)
        return folder / f"m{suffix}"

    return make


def of_no_version() -> onnx.ModelProto:
    made = model(*CHAIN)
    made.ClearField("ir_version")
    return made


WORKS: dict[str, tuple[Callable[[Path], Path], Any]] = {
    "dead nodes": (file(model(*CHAIN, *DEAD)), NEGATED),
    "a weight nobody reads": (file(model(*CHAIN, weights=[WEIGHT])), NEGATED),
    "nodes of one name": (file(model(node("Exp", "x", "a", "same"), node("Neg", "a", "y", "same"))), NEGATED),
    "nodes without names": (file(model(node("Exp", "x", "a"), node("Neg", "a", "y"))), NEGATED),
    "nodes out of order": (file(model(*reversed(CHAIN))), NEGATED),
    "an output twice": (file(model(*CHAIN, outputs=[Y, Y])), NEGATED),
    "no IR version": (file(of_no_version()), NEGATED),
    "no name that says what it is": (file(model(*CHAIN), "m.bin"), NEGATED),
    "text, .textproto": (written_as(".textproto", "textproto"), NEGATED),
    "text, .onnxtxt": (written_as(".onnxtxt", "onnxtxt"), NEGATED),
    "JSON": (written_as(".json", "json"), NEGATED),
    "a weight beside the model": (beside(np.full((2, 3), 5, np.float32).tobytes()), X + 5),
    "a weight in a longer file": (beside(bytes(8) + np.full(9, 5, np.float32).tobytes(), offset="8"), X + 5),
    "a weight with a longer length": (beside(np.full(6, 5, np.float32).tobytes(), length="400"), X + 5),
}


@pytest.mark.guards(
    "dead nodes, nodes of one name or none, nodes out of order, an output twice, no IR version, text "
    "forms, external data with an offset or in a longer file, a file name that is no text",
    "work, and give the right numbers",
    area="input",
)
@pytest.mark.parametrize("name", WORKS)
def test_an_unusual_file_works(name: str, tmp_path: Path) -> None:
    make, expected = WORKS[name]

    ran = run(make(tmp_path), {"x": X, "n": np.array([1, 2])}, tmp_path)

    np.testing.assert_allclose(ran["y"], expected, rtol=1e-6)


@pytest.mark.guards(
    "`--input-shapes` that is no shape, names no input, has another rank, contradicts the model or "
    "itself, or is larger than any memory; a zero extent"
)
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_any_extent_can_be_given_to_a_free_dimension(rows: int, tmp_path: Path) -> None:
    x = np.ones((rows, 3), np.float32)

    ran = run(file(free("x", "batch", 3))(tmp_path), {"x": x}, tmp_path)

    np.testing.assert_array_equal(ran["y"], -x)


@pytest.mark.guards(
    "dead nodes, nodes of one name or none, nodes out of order, an output twice, no IR version, text "
    "forms, external data with an offset or in a longer file, a file name that is no text"
)
def test_a_name_that_is_no_text_is_shown_and_written(desk: Desk) -> None:
    name = os.fsdecode(b"mod\xe8le")
    try:
        package = desk.package.rename(desk.folder / f"{name}.collage")
    except OSError:
        pytest.skip("files here have names that are text")

    result = collage("run", package, "--save-outputs", desk.folder / f"{name}.npz", "--json", desk.folder / "out.json")

    assert result.exit_code == 0, result.output
    assert "mod\\udce8le.collage" in result.stdout
    assert json.loads((desk.folder / "out.json").read_text())["package"] == f"{name}.collage"
    assert collage("run", desk.folder / f"{name}.onnx").exit_code == MISUSE


def run(path: Path, feeds: dict[str, Any], folder: Path, toolchain: str = "reference") -> dict[str, Any]:
    """Outputs of a model through a package of it and the command line."""
    packaged(path, folder / "m.collage", toolchain, {name: np.shape(value) for name, value in feeds.items()})
    np.savez(folder / "in.npz", **feeds)
    result = collage("run", folder / "m.collage", "--inputs", folder / "in.npz", "--save-outputs", folder / "out.npz")
    assert result.exit_code == 0, result.output
    with np.load(folder / "out.npz") as saved:
        return dict(saved)
