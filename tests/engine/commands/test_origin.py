"""What decides the outcome of an optimization changes its origin, and nothing else does."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from collage.commands.optimizing import origin
from collage.commands.optimizing.origin import origin_of
from collage.options import OptimizeOptions
from collage_core.contract import Host
from tests.from_source import metadata

OPTIONS = OptimizeOptions(max_error=0.1)  # without which other options have no effect
CHANGED: dict[str, Any] = {
    "toolchains": "onnxruntime",
    "exclude": ("openvino",),
    "input_shapes": {"x": (2, 4)},
    "preset": "quick",
    "search": "exact",
    "max_error": 0.01,
    "ranges": "entropy",
    "threads": 1,
    "seed": 1,
    "rtol": 0.01,
    "reference": "onnxruntime",
    "warmup": 1,
    "iterations": 2,
    "percentile": 90.0,
    "duration_s": 0.5,
    "pins": ("add=openvino",),
    "prefer": "openvino",
    "deterministic": True,
    "beside_others": True,
}


@pytest.fixture
def model(tmp_path: Path, parsed: Callable[[str], ir.Model]) -> Path:
    path = tmp_path / "add.onnx"
    ir.save(parsed("g (float[2,4] x) => (float[2,4] y) { y = Add(x, x) }"), path)
    return path


def test_the_same_is_the_same(model: Path) -> None:
    assert origin_of(model, OPTIONS) == origin_of(model, dataclasses.replace(OPTIONS, tuning_db="elsewhere.sqlite"))


@pytest.mark.parametrize("name", sorted(CHANGED))
def test_an_option_counts(name: str, model: Path) -> None:
    assert origin_of(model, dataclasses.replace(OPTIONS, **{name: CHANGED[name]})) != origin_of(model, OPTIONS)


def test_a_run_that_retries_what_failed_has_the_origin_of_one_that_does_not(model: Path) -> None:
    assert origin_of(model, dataclasses.replace(OPTIONS, retry_failed=True)) == origin_of(model, OPTIONS)


def test_every_option_is_known_here() -> None:
    otherwise = {"tuning_db", "inputs", "load_plan", "fusion_specs", "budget_s", "retry_failed", "calibration"}
    otherwise |= {"metric", "max_drop", "labelled", "runner", "split_hosts"}

    assert {field.name for field in dataclasses.fields(OptimizeOptions)} == CHANGED.keys() | otherwise


@pytest.mark.parametrize(
    "options",
    [
        OptimizeOptions(budget_s=60.0),
        OptimizeOptions(inputs={"x": np.zeros((2, 4), np.float32)}),
        OptimizeOptions(calibration=[{"x": np.zeros((2, 4), np.float32)}], max_error=0.1),
        OptimizeOptions(fusion_specs={"onnxruntime": lambda *_: None}),  # type: ignore[dict-item]
    ],
    ids=["budget", "arrays", "samples", "rules"],
)
def test_what_is_in_no_file_or_may_go_on_has_no_origin(options: OptimizeOptions, model: Path) -> None:
    assert origin_of(model, options) is None


@pytest.mark.parametrize("option", ["inputs", "load_plan"])
def test_a_file_counts_by_its_content(option: str, model: Path, tmp_path: Path) -> None:
    first, same, other = (tmp_path / name for name in ("first", "same", "other"))
    for path, content in ((first, b"1"), (same, b"1"), (other, b"2")):
        path.write_bytes(content)

    found = [origin_of(model, OptimizeOptions(**{option: path})) for path in (first, same, other)]  # type: ignore[arg-type]

    assert found[0] == found[1] != found[2]
    assert origin_of(model, OPTIONS) not in found


def test_calibration_counts_by_the_content_of_its_files(model: Path, tmp_path: Path) -> None:
    def origin(*contents: bytes) -> str | None:
        folder = tmp_path / "samples"
        folder.mkdir(exist_ok=True)
        for number, content in enumerate(contents):
            (folder / f"{number}.npz").write_bytes(content)
        return origin_of(model, OptimizeOptions(calibration=folder, max_error=0.1))

    assert len({origin(b"1"), origin(b"2"), origin(b"2", b"1"), origin_of(model, OptimizeOptions(max_error=0.1))}) == 4
    assert origin(b"2", b"1") == origin(b"2", b"1")


def test_a_metric_counts_by_its_file_its_function_its_drop_and_its_samples(model: Path, tmp_path: Path) -> None:
    (tmp_path / "labelled.npz").write_bytes(b"1")

    def origin(code: str = "1", name: str = "f", drop: float = 1.0, samples: bytes = b"1") -> str | None:
        (tmp_path / "metric.py").write_text(code)
        (tmp_path / "labelled.npz").write_bytes(samples)
        metric, labelled = f"{tmp_path / 'metric.py'}:{name}", tmp_path / "labelled.npz"
        return origin_of(model, OptimizeOptions(metric=metric, max_drop=drop, labelled=labelled))

    assert len({origin(), origin(code="2"), origin(name="g"), origin(drop=2.0), origin(samples=b"2")}) == 5
    assert origin() == origin()
    of_python = OptimizeOptions(metric=lambda outputs, samples: 0.0, max_drop=1.0, labelled=tmp_path / "labelled.npz")
    assert origin_of(model, of_python) is None


def test_inputs_are_no_plan(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"1")

    assert origin_of(model, OptimizeOptions(inputs=file)) != origin_of(model, OptimizeOptions(load_plan=file))


def test_weights_beside_a_model_count(tmp_path: Path, parsed: Callable[[str], ir.Model]) -> None:
    made = parsed("g (float[1,64] x) => (float[1,64] y) <float[64] w = {0}> { y = Add(x, w) }")
    made.graph.initializers["w"].const_value = ir.tensor(np.ones(64, np.float32), name="w")
    path = tmp_path / "model.onnx"
    ir.save(made, path, external_data="model.data", size_threshold_bytes=0)
    before = origin_of(path, OPTIONS)

    (tmp_path / "model.data").write_bytes(np.zeros(64, np.float32).tobytes())

    assert origin_of(path, OPTIONS) != before


def test_another_machine_counts(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = origin_of(model, OPTIONS)
    host = Host(system="Linux x86_64", cpu="another", physical_cores=2, cpu_flags=frozenset(), memory_bytes=1)

    monkeypatch.setattr(origin, "this_host", lambda: host)

    assert origin_of(model, OPTIONS) != before


def test_another_version_of_any_distribution_counts(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for version in ("1.0", "1.1"):
        folder = tmp_path / version
        metadata(folder, "some-library", version, {})
        with monkeypatch.context() as patch:
            patch.syspath_prepend(folder)
            found.append(origin_of(model, OPTIONS))

    assert len({*found, origin_of(model, OPTIONS)}) == 3


def test_the_code_of_a_plugin_counts_by_its_content(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "package_of_a_plugin").mkdir()
    files = [tmp_path / "package_of_a_plugin" / "__init__.py", tmp_path / "module_of_a_plugin.py"]
    for file in files:
        file.write_text("plugin = None\n", encoding="utf-8")
    entries = {"p": "package_of_a_plugin:plugin", "m": "module_of_a_plugin:plugin", "n": "nothing_of_a_plugin:plugin"}
    metadata(tmp_path, "collage-of-a-test", "1.0", {"collage.toolchains": entries})
    monkeypatch.syspath_prepend(tmp_path)
    found = [origin_of(model, OPTIONS)]

    for file in files:
        file.write_text("plugin = 1234\n", encoding="utf-8")
        found.append(origin_of(model, OPTIONS))
        state = file.stat()
        os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns + 1_000_000_000))
        assert origin_of(model, OPTIONS) == found[-1]

    assert len(set(found)) == len(found)


def test_a_model_in_memory_has_no_origin(parsed: Callable[[str], ir.Model]) -> None:
    assert origin_of(parsed("g (float[2] x) => (float[2] y) { y = Add(x, x) }"), OPTIONS) is None
