"""What `doctor` keeps of what workers answered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collage.commands import doctor as diagnosis
from collage.commands.doctor import other_owners
from collage.report.documents.codec import to_json
from collage_core.contract import Obstacle, Unsupported
from collage_core.registry import Registry, Toolchain
from collage_testing import MockToolchain

ANSWERS = {
    "old": Unsupported("driver 470 is too old", Obstacle.DRIVER_TOO_OLD),
    "gone": Unsupported("it raised ImportError"),
}
LOADED = {"old": ("/opt/libcudnn.so.9",), "gone": ()}


class AnsweringPool:
    """Workers that have answered already."""

    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> AnsweringPool:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def libraries(self) -> dict[str, tuple[str, ...]]:
        return LOADED


def test_the_sort_of_obstacle_is_in_the_report_for_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "WorkerPool", AnsweringPool)
    monkeypatch.setattr(diagnosis, "answers", lambda registry, pool, host, names: ANSWERS)
    registry = Registry.of(*(Toolchain(name, MockToolchain(name, costs_us={})) for name in ANSWERS))

    report = diagnosis.doctor(registry)

    assert {each.name: each.unusable for each in report.toolchains} == {
        name: answer.reason for name, answer in ANSWERS.items()
    }
    assert json.loads(to_json(report))["obstacles"] == {"old": "driver too old"}


def test_another_distribution_that_installs_the_same_import_package_is_named() -> None:
    [warning] = other_owners({"collage": ["collage-engine", "collage"], "numpy": ["numpy"]})

    assert "distribution 'collage' installs the import package 'collage', too" in warning
    assert "pip uninstall collage collage-engine" in warning
    assert other_owners({"collage": ["collage-engine", "collage-engine"]}) == ()
    assert other_owners({}) == ()
