"""A plan and the costs of candidates, as a JSON file that a user can read, edit and force.

    {"schema_version": 1,
     "model": {"name": "model.onnx", "nodes": 412},
     "kernels": [{"target": "openvino", "nodes": ["conv_0", "relu_0"], "composite": "", "cost_us": 120.5}, ...],
     "costs": [{"target": "onnxruntime", "nodes": ["conv_0"], "composite": "", "cost_us": 130.0}, ...]}

`kernels` is the plan. If the key is missing or null, the cheapest plan under `costs` (possibly edited) is taken. A
kernel requires only `target` and `nodes`, a cost also `cost_us`; other keys are informational, as `ranges` is, which
says how the ranges of 8-bit integers were chosen. A kernel made of a library's own kernels names those in `parts`, each
with `composite`, `nodes`, and `parts` of its own, if it has any. Views (`Reshape` and the like) belong to their kernel
automatically, whether listed or not.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collage.control.kernel_parts import Part, described, read_parts
from collage.errors import PlanFileError
from collage.report.files import write_text
from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool
from collage_core.contract import INVALID, Unmeasured
from collage_core.fusion import CandidateKernel
from collage_core.ir.io.special_files import why_no_file
from collage_core.ir.operators.quantising import Range

SCHEMA_VERSION = 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One kernel, or one candidate with its cost.

    Attributes:
        target: Name of the target.
        nodes: Names of nodes of the prepared model.
        composite: Label of the pattern that matched the whole, or `""`.
        cost_us: Cost in microseconds; None if the file does not give it.
        int8: Ranges of the activations that are quantised, by name of the product that reads them; None for a product
            of which only the weight is quantised.
        parts: Labelled parts inside; None if the file does not say.
    """

    target: str
    nodes: tuple[str, ...]
    composite: str = ""
    cost_us: float | None = None
    int8: Mapping[str, Range | None] = dataclasses.field(default_factory=dict)
    parts: tuple[Part, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlanFile:
    """Content of a plan file.

    Attributes:
        source: File it was read from, for messages.
        model: Name of the model it was made for, or `""`.
        kernels: The plan; None to take the cheapest one under `costs`.
        costs: Candidates with their costs.
        ranges: How the ranges of 8-bit integers were chosen, or `""`.
    """

    source: str
    model: str
    kernels: tuple[Entry, ...] | None
    costs: tuple[Entry, ...]
    ranges: str = ""


def plan_document(
    plan: Plan, pool: CandidatePool | None, *, model: str, nodes: int, ranges: str = ""
) -> dict[str, Any]:
    """Convert a plan, and every candidate of the pool whose cost is known, to a JSON document.

    Args:
        plan: Plan to write.
        pool: Pool that the plan was chosen from; None to write the plan alone.
        model: Name of the model.
        nodes: Number of nodes of the prepared model.
        ranges: How the ranges of 8-bit integers were chosen; empty if there are none.
    """
    costs = plan.cost_of
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "model": {"name": model, "nodes": nodes},
        **({"ranges": ranges} if ranges else {}),
        "kernels": [_entry(kernel, costs[kernel.sub_graph.nodes]) for kernel in plan.kernels],
    }
    if pool is not None:
        known = [(candidate, pool.cost(candidate)) for candidate in pool]
        document["costs"] = [
            _entry(candidate, cost) for candidate, cost in known if not isinstance(cost, Unmeasured) and cost != INVALID
        ]
    return document


def write_plan(path: str | os.PathLike[str], document: Mapping[str, Any]) -> None:
    """Write a plan file atomically, with one entry per line.

    Raises:
        OSError: If it cannot be written.
    """
    lines = []
    for key, value in document.items():
        if isinstance(value, list):
            entries = ",\n  ".join(json.dumps(each, ensure_ascii=False) for each in value)
            lines.append(f'"{key}": [\n  {entries}\n ]' if value else f'"{key}": []')
        else:
            lines.append(f'"{key}": {json.dumps(value, ensure_ascii=False)}')
    write_text(path, "{" + ",\n ".join(lines) + "}\n")


def read_plan(path: str | os.PathLike[str]) -> PlanFile:
    """Read a plan file.

    Raises:
        PlanFileError: If it cannot be read, or is not a plan file.
    """
    source = os.fspath(path)
    if reason := why_no_file(source):
        raise PlanFileError(source, reason)
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise PlanFileError(source, str(error)) from error
    if not isinstance(document, dict) or document.get("schema_version") != SCHEMA_VERSION:
        raise PlanFileError(source, f'it is not JSON with "schema_version": {SCHEMA_VERSION}, as --save-plan writes it')
    kernels, costs, model = document.get("kernels"), document.get("costs"), document.get("model")
    if kernels is None and not costs:
        raise PlanFileError(source, 'it has neither "kernels" nor "costs"')
    return PlanFile(
        source=source,
        model=str(model.get("name", "")) if isinstance(model, dict) else "",
        kernels=None if kernels is None else _entries(source, "kernels", kernels),
        costs=_entries(source, "costs", costs or [], priced=True),
        ranges=str(document.get("ranges", "")),
    )


def _entry(kernel: CandidateKernel, cost_us: float) -> dict[str, Any]:
    facts: dict[str, Any] = {"target": kernel.target.name, "cost_us": round(cost_us, 3)}
    if kernel.sub_graph.label:
        facts["composite"] = kernel.sub_graph.label
    if kernel.sub_graph.composites:
        facts["parts"] = described(kernel.sub_graph.graph, kernel.sub_graph.composites)
    if kernel.sub_graph.int8:
        names = kernel.sub_graph.graph.names
        facts["int8"] = {names[each.node]: _as_list(each.span) for each in kernel.sub_graph.int8}
    return {**facts, "nodes": list(kernel.sub_graph.names)}


def _as_list(span: Range | None) -> list[float] | None:
    return None if span is None else [span.low, span.high]


def _entries(source: str, key: str, values: object, *, priced: bool = False) -> tuple[Entry, ...]:
    if not isinstance(values, list):
        raise PlanFileError(source, f'"{key}" is not a list')
    return tuple(_read(source, f"{key}[{number}]", value, priced) for number, value in enumerate(values))


def _read(source: str, where: str, value: object, priced: bool) -> Entry:
    if not isinstance(value, dict):
        raise PlanFileError(source, f"{where} is not an object")
    target, nodes = value.get("target"), value.get("nodes")
    composite, cost_us = value.get("composite", ""), value.get("cost_us")
    if not isinstance(target, str) or not isinstance(composite, str):
        raise PlanFileError(source, f'{where} needs a "target", and its "composite" is a string, too, if it has one')
    if not isinstance(nodes, list) or not nodes or not all(isinstance(name, str) for name in nodes):
        raise PlanFileError(source, f'{where} needs "nodes", a list of names')
    if cost_us is None and priced:
        raise PlanFileError(source, f'{where} needs a "cost_us"')
    if cost_us is not None and (type(cost_us) not in (int, float) or not 0 <= cost_us < math.inf):
        raise PlanFileError(source, f'"cost_us" of {where} is a number of microseconds, not {cost_us!r}')
    return Entry(
        target=target,
        nodes=tuple(nodes),
        composite=composite,
        cost_us=cost_us,
        int8=_ranges(source, where, value),
        parts=None if value.get("parts") is None else read_parts(source, where, value["parts"]),
    )


def _ranges(source: str, where: str, value: Mapping[str, Any]) -> dict[str, Range | None]:
    """Return the ranges of an entry's quantised products."""
    given = value.get("int8", {})
    try:
        return {name: None if span is None else _range(*span) for name, span in given.items()}
    except (AttributeError, TypeError, ValueError) as error:
        reason = f'"int8" of {where} has a range [low, high] with zero in it for each name of a product'
        raise PlanFileError(source, reason) from error


def _range(low: Any, high: Any) -> Range:
    return Range(float(low), float(high))
