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


@pytest.mark.parametrize(
    ("capabilities", "flags", "offered", "on_request"),
    [
        (set(), {"avx2"}, "", "int8 int8-weights"),
        (set(), {"avx2", "avx_vnni"}, "int8", "int8-weights"),
        (set(), {"avx2", "avx512f"}, "int8-weights", "bf16 int8"),
        (set(), {"avx2", "avx512f", "avx512_vnni"}, "int8 int8-weights", "bf16"),
        ({"BF16"}, {"avx512f", "avx512_bf16"}, "bf16 int8-weights", "int8 int8+bf16"),
        ({"BF16"}, {"avx512f", "avx512_bf16", "avx512_vnni"}, "bf16 int8 int8+bf16 int8-weights", ""),
        ({"BF16"}, {"avx512f", "amx_bf16", "amx_int8"}, "bf16 int8 int8+bf16 int8-weights", ""),
    ],
)
def test_lower_precision_is_offered_where_the_cpu_multiplies_it_and_elsewhere_on_request(
    capabilities: set[str], flags: set[str], offered: str, on_request: str
) -> None:
    plain, *lower = targets("2026.4.1", {"FP32", "INT8", *capabilities}, flags)

    assert plain.exact
    assert not any(target.exact for target in lower)
    assert [target.option("precision") for target in lower if not target.on_request] == offered.split()
    assert [target.option("precision") for target in lower if target.on_request] == on_request.split()


def test_an_exact_target_turns_every_shortcut_off() -> None:
    exact, bf16, int8, both, weights = targets("2026.4.1", {"BF16"}, ())
    assert properties(exact, 2)["INFERENCE_PRECISION_HINT"] == "f32"
    assert properties(exact, 2)["EXECUTION_MODE_HINT"] == "ACCURACY"
    assert properties(bf16, 2)["INFERENCE_PRECISION_HINT"] == "bf16"
    assert properties(int8, 2) == properties(exact, 2), "what is not quantised is float32"
    assert properties(both, 2) == properties(bf16, 2)
    assert properties(weights, 2) == properties(exact, 2), "activations before compressed weights stay float32"


def test_the_fingerprint_names_the_library_version() -> None:
    assert {target.fingerprint for target in targets("2026.4.1", (), ())} == {"openvino 2026.4.1"}


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
