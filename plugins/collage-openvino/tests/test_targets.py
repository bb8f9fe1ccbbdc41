"""Targets, and what is offered to them."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest

from collage.devices.this_host import this_host
from collage_core.contract import Joins, Target, Unsupported
from collage_openvino.kernel import properties
from collage_openvino.plugin import plugin, targets


def test_the_default_target_mixes_and_is_exact() -> None:
    answer = plugin.collage_targets(this_host())
    assert isinstance(answer, Sequence)
    assert answer[0].name == "openvino"
    assert answer[0].mixable
    assert answer[0].exact
    assert answer[0].joins is Joins.ANY


def test_bfloat16_is_a_target_where_the_cpu_has_it_and_on_request_where_it_is_emulated() -> None:
    assert [target.name for target in targets("2026.4.1", {"FP32", "INT8"}, {"avx2"})] == ["openvino"]
    both = targets("2026.4.1", {"FP32", "BF16", "INT8"}, {"avx2", "avx512f", "avx512_bf16"})
    assert [target.name for target in both] == ["openvino", "openvino(precision=bf16)"]
    assert [target.exact for target in both] == [True, False]
    assert [target.on_request for target in both] == [False, False]
    emulated = targets("2026.4.1", {"FP32", "INT8"}, {"avx2", "avx512f"})
    assert [target.name for target in emulated] == ["openvino", "openvino(precision=bf16)"]
    assert [target.on_request for target in emulated] == [False, True]


def test_an_exact_target_turns_every_shortcut_off() -> None:
    exact, bf16 = targets("2026.4.1", {"BF16"}, ())
    assert properties(exact, 2)["INFERENCE_PRECISION_HINT"] == "f32"
    assert properties(exact, 2)["EXECUTION_MODE_HINT"] == "ACCURACY"
    assert properties(bf16, 2)["INFERENCE_PRECISION_HINT"] == "bf16"


def test_the_fingerprint_names_the_library_version() -> None:
    assert [target.fingerprint for target in targets("2026.4.1", (), ())] == ["openvino 2026.4.1"]


def test_an_old_library_is_refused_with_the_version_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    import openvino

    monkeypatch.setattr(openvino, "__version__", "2023.1.0-12185-releases")
    answer = plugin.collage_targets(this_host())
    assert isinstance(answer, Unsupported)
    assert "2023.1.0 is too old" in answer.reason


def test_a_missing_library_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    answer = plugin.collage_targets(this_host())
    assert isinstance(answer, Unsupported)
    assert "pip install openvino" in answer.reason


def test_one_core_serves_the_process() -> None:
    assert plugin.core() is plugin.core()


def test_the_exact_target_is_a_target_of_this_toolchain() -> None:
    assert {target.toolchain for target in targets("x", {"BF16"}, ())} == {"openvino"}
    assert isinstance(targets("x", (), ())[0], Target)
