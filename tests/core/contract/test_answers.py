"""What plugins make is looked at where they made it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from collage_core.contract import Artifact, Joins, Requirement, Target
from collage_core.contract.answers import artifact_problem, target_problem

TARGET = Target(
    toolchain="mock",
    options=(("precision", "bf16"),),
    fingerprint="mock 1",
    joins=Joins.ANY,
    rounds=frozenset({"MatMul"}),
    excludes=frozenset({"other"}),
    max_inputs=3,
)
NO_PLAIN_NAMES = (
    *("..", ".. ", "...", "a/", "a.", "a ", "a\n", "..\n", "a:b", "kernel#1.so", "größe.bin", "~x", "a\0"),
    *("CON", "nul.txt", "Aux.tar.gz", "com1", "LPT9.x", "CON .txt"),
)

ARTIFACT = Artifact(
    files={"kernel.bin": b"\x00", "facts.json": bytearray(b"{}")},  # type: ignore[dict-item]  # a plugin may give any
    metadata={"tiles": [1, 2], "fast": True},
    requires=(Requirement(kind="isa", name="avx2"),),
    constants={"w": "0" * 64},
    workspace_bytes=64,
    variant="first",
)


def test_what_is_well_made_has_no_problem() -> None:
    assert target_problem(TARGET) == ""
    assert artifact_problem(ARTIFACT) == ""


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"fingerprint": None}, "fingerprint is NoneType, not str"),
        ({"device": 0}, "device is int, not str"),
        ({"options": (("precision", 16),)}, "options[0][1] is int, not str"),
        ({"options": (("precision",),)}, "options[0] has 1 members, not 2"),
        ({"joins": "any"}, "joins is str, not Joins"),
        ({"mixable": 1}, "mixable is int, not bool"),
        ({"rounds": ("MatMul",)}, "rounds is tuple, not frozenset or None"),
        ({"rounds": frozenset({1})}, "a member of rounds is int, not str"),
        ({"excludes": {"other"}}, "excludes is set, not frozenset"),
        ({"excludes": frozenset({1})}, "a member of excludes is int, not str"),
        ({"on_request": None}, "on_request is NoneType, not bool"),
        ({"max_depth": 2.5}, "max_depth is float, not int or None"),
        ({"max_inputs": True}, "max_inputs is bool, not int or None"),
    ],
)
def test_a_target_is_of_the_types_it_says(change: dict[str, Any], problem: str) -> None:
    assert target_problem(dataclasses.replace(TARGET, **change)).startswith(problem)


@pytest.mark.guards(
    "names that leave the folder, of entries or of an artifact's files, or that some system takes for a device"
)
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"files": [b""]}, "files is list, not Mapping"),
        ({"files": {"../kernel": b""}}, "'../kernel' is no plain file name"),
        ({"files": {"": b""}}, "'' is no plain file name"),
        ({"files": {"a\\b": b""}}, r"'a\\b' is no plain file name"),
        # what a package cannot hold must not be measured first
        *(({"files": {name: b""}}, f"{name!r} is no plain file name") for name in NO_PLAIN_NAMES),
        ({"files": {"kernel": "text"}}, "files['kernel'] is str, not bytes"),
        ({"metadata": None}, "metadata is NoneType, not Mapping"),
        ({"metadata": {"scale": float("nan")}}, "metadata is not JSON"),
        ({"metadata": {"array": object()}}, "metadata is not JSON"),
        ({"constants": {"w": 3}}, "constants['w'] is int, not str"),
        ({"requires": [Requirement(kind="isa", name="avx2")]}, "requires is list, not tuple"),
        ({"requires": ("avx2",)}, "requires[0] is str, not Requirement"),
        ({"requires": (Requirement(kind=1, name="avx2"),)}, "requires[0].kind is int, not str"),  # type: ignore[arg-type]
        ({"workspace_bytes": -1}, "workspace_bytes is a number of bytes, not -1"),
        ({"workspace_bytes": "64"}, "workspace_bytes is str, not int"),
        ({"variant": 1}, "variant is int, not str"),
        ({"deterministic": None}, "deterministic is NoneType, not bool"),
    ],
)
def test_an_artifact_is_of_the_types_it_says(change: dict[str, Any], problem: str) -> None:
    assert artifact_problem(dataclasses.replace(ARTIFACT, **change)).startswith(problem)


def fields_of(value: Any) -> list[Any]:
    return [
        pytest.param(value, field.name, id=f"{type(value).__name__}.{field.name}")
        for field in dataclasses.fields(value)
    ]


@pytest.mark.parametrize("wrong", [object(), [], 1.5, Joins], ids=["object", "list", "float", "class"])
@pytest.mark.parametrize(
    ("value", "name"), [*fields_of(TARGET), *fields_of(ARTIFACT), *fields_of(ARTIFACT.requires[0])]
)
def test_no_field_is_forgotten(value: Any, name: str, wrong: object) -> None:
    changed = dataclasses.replace(value)
    object.__setattr__(changed, name, wrong)  # past what a constructor may check itself

    if isinstance(changed, Target):
        problem = target_problem(changed)
    elif isinstance(changed, Requirement):
        problem = artifact_problem(dataclasses.replace(ARTIFACT, requires=(changed,)))
    else:
        problem = artifact_problem(changed)

    said = f"requires[0].{name}" if isinstance(changed, Requirement) else name
    assert problem.startswith(f"{said} is {type(wrong).__name__}, not ")
