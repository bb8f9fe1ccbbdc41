"""Targets, and what is offered to them."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence

import pytest

from collage.devices.this_host import this_host
from collage_core.contract import Joins, Target, Unsupported
from collage_onnxruntime.plugin import plugin


def targets(*flags: str) -> dict[str, Target]:
    answer = plugin.collage_targets(dataclasses.replace(this_host(), cpu_flags=frozenset(flags)))
    assert isinstance(answer, Sequence)
    return {target.name: target for target in answer}


def test_the_default_target_mixes_and_the_spinning_one_does_not() -> None:
    found = targets()
    assert list(found) == ["onnxruntime", "onnxruntime(spin=true)", "onnxruntime(precision=int8)"]
    assert [target.mixable for target in found.values()] == [True, False, True]
    assert [target.exact for target in found.values()] == [True, True, False]
    assert all(target.joins is Joins.ANY for target in found.values())


@pytest.mark.parametrize("flag", ["avx_vnni", "avx512_vnni", "amx_int8"])
def test_8_bit_integers_are_on_request_where_the_cpu_does_not_multiply_them(flag: str) -> None:
    assert targets("avx2")["onnxruntime(precision=int8)"].on_request
    assert not targets("avx2", flag)["onnxruntime(precision=int8)"].on_request


def test_the_fingerprint_names_the_library_version() -> None:
    import onnxruntime

    assert {target.fingerprint for target in targets().values()} == {f"onnxruntime {onnxruntime.__version__}"}


def test_an_old_library_is_refused_with_the_version_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    monkeypatch.setattr(onnxruntime, "__version__", "1.9.0")
    answer = plugin.collage_targets(this_host())
    assert isinstance(answer, Unsupported)
    assert "1.9.0 is too old" in answer.reason


def test_a_missing_library_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    answer = plugin.collage_targets(this_host())
    assert isinstance(answer, Unsupported)
    assert "pip install onnxruntime" in answer.reason
