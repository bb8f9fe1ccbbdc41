"""A winner that turns out wrong costs itself: the next best plan is kept, and the record says why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collage.build import plan_builder
from collage.build.verifying.verify import verify
from collage.commands.optimize import optimize
from collage.errors import VerificationError
from collage.options import OptimizeOptions
from collage_core.errors import CollageError
from tests.integration.commands.conftest import BOTH, TINY
from tests.integration.commands.models import written

pytestmark = [pytest.mark.plugins, pytest.mark.usefixtures("alternating_costs")]


def wrong(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """The first plans to be verified give wrong numbers."""
    left = times

    def verified(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        left -= 1
        if left >= 0:
            raise VerificationError("output 'y' is wrong")
        return verify(*args, **kwargs)

    monkeypatch.setattr(plan_builder, "verify", verified)


def test_a_mixed_plan_with_wrong_numbers_gives_way_to_the_next_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong(monkeypatch, 1)

    record = optimize(written("cnn", tmp_path), OptimizeOptions(toolchains=BOTH, tuning_db="memory:", **TINY)).record

    [note] = [note for note in record.notes if not note.startswith("onnxruntime(spin=true): ")]
    name = note.partition(" ")[0]
    assert note == f"{name} was the fastest and is not kept: output 'y' is wrong"
    assert name.startswith("mixed-")
    assert record.decision
    assert "worth timing" not in record.decision
    [failed] = [each for each in record.comparison.contenders if each.failed]
    assert (failed.name, failed.latency_ms) == (name, None)
    assert record.regions


@pytest.mark.slow
def test_where_every_plan_is_wrong_one_message_says_so_of_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong(monkeypatch, 100)

    with pytest.raises(CollageError, match=r"no plan runs the whole model: .*openvino: output 'y' is wrong"):
        optimize(written("cnn", tmp_path), OptimizeOptions(toolchains="openvino", tuning_db="memory:", **TINY))
