"""What is wrong with a value a plugin made: dataclasses check no types, and what is wrong shows far from who did it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from collage_core.contract.artifact import Artifact, Requirement
from collage_core.contract.names import is_plain_name
from collage_core.contract.target import Joins, Target
from collage_core.contract.weights import weight_named


def target_problem(target: Target) -> str:
    """What keeps a target from being sent, shown or compared; empty if nothing.

    Examples:
        >>> target_problem(Target(toolchain="blas", fingerprint=3))
        'fingerprint is int, not str'
    """
    for name, kind in _TARGET_TYPES.items():
        value = getattr(target, name)
        if type(value) not in kind:
            return f"{name} is {type(value).__name__}, not {' or '.join(_spelt(each) for each in kind)}"
    if not all(isinstance(pair, tuple) and len(pair) == 2 and _all_strings(pair) for pair in target.options):
        return f"options are pairs of strings, not {target.options!r}"
    if not _all_strings(target.excludes):
        return f"excludes names toolchains, not {target.excludes!r}"
    if target.rounds is not None and not _all_strings(target.rounds):
        return f"rounds names operators, not {target.rounds!r}"
    return ""


def artifact_problem(artifact: Artifact) -> str:
    """What keeps an artifact from being sent, stored or loaded elsewhere; empty if nothing.

    Examples:
        >>> artifact_problem(Artifact(files={"../kernel.so": b""}))
        "'../kernel.so' is no plain file name: use ASCII letters, digits, blanks and any of _.@+=()[],-"
    """
    if not isinstance(artifact.files, Mapping):
        return f"files is {type(artifact.files).__name__}, not a mapping"
    for name, data in artifact.files.items():
        if not isinstance(name, str) or not is_plain_name(name):
            return f"{name!r} is no plain file name: use ASCII letters, digits, blanks and any of _.@+=()[],-"
        if not isinstance(data, bytes | bytearray | memoryview):
            return f"file {name!r} is {type(data).__name__}, not bytes"
    if not isinstance(artifact.metadata, Mapping):
        return f"metadata is {type(artifact.metadata).__name__}, not a mapping"
    try:
        json.dumps(dict(artifact.metadata), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        return f"metadata is not JSON: {error}"
    if not isinstance(artifact.constants, Mapping) or not _all_strings(
        (*artifact.constants, *artifact.constants.values())
    ):
        return "constants maps names to content hashes, both strings"
    try:
        for key in artifact.constants.values():
            weight_named(key)
    except ValueError as error:
        return str(error)
    if not isinstance(artifact.requires, tuple) or not all(isinstance(r, Requirement) for r in artifact.requires):
        return "requires is a tuple of requirements"
    if type(artifact.workspace_bytes) is not int or artifact.workspace_bytes < 0:
        return f"workspace_bytes is a number of bytes, not {artifact.workspace_bytes!r}"
    if not isinstance(artifact.variant, str):
        return f"variant is {type(artifact.variant).__name__}, not str"
    for name in ("capturable", "deterministic", "dynamic"):
        if not isinstance(getattr(artifact, name), bool):
            return f"{name} is {type(getattr(artifact, name)).__name__}, not bool"
    return ""


_TARGET_TYPES: Mapping[str, tuple[type, ...]] = {
    "toolchain": (str,),
    "device": (str,),
    "options": (tuple,),
    "fingerprint": (str,),
    "joins": (Joins,),
    "mixable": (bool,),
    "exact": (bool,),
    "rounds": (frozenset, type(None)),
    "excludes": (frozenset,),
    "max_inputs": (int, type(None)),
    "max_depth": (int, type(None)),
}


def _spelt(kind: type) -> str:
    return "None" if kind is type(None) else kind.__name__


def _all_strings(values: Any) -> bool:
    return all(isinstance(value, str) for value in values)
