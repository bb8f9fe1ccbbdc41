"""Validate values made by plugins.

Dataclasses do not check types, and an invalid value otherwise fails far from the plugin that made it.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from collage_core.contract.artifact import Artifact
from collage_core.contract.function import KernelFunction
from collage_core.contract.names import is_plain_name
from collage_core.contract.profile import KernelProfile
from collage_core.contract.target import Target
from collage_core.contract.weights import weight_named

_BYTES = (bytes, bytearray, memoryview)
"""What plugins may give as the content of a file: all that can be written as it is."""


def target_problem(target: Target) -> str:
    """Say what keeps a target from being sent, shown or compared; empty if nothing.

    Examples:
        >>> target_problem(Target(toolchain="blas", fingerprint=3))
        'fingerprint is int, not str'
    """
    return _fields_problem(target)


def artifact_problem(artifact: Artifact) -> str:
    """Say what keeps an artifact from being sent, stored or loaded elsewhere; empty if nothing.

    Examples:
        >>> artifact_problem(Artifact(files={"../kernel.so": b""}))
        "'../kernel.so' is no plain file name: use ASCII letters, digits, blanks and any of _.@+=()[],-"
    """
    if problem := _fields_problem(artifact):
        return problem
    for name in artifact.files:
        if not is_plain_name(name):
            return f"{name!r} is no plain file name: use ASCII letters, digits, blanks and any of _.@+=()[],-"
    try:
        json.dumps(dict(artifact.metadata), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        return f"metadata is not JSON: {error}"
    try:
        for key in artifact.constants.values():
            weight_named(key)
    except ValueError as error:
        return str(error)
    if artifact.workspace_bytes < 0:
        return f"workspace_bytes is a number of bytes, not {artifact.workspace_bytes}"
    return ""


def profile_problem(profile: KernelProfile, function: KernelFunction) -> str:
    """Say what keeps a profile from being sent, or from being about a function; empty if nothing."""
    if problem := _fields_problem(profile):
        return problem
    names = {node.name for node in function.model.graph}
    for part in profile.parts:
        if unknown := [name for name in part.nodes if name not in names]:
            return f"the function has no node {unknown[0]!r}"
    return ""


def _fields_problem(value: Any, inside: str = "") -> str:
    """Say which field of a dataclass is not of its declared type."""
    for name, declared in _declared(type(value)).items():
        if problem := _type_problem(getattr(value, name), declared, inside + name):
            return problem
    return ""


def _declared(kind: type) -> Mapping[str, Any]:
    # Json refers to itself: whether metadata is JSON is for `json` to say
    hints = typing.get_type_hints(kind, localns={"Json": object})
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _type_problem(value: Any, declared: Any, name: str) -> str:
    """Say how a value differs from a type; `name` is what to call the value."""
    kinds = typing.get_args(declared) if isinstance(declared, types.UnionType) else (declared,)
    for kind in kinds:
        if _is_of(value, typing.get_origin(kind) or kind):
            return _content_problem(value, kind, name)
    return f"{name} is {type(value).__name__}, not {' or '.join(map(_spelt, kinds))}"


def _content_problem(value: Any, kind: Any, name: str) -> str:
    """Say which part of a value is not of its declared type; the value itself is."""
    if dataclasses.is_dataclass(value):
        return _fields_problem(value, f"{name}.")
    origin, declared = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple and declared[1:] != (...,) and len(value) != len(declared):
        return f"{name} has {len(value)} members, not {len(declared)}"
    problems = (_type_problem(*part) for part in _parts(value, origin, declared, name))
    return next(filter(None, problems), "")


def _parts(value: Any, origin: Any, declared: tuple[Any, ...], name: str) -> Iterator[tuple[Any, Any, str]]:
    """Yield the parts of a value with their declared types and what to call them."""
    if origin is Mapping:
        of_keys, of_values = declared
        for key, each in value.items():
            yield key, of_keys, f"a key of {name}"
            yield each, of_values, f"{name}[{key!r}]"
    elif origin is frozenset:
        for each in value:
            yield each, declared[0], f"a member of {name}"
    elif origin is tuple:
        kinds = itertools.repeat(declared[0]) if declared[1:] == (...,) else declared
        for index, (each, kind) in enumerate(zip(value, kinds, strict=False)):
            yield each, kind, f"{name}[{index}]"
    elif origin is not None:
        raise TypeError(f"nothing says how to check {name}, which is declared as a {origin.__name__}")


def _is_of(value: Any, kind: type) -> bool:
    if kind is bytes:
        return isinstance(value, _BYTES)
    if kind in (int, bool, str):
        return type(value) is kind  # a bool is an int, and some texts print as others
    return isinstance(value, kind)


def _spelt(kind: Any) -> str:
    return "None" if kind is type(None) else str((typing.get_origin(kind) or kind).__name__)
