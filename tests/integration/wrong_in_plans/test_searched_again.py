"""When a plan turns out wrong, the kernel at fault is named and left out, and the search is repeated."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx_ir
import pytest

import collage
from collage import options
from collage.commands.optimize import optimize
from collage.commands.optimizing.optimized import Optimized
from collage.decide.races import race
from collage.errors import WrongKernelError, WrongPinError
from collage.measure import budget
from collage.options import OptimizeOptions
from collage.report.progress import SilentProgress
from collage.store import open_database
from collage_core.errors import CollageError
from collage_core.ir.io.model_io import save_model
from tests.integration.wrong_in_plans import sly_toolchain
from tests.integration.wrong_in_plans.models import chain, fresh_value, product


class Progress(SilentProgress):
    """Keeps what the user is told."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)


@dataclasses.dataclass(frozen=True)
class Run:
    """One optimization.

    Attributes:
        optimized: What came of it.
        messages: What the user was told on the way.
        lowered: What was lowered, by whom.
    """

    optimized: Optimized
    messages: tuple[str, ...]
    lowered: tuple[str, ...]

    @property
    def placed(self) -> dict[str, str]:
        """The target of each node."""
        return {node: region.target for region in self.optimized.record.regions for node in region.nodes}


Optimize: TypeAlias = Callable[..., Run]
"""Optimizes a model over a database, with kernels that go wrong in some way, and options."""


@pytest.fixture(scope="module")
def optimized(installed: Path) -> Iterator[Optimize]:
    """Whole plans run for a moment."""
    log = installed / "log"
    log.touch()

    def run(model: onnx_ir.Model, way: str, database: Path, **choices: Any) -> Run:
        patch.setenv(sly_toolchain.SLY, way)
        path = installed / "model.onnx"
        save_model(model, path)
        progress, before = Progress(), len(log.read_text().splitlines())
        wanted: dict[str, Any] = {
            "toolchains": "steady,sly",
            "tuning_db": str(database),
            "preset": "quick",
            "search": "exact",
            "threads": 1,
            "warmup": 1,
            "iterations": 3,
            "duration_s": 0.001,
        }
        found = optimize(path, OptimizeOptions(**(wanted | choices)), progress=progress)
        return Run(found, tuple(progress.messages), tuple(log.read_text().splitlines()[before:]))

    quick = dataclasses.replace(options.PRESETS["quick"], rounds=1, round_s=0.005)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(options.PRESETS, "quick", quick)
        patch.setattr(race, "FIRST_ROUNDS", 1)
        yield run


@dataclasses.dataclass(frozen=True)
class Story:
    """Runs over one database.

    Attributes:
        first: With a kernel that is wrong beside the other toolchain.
        again: The same again.
        retried: The kernel is right, and what failed is tried again.
    """

    first: Run
    again: Run
    retried: Run


@pytest.fixture(scope="module")
def story(optimized: Optimize, installed: Path) -> Story:
    database = installed / "story.sqlite"
    first, again = (optimized(product(), "beside", database) for _ in range(2))
    return Story(first, again, optimized(product(), "", database, retry_failed=True))


@pytest.mark.slow  # three searches
@pytest.mark.guards(
    "a kernel is right alone and wrong in a plan", "it is named and left out; searched again", area="toolchains"
)
def test_a_kernel_that_is_wrong_in_a_plan_is_named_and_left_out(story: Story) -> None:
    assert "sly Relu" in story.first.lowered, (story.first.messages, story.first.optimized.record.refusals)
    assert story.first.placed == {"mul_0": "steady", "relu_0": "steady"}
    [said] = story.first.messages
    wrong = "sly is wrong on relu_0 (k0001): wrong numbers beside steady (mul_0) in one process: output "
    assert said.startswith(wrong)
    assert said.endswith("; searching again without it (1 of 3)")
    [note] = story.first.optimized.record.notes
    assert note.startswith(wrong)
    assert note.endswith("; searched again without it")
    [refusal] = [each for each in story.first.optimized.record.refusals if each.stage == "check"]
    assert (refusal.target, refusal.nodes) == ("sly", ("relu_0",))
    assert refusal.reason.startswith("wrong numbers beside steady (mul_0) in one process: ")


@pytest.mark.slow  # three searches
def test_the_next_run_knows_the_kernel_as_wrong(story: Story) -> None:
    assert story.again.placed == {"mul_0": "steady", "relu_0": "steady"}
    assert story.again.messages == ()
    assert {each for each in story.again.lowered if "sly" in each} == set()
    [refusal] = [each for each in story.again.optimized.record.refusals if each.stage == "check"]
    assert refusal.remembered is not None
    assert refusal.remembered.plugin.startswith("sly-kernels 1.0")


@pytest.mark.slow  # three searches
def test_a_kernel_that_was_found_wrong_is_tried_again_on_request(story: Story, tmp_path: Path) -> None:
    assert story.retried.placed == {"mul_0": "steady", "relu_0": "sly"}
    story.retried.optimized.save(tmp_path / "product.collage")
    [y] = collage.load(tmp_path / "product.collage").run(None, dict.fromkeys("xz", np.ones((8, 16), np.float32)))
    assert (y == 1).all()


@pytest.mark.slow
def test_what_is_left_out_is_replaced_and_nothing_else(optimized: Optimize, tmp_path: Path) -> None:
    run = optimized(chain(), "third", tmp_path / "tuning.sqlite")

    assert run.placed == {"relu_0": "steady", "sigmoid_0": "sly", "tanh_0": "sly"}


@pytest.mark.slow
@pytest.mark.guards(
    "a kernel is wrong after many calls only, and the search measured it briefly",
    "it is found before the plan is kept",
    area="toolchains",
)
@pytest.mark.parametrize("confirm_rounds", [0, 2])
def test_what_was_looked_at_briefly_is_judged_as_plans_use_it(
    confirm_rounds: int, optimized: Optimize, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the search that chooses it, or when it is kept, as a runner-up may be."""
    preset = dataclasses.replace(options.PRESETS["quick"], confirm_rounds=confirm_rounds)
    monkeypatch.setitem(options.PRESETS, "quick", preset)

    run = optimized(chain(), "later", tmp_path / "tuning.sqlite", search="lazy")

    assert set(run.placed.values()) == {"steady"}
    assert any(each.startswith("sly ") for each in run.lowered)
    reasons = [each.reason for each in run.optimized.record.refusals if each.target == "sly"]
    assert any("wrong numbers after many calls" in reason for reason in reasons), reasons


@pytest.mark.slow
def test_a_plan_that_is_right_is_kept_when_the_budget_is_spent(
    optimized: Optimize, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "_LEAST_S", 3600.0)

    run = optimized(product(), "beside", tmp_path / "tuning.sqlite", budget_s=0.001)

    assert len(set(run.placed.values())) == 1  # alone, each of the two is right
    assert not any("searching again" in message for message in run.messages)


@pytest.mark.slow
def test_a_pinned_kernel_that_is_wrong_fails_the_run_by_name(optimized: Optimize, tmp_path: Path) -> None:
    with pytest.raises(WrongPinError, match=r"--pin 'relu_0=sly' cannot be kept: sly is wrong on relu_0 \(k0001\): "):
        optimized(product(), "beside", tmp_path / "tuning.sqlite", pins=("relu_0=sly",))


@pytest.mark.slow
def test_a_given_plan_with_a_wrong_kernel_fails_by_name(optimized: Optimize, tmp_path: Path) -> None:
    kernels = [{"target": "steady", "nodes": ["mul_0"]}, {"target": "sly", "nodes": ["relu_0"]}]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"schema_version": 1, "model": {"name": "m", "nodes": 2}, "kernels": kernels}))

    with pytest.raises(WrongKernelError, match=r"^sly is wrong on relu_0 \(k0001\): ") as caught:
        optimized(product(), "beside", tmp_path / "tuning.sqlite", load_plan=str(plan))

    assert (caught.value.target, caught.value.nodes) == ("sly", ("relu_0",))


@pytest.mark.slow
def test_where_no_toolchain_is_right_one_message_names_the_kernels(optimized: Optimize, tmp_path: Path) -> None:
    with pytest.raises(CollageError) as caught:
        optimized(chain(), f"both {fresh_value(chain())!r}", tmp_path / "tuning.sqlite")

    message = str(caught.value)
    assert "relu_0" in message
    assert all(f"{name}: wrong numbers on fresh inputs" in message for name in ("steady", "sly"))
    with open_database(tmp_path / "tuning.sqlite", read_only=True) as store:
        failed = [record for record in store.all_records() if record.outcome == "failed"]
    assert sorted(record.key.target for record in failed) == ["sly", "steady"]
