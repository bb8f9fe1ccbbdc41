"""Algorithms of the library's heuristic, each a variant."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

from collage_core.contract import Artifact, BuildContext, KernelFunction, Requirement, Target, Unsupported
from collage_core.ir.content import constant_of
from collage_core.patterns import Match, Mismatch, match_model
from tests.drafts.cublaslt.library import CublasError, Found, Library
from tests.drafts.cublaslt.patterns import PATTERNS, takes
from tests.drafts.cublaslt.problem import Problem, preference


def lower(
    library: Library, handle: int, target: Target, function: KernelFunction, build: BuildContext
) -> Iterator[Artifact] | Unsupported:
    """Asks for as many algorithms as core will try, or takes those it was told before from the blob cache."""
    found = match_model(PATTERNS[function.composite], function.model)
    if isinstance(found, Mismatch):
        return Unsupported(f"not {function.composite}: {found.reason}")
    if not (answer := takes(found)):
        return answer
    device = build.host.device(target.device)
    if device is None:
        return Unsupported(f"the machine has no {target.device}")
    problem = Problem.of(found)
    key = f"{function.structural_hash}/{device.fingerprint}/{build.workspace_limit_bytes}"
    known = _remembered(build.blobs.get(key))
    fresh = build.variant not in map(_name, known) if build.variant else len(known) < build.max_variants
    if fresh:
        try:
            known = library.heuristic(
                handle, problem.described(library), preference(library, build.workspace_limit_bytes), build.max_variants
            )
        except CublasError as error:
            return Unsupported(str(error))
        build.blobs.put(key, json.dumps([[each.algorithm.hex(), each.workspace_bytes] for each in known]).encode())
    wanted = [each for each in known if build.variant in (None, _name(each))]
    if not wanted:
        return Unsupported("its heuristic finds no algorithm")
    requires = (
        Requirement(kind="compute_capability", name="cuda", specifier=f"=={device.compute_capability}"),
        Requirement(kind="device", name=device.model),
    )
    operands, constants = _operands(function, found)
    return (
        Artifact(
            files={"algorithm.bin": each.algorithm},
            metadata={"problem": problem.to_json(), "operands": operands, "version": library.version()},
            requires=requires,
            constants=constants,
            workspace_bytes=each.workspace_bytes,
            variant=_name(each),
            capturable=True,
        )
        for each in wanted
    )


def _operands(function: KernelFunction, found: Match) -> tuple[dict[str, int | str], dict[str, str]]:
    """Where each operand comes from, an input's position or a weight's name; and the hashes of those weights."""
    positions = {value: place for place, value in enumerate(function.model.graph.inputs)}
    operands: dict[str, int | str] = {}
    constants: dict[str, str] = {}
    for name in ("a", "b", "bias"):
        value = found.captures.get(name)
        if value is None:
            continue
        if constant_of(value) is None:
            operands[name] = positions[value]
        else:
            operands[name] = str(value.name)
            constants[str(value.name)] = function.constants[str(value.name)]
    return operands, constants


def _name(found: Found) -> str:
    """By what it is, not by its place in a list that may be ordered otherwise next time."""
    return hashlib.sha256(found.algorithm).hexdigest()[:12]


def _remembered(kept: bytes | None) -> list[Found]:
    return [Found(bytes.fromhex(algorithm), size) for algorithm, size in json.loads(kept or b"[]")]
