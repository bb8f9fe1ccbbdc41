"""Which sets of shapes are optimized, and what of a budget each gets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import onnx_ir
import pytest

import collage
from collage.commands.optimizing import several_shapes
from collage.commands.optimizing.possible_shapes import possible_shapes
from collage.commands.optimizing.several_shapes import optimize_shapes
from collage.errors import UnrecordedPackageWarning
from collage.options import OptimizeOptions
from collage.report.progress import SilentProgress
from collage.runtime.package import load_package
from collage_core.errors import InputShapeError, UsageError
from tests.engine.runtime.packages import of_batch, save

SETS = [{"x": (batch, 3), "mask": (other,)} for batch in (1, 4) for other in (1, 4)]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Two inputs that share a dimension."""
    made = onnx.parser.parse_model("""
    < ir_version: 10, opset_import: ["": 17] >
    g (float[batch, 3] x, float[batch] mask) => (float[batch, 3] y) { y = Neg(x) }""")
    onnx.save(made, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


class Told(SilentProgress):
    """Keeps messages."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)


def recorded(options: OptimizeOptions) -> Any:
    """What of a record is looked at: its shapes, and its plan, which is the same for all."""
    return SimpleNamespace(model=SimpleNamespace(input_shapes=options.input_shapes), regions=())


@pytest.fixture
def optimized(monkeypatch: pytest.MonkeyPatch) -> list[OptimizeOptions]:
    """What is optimized, which takes no time."""
    found: list[OptimizeOptions] = []

    def optimize(model: Path, options: OptimizeOptions, **_: Any) -> Any:
        found.append(options)
        record = recorded(options)
        return SimpleNamespace(record=record, origin="origin", write=lambda path: path.write_bytes(b""))

    monkeypatch.setattr(several_shapes, "optimize", optimize)
    return found


def test_sets_in_which_one_dimension_has_two_sizes_are_left_out_and_told(model: Path) -> None:
    said: list[str] = []

    possible = possible_shapes(model, [*SETS, dict(reversed(SETS[0].items()))], said.append)

    assert possible == (SETS[0], SETS[3])
    assert said == ["left out, as one dimension has two sizes in them: x:[1,3] mask:[4]; x:[4,3] mask:[1]"]


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ([{"x": (1, 3), "mask": (4,)}, {"x": (4, 3), "mask": (1,)}], "makes batch 4, but input 'x' makes it 1"),
        ([{"x": (1, 3)}, {"x": (4, 5)}], "contradicts the model's"),
        ([{"x": (1, 3)}, {"z": (4, 3)}], "no such input"),
    ],
)
def test_what_fits_no_input_or_leaves_no_set_is_refused(
    shapes: list[dict[str, tuple[int, ...]]], said: str, model: Path, optimized: list[OptimizeOptions]
) -> None:
    with pytest.raises(InputShapeError, match=said):
        possible_shapes(model, shapes, print)
    with pytest.raises(InputShapeError, match=said):
        collage.optimize(model, input_shapes=shapes)
    assert optimized == []


def test_no_sets_and_more_than_a_package_has_plans_are_refused(model: Path) -> None:
    with pytest.raises(UsageError, match="at most 256 plans, and there are 257 sets"):
        possible_shapes(model, [{"x": (batch, 3)} for batch in range(1, 258)], print)
    with pytest.raises(UsageError, match="no input shapes are given"):
        possible_shapes(model, [], print)


def test_each_is_told_and_saving_warns_where_it_cannot_be_recorded(
    tmp_path: Path, parsed: Callable[[str], onnx_ir.Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = Told()

    def optimize(model: Path, options: OptimizeOptions, **_: Any) -> Any:
        batch = options.input_shapes["x"][0]
        assert isinstance(batch, int)
        return SimpleNamespace(
            record=recorded(options), origin=None, write=lambda path: save(path, of_batch(parsed, batch), record=batch)
        )

    monkeypatch.setattr(several_shapes, "optimize", optimize)
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    each = [OptimizeOptions(input_shapes={"x": (batch, 32)}) for batch in (1, 5)]

    found = optimize_shapes(tmp_path / "m.onnx", each, progress=progress)
    with pytest.warns(UnrecordedPackageWarning, match="code in it will not be loaded") as said:
        found.save(tmp_path / "m.collage")

    assert progress.messages == ["shapes 1 of 2: x:[1,32]", "shapes 2 of 2: x:[5,32]"]
    assert said[0].filename == __file__
    assert [plan.record for plan in load_package(tmp_path / "m.collage").plans] == [1, 5]
    assert found.origins == ()


@pytest.mark.parametrize("began_s", [None, 10.0])
def test_a_budget_is_for_all_shapes_together(
    began_s: float | None, model: Path, optimized: list[OptimizeOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(monotonic=lambda: 10.0 + 30.0 * len(optimized))  # each takes half of its minute
    monkeypatch.setattr(several_shapes, "time", clock)
    monkeypatch.setattr(several_shapes, "command_began", lambda: began_s)

    optimize_shapes(model, [OptimizeOptions(input_shapes=each, budget_s=120.0) for each in (SETS[0], SETS[3])])

    first, second = (each.budget_s for each in optimized)
    assert first == pytest.approx(60.0)
    # what the first left is the second's; a command's budget counts from its start
    assert second == pytest.approx(90.0 if began_s is None else 120.0)
