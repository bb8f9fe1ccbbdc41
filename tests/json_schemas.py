"""Write the JSON schemas of what `--json` writes into `docs/generated/schemas`.

    python -m tests.json_schemas            says which are not up to date
    python -m tests.json_schemas --write    writes them

They are made from the dataclasses that are written: fields, types and docstrings.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collage.report.documents.outputs import DerivedFacts
from collage.report.facts.batch_facts import BatchReport
from collage.report.facts.bench_facts import BenchReport
from collage.report.facts.compare_facts import CompareReport
from collage.report.facts.doctor_facts import DoctorReport
from collage.report.facts.frontier_facts import FrontierReport
from collage.report.facts.inspect_facts import InspectReport
from collage.report.facts.measure_facts import MeasureReport
from collage.report.facts.record import Record
from collage.report.facts.resolve_facts import ResolveReport
from collage.report.facts.run_facts import RunReport
from collage.store.tuning_store import StoreStats
from collage_core.ir.values.size_range import SizeRange

FOLDER = Path(__file__).parents[1] / "docs" / "generated" / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_ENTRY = re.compile(r"^        (\w[\w, ]*): (.*(?:\n            .*)*)", re.MULTILINE)
"""An attribute in a docstring, with the lines that continue it."""

SCHEMAS: Mapping[str, tuple[str, type, Mapping[str, Any]]] = {
    "bench": ("`collage bench`", BenchReport, {}),
    "compare": ("`collage compare`", CompareReport, {"passed": bool, "max_error": float}),
    "db-stats": ("`collage db stats`", StoreStats, {"schema_version": int, "url": str}),
    "doctor": ("`collage doctor`", DoctorReport, {}),
    "frontier": ("`collage frontier`", FrontierReport, {}),
    "inspect": ("`collage inspect`", InspectReport, {}),
    "measure": ("`collage measure`", MeasureReport, {}),
    "optimize-all": ("`collage optimize-all`", BatchReport, {}),
    "plan": ("`collage optimize` and `collage explain`", Record, {"derived": DerivedFacts}),
    "resolve": ("`collage resolve`", ResolveReport, {}),
    "run": ("`collage run`", RunReport, {}),
}
"""By name: whose `--json` it is, the dataclass, and what is written besides its fields."""


def schema(name: str) -> dict[str, Any]:
    """Return a schema by its name."""
    whose, kind, more = SCHEMAS[name]
    parts: dict[str, Any] = {}
    whole = _object(kind, parts, more)
    if name == "plan":  # one, or one for each set of input shapes
        parts["plan"] = whole
        several = {
            "type": "object",
            "properties": {
                "schema_version": {"type": "integer"},
                "shapes": {"type": "array", "items": {"$ref": "#/$defs/plan"}},
            },
            "required": ["schema_version", "shapes"],
            "additionalProperties": False,
        }
        whole = {"oneOf": [{"$ref": "#/$defs/plan"}, several]}
    head = {"$schema": DIALECT, "title": f"What the --json of {whose} writes"}
    return {**head, **whole, "$defs": dict(sorted(parts.items()))}


def text_of(name: str) -> str:
    """Return the text of a schema's file."""
    return json.dumps(schema(name), indent=1, ensure_ascii=False) + "\n"


def file_of(name: str) -> Path:
    """Return the file of a schema."""
    return FOLDER / f"{name}.schema.json"


def _object(kind: type, parts: dict[str, Any], more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the schema of a dataclass; those that it is made of are added to `parts`."""
    hints = typing.get_type_hints(kind)
    said = _attributes(kind)
    properties = {}
    for field in dataclasses.fields(kind):
        described = {"description": said[field.name]} if field.name in said else {}
        properties[field.name] = {**described, **_of(hints[field.name], parts)}
    for name, hint in (more or {}).items():
        properties[name] = _of(hint, parts)
    return {
        "type": "object",
        "description": (kind.__doc__ or "").partition("\n")[0],
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _of(hint: Any, parts: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a type.

    Raises:
        TypeError: If no document has such a type.
    """
    plain = {str: "string", int: "integer", bool: "boolean", types.NoneType: "null"}
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if hint in plain:
        return {"type": plain[hint]}
    if hint is float:  # what is not finite is written as text
        return {"anyOf": [{"type": "number"}, {"enum": ["inf", "-inf", "nan"]}]}
    if hint is SizeRange:
        return {"type": "string", "pattern": r"^\d+\.\.\d+(@\d+)?$"}
    if origin is typing.Literal:
        return {"enum": list(inside)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_of(each, parts) for each in inside]}
    if origin is tuple and inside[1:] != (...,):
        return {
            "type": "array",
            "prefixItems": [_of(each, parts) for each in inside],
            "minItems": len(inside),
            "maxItems": len(inside),
        }
    if origin in (tuple, frozenset):
        return {"type": "array", "items": _of(inside[0], parts)}
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _of(inside[1], parts)}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if hint.__name__ not in parts:
            parts[hint.__name__] = {}  # it may hold itself
            parts[hint.__name__] = _object(hint, parts)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    raise TypeError(f"no JSON is written of {hint}")


def _attributes(kind: type) -> dict[str, str]:
    """Return what the docstring says of each attribute."""
    _, _, section = (kind.__doc__ or "").partition("Attributes:\n")
    found = {}
    for names, text in _ENTRY.findall(section):
        for name in names.split(","):
            found[name.strip()] = " ".join(text.split()).replace("None", "null")
    return found


def main() -> int:
    """Write the schemas, or say which are not up to date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    stale = [name for name in SCHEMAS if not file_of(name).is_file() or file_of(name).read_text() != text_of(name)]
    if parser.parse_args().write:
        FOLDER.mkdir(parents=True, exist_ok=True)
        for name in stale:
            file_of(name).write_text(text_of(name), encoding="utf-8")
        return 0
    for name in stale:
        print(f"{file_of(name)} is not up to date: python -m tests.json_schemas --write")
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
