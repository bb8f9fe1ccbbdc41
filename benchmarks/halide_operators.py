"""Operators of `collage-halide` by the type of their data, as the table in its README; needs no Halide.

python -m benchmarks.halide_operators            prints it
python -m benchmarks.halide_operators --write    puts it into the README
"""

from __future__ import annotations

import argparse
import collections
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from benchmarks.page import lines_of
from collage_halide.elements import ELEMENT_TYPES, NAMES
from collage_halide.operators.table import OPERATORS

README = Path(__file__).parent.parent / "plugins" / "collage-halide" / "README.md"
_SPELT: Mapping[str, str] = {"FLOAT": "float", "DOUBLE": "double"}
_BY_TYPE = {dtype: kind.name for dtype, kind in ELEMENT_TYPES.items()}
BEGIN, END = "<!-- python -m benchmarks.halide_operators --write -->", "<!-- end of operators -->"


def types_of(operator: str) -> tuple[str, ...]:
    """Return the types in which an operator is taken: those of the plugin's table that ONNX has it in."""
    entry = OPERATORS[operator]
    allowed = onnx.defs.get_schema(operator).inputs[entry.data].types
    names = {name: f"tensor({_SPELT.get(dtype.name, dtype.name.lower())})" for dtype, name in _BY_TYPE.items()}
    return tuple(name for name in NAMES if name in entry.types and names[name] in allowed)


def table() -> list[str]:
    """Format the table as lines, the most types first."""
    found: dict[tuple[str, ...], list[str]] = collections.defaultdict(list)
    for operator in sorted(OPERATORS):
        found[types_of(operator)].append(operator)
    rows = sorted(found.items(), key=lambda row: (-len(row[1]), row[0]))
    return lines_of(("Types", "Operators"), ((", ".join(types), ", ".join(names)) for types, names in rows))


def written(text: str) -> list[str]:
    """Return the lines between the marks of a page, without blank ones around them."""
    inside = text.partition(BEGIN)[2].partition(END)[0]
    return inside.strip("\n").split("\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.halide_operators", description=__doc__)
    parser.add_argument("--write", action="store_true")
    if not parser.parse_args(arguments).write:
        print("\n".join(table()))
        return 0
    text = README.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    page = "\n".join([before + BEGIN, "", *table(), "", END + rest.partition(END)[2]])
    README.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
