from __future__ import annotations

import dataclasses
import importlib.util
from typing import Any

import pytest

from collage.options import PRESETS, OptimizeOptions
from collage.setup.settings import measure_settings
from collage_core.errors import UsageError
from collage_core.fusion import CandidateBounds
from tests.engine.exploring import a_target


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"preset": "fast"}, "quick, default, extensive"),
        ({"threads": 0}, "at least 1"),
        ({"max_error": 0.0}, "between 0 and 1"),
        ({"max_error": 1.0}, "between 0 and 1"),
        ({"ranges": "widest", "max_error": 0.1}, "minmax, percentile, entropy"),
        ({"ranges": "percentile"}, "--max-error"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_misuse(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        OptimizeOptions(**wrong)


def test_measuring_times_given_replace_those_of_the_preset() -> None:
    preset = OptimizeOptions(preset="quick", warmup=7, iterations=2, duration_s=0.5).effective

    assert (preset.protocol.warmup_runs, preset.protocol.max_samples, preset.protocol.duration_s) == (7, 2, 0.5)
    assert preset.protocol.min_samples == 2
    assert preset.operators == PRESETS["quick"].operators


def test_more_iterations_ask_for_no_more_than_the_preset_needs() -> None:
    preset = OptimizeOptions(preset="quick", iterations=1000).effective

    assert preset.protocol.min_samples == PRESETS["quick"].protocol.min_samples
    assert preset.protocol.max_samples == 1000


def test_without_measuring_times_the_preset_stays() -> None:
    assert OptimizeOptions(preset="extensive").effective == PRESETS["extensive"]


@pytest.mark.parametrize("name", PRESETS)
def test_each_preset_has_bounds_of_its_name(name: Any) -> None:
    assert PRESETS[name].name == name
    assert CandidateBounds.preset(name).segments > 1


def test_presets_grow() -> None:
    quick, default, extensive = PRESETS["quick"], PRESETS["default"], PRESETS["extensive"]

    assert list(PRESETS) == ["quick", "default", "extensive"]
    grows = ("operators", "coalesce_rounds", "challengers", "rounds", "round_s", "effort", "max_variants")
    for name in (*grows, "device_variants"):
        values = [getattr(preset, name) for preset in (quick, default, extensive)]
        assert values == sorted(values), name


@pytest.mark.parametrize("name", PRESETS)
def test_of_kernels_on_a_device_more_variants_are_tried(name: str) -> None:
    settings = measure_settings(OptimizeOptions(preset=name, seed=7), threads=2)

    on_cpu, on_device = (settings.build_for(a_target("some", device=device)) for device in ("cpu", "cuda:0"))

    assert on_cpu == settings.build
    assert on_device.max_variants == PRESETS[name].device_variants >= on_cpu.max_variants
    assert dataclasses.replace(on_device, max_variants=on_cpu.max_variants) == on_cpu


@pytest.mark.parametrize(
    ("asked", "load_wait_s"),
    [({}, PRESETS["default"].load_wait_s), ({"preset": "quick"}, 0.0), ({"budget_s": 1000.0}, 0.0)],
    ids=str,
)
def test_candidates_wait_for_other_load_unless_time_is_short(asked: dict[str, Any], load_wait_s: float) -> None:
    assert PRESETS["default"].load_wait_s > 0
    assert measure_settings(OptimizeOptions(**asked), threads=2).load_wait_s == load_wait_s


def test_the_tolerance_is_the_users_or_a_thousandth() -> None:
    assert OptimizeOptions().tolerance == 1e-3
    assert OptimizeOptions(rtol=0.05).tolerance == 0.05


def test_a_search_that_is_not_there_is_refused_and_one_without_its_solver_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UsageError, match="no search 'greedy'; choose one of lazy, exact, two-level, ilp"):
        OptimizeOptions(search="greedy")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"collage-core\[ilp\]"):
        OptimizeOptions(search="ilp")
