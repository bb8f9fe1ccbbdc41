"""What a shell is offered, against what is installed."""

from __future__ import annotations

from typing import Any

import pytest
from click.shell_completion import BashComplete

from collage.cli import main
from collage.cli.options import completion
from collage.commands import doctor
from collage_core.errors import CollageError
from collage_core.registry import Registry


def offered(*words: str) -> list[str]:
    """What bash is offered for the last of these words."""
    *args, incomplete = words
    complete = BashComplete(main, {}, "collage", "_COLLAGE_COMPLETE")
    return [item.value for item in complete.get_completions(args, incomplete)]


def test_names_are_those_of_the_installed_toolchains() -> None:
    assert completion.toolchain_names() == sorted(
        {*Registry.discover().toolchains, *(failure.name for failure in Registry.discover().failures)}
    )
    assert "reference" in completion.toolchain_names()


@pytest.mark.parametrize(
    "words",
    [
        ("optimize", "m.onnx", "--toolchains", "ref"),
        ("optimize", "m.onnx", "--exclude", "ref"),
        ("optimize", "m.onnx", "--prefer", "ref"),
        ("partition", "m.onnx", "--for", "ref"),
        ("compare", "m.onnx", "p.collage", "--reference", "ref"),
    ],
    ids=" ".join,
)
def test_every_option_that_names_toolchains_is_completed(words: tuple[str, ...]) -> None:
    assert offered(*words) == ["reference"]


def test_the_last_of_a_list_is_completed() -> None:
    assert offered("optimize", "m.onnx", "--toolchains", "nobody,refer") == ["nobody,reference"]


def test_the_target_of_a_pin_is_completed() -> None:
    assert offered("optimize", "m.onnx", "--pin", "head/*=refer") == ["head/*=reference"]
    assert offered("optimize", "m.onnx", "--pin", "head") == []


def test_targets_with_options_are_the_toolchains_own_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def targets_of(name: str) -> tuple[str, ...]:
        asked.append(name)
        return ("fast", "fast(precision=bf16)", "fast(spin=true)")

    monkeypatch.setattr(doctor, "targets_of", targets_of)

    assert offered("optimize", "m.onnx", "--toolchains", "a,fast(p") == ["a,fast(precision=bf16)"]
    assert asked == ["fast"]


def test_a_toolchain_that_fails_offers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def targets_of(name: str) -> Any:
        raise CollageError("it crashed")

    monkeypatch.setattr(doctor, "targets_of", targets_of)

    assert offered("optimize", "m.onnx", "--toolchains", "fast(p") == []


def test_the_targets_of_an_installed_toolchain_are_those_that_doctor_lists() -> None:
    assert doctor.targets_of("reference") == ("reference",)
    assert doctor.targets_of("nobody") == ()
