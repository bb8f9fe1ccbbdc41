"""Targets, and what is offered to them."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest

from collage.devices.this_host import this_host
from collage_core.contract import Joins, Target, Unsupported
from collage_onnxruntime.plugin import plugin


def targets() -> dict[str, Target]:
    answer = plugin.collage_targets(this_host())
    assert isinstance(answer, Sequence)
    return {target.name: target for target in answer}


def test_the_default_target_mixes_and_the_spinning_one_does_not() -> None:
    found = targets()
    assert list(found) == ["onnxruntime", "onnxruntime(spin=true)"]
    assert found["onnxruntime"].mixable
    assert not found["onnxruntime(spin=true)"].mixable
    assert all(target.joins is Joins.ANY and target.exact for target in found.values())


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
