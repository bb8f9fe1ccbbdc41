"""Requirements of `collage-triton` and its operators by type, as tables in its README; needs no GPU.

python -m benchmarks.triton_operators            prints them
python -m benchmarks.triton_operators --write    puts them into the README

A type is supported if ONNX has the operator in it and the plugin's predicate accepts a node of it: a small
one, as the plugin's own tests build it for each operator of its table.
"""

from __future__ import annotations

import argparse
import importlib
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import onnx
import onnx_ir

from benchmarks.page import lines_of
from benchmarks.triton_claims import README, proposals_for
from collage_core.contract import Device
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_triton.elements import ELEMENT_TYPES
from collage_triton.machine import LEAST_CAPABILITY, oldest_driver
from collage_triton.rules import RULES

BEGIN, END = "<!-- python -m benchmarks.triton_operators --write -->", "<!-- end of operators -->"


def _cases() -> Any:
    """Import the plugin's operator test cases.

    `CASES` describes how a node of each operator is built, `function_for` builds it.
    """
    return importlib.import_module("plugins.collage-triton.tests.cases")


def types_of(operator: str) -> tuple[str, ...]:
    """Return the types in which an operator is taken, by the compiler's names.

    They are the types of its first data input.

    Args:
        operator: Operator in the pattern table.
    """
    cases = _cases()
    first, *others = onnx.defs.get_schema(operator).inputs
    # of Where it is the second: the first says which
    allowed = others[0].types if set(first.types) == {"tensor(bool)"} and others else first.types
    return tuple(
        name for dtype, name in ELEMENT_TYPES.items() if _spelt(dtype) in allowed and _is_taken(cases, operator, dtype)
    )


def _spelt(dtype: onnx_ir.DataType) -> str:
    """Return the name of a tensor type in ONNX's schemas."""
    names = {onnx_ir.DataType.FLOAT: "float", onnx_ir.DataType.DOUBLE: "double"}
    return f"tensor({names.get(dtype, dtype.name.lower())})"


def _is_taken(cases: Any, operator: str, dtype: onnx_ir.DataType) -> bool:
    _, builds = cases.CASES[operator]
    for build in builds:
        try:
            function = cases.function_for(build, dtype, operator)
        except Exception:  # no such node: ONNX's inference refuses it, or NumPy has no such number
            continue
        graph = DataflowGraph(function.model)
        refusals = proposals_for(graph).refusals
        places = [index for index, node in enumerate(graph.nodes) if node.op_type == operator]
        if places and not any(index in refusals for index in places):
            return True
    return False


def rows(types: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, str]]:
    """Yield sets of types, each with the operators taken in exactly these; the largest groups first.

    Args:
        types: Types by operator.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for operator in sorted(types):
        groups.setdefault(types[operator], []).append(operator)
    for taken, operators in sorted(groups.items(), key=lambda each: (-len(each[1]), each[0])):
        yield ", ".join(taken), ", ".join(operators)


def _device(capability: str) -> Device:
    return Device(name="cuda:0", model="", compute_capability=capability, driver="", memory_bytes=0)


def needs() -> Iterator[tuple[str, str]]:
    """Yield the requirements, from the plugin's checks and its declared dependencies."""
    declared = tomllib.loads((README.parent / "pyproject.toml").read_text(encoding="utf-8"))
    extras = declared["project"]["optional-dependencies"]
    yield "compute capability", f"{'.'.join(map(str, LEAST_CAPABILITY))} or newer"
    newer, older = (oldest_driver(_device(capability)) for capability in ("9.0", "8.9"))
    yield "driver", f"{newer} from compute capability 9.0 on, {older} below"
    for extra in sorted(extras):
        yield f"`[{extra}]`", ", ".join(f"`{requirement.partition(';')[0].strip()}`" for requirement in extras[extra])


def tables() -> list[str]:
    """Format the tables as lines."""
    types = {operator: types_of(operator) for operator in RULES}
    return [*lines_of(("Needs", ""), needs()), "", *lines_of(("Types", "Operators"), rows(types))]


def written(readme: str) -> list[str]:
    """Extract the tables' lines from a README.

    Raises:
        ValueError: If the lines around them are missing.
    """
    return readme[readme.index(BEGIN) + len(BEGIN) : readme.index(END)].strip().splitlines()


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the tables into the README")
    lines = tables()
    if not parser.parse_args().write:
        print("\n".join(lines))
        return
    readme = README.read_text(encoding="utf-8")
    head, tail = readme[: readme.index(BEGIN) + len(BEGIN)], readme[readme.index(END) :]
    README.write_text("\n".join([head, "", *lines, "", tail]), encoding="utf-8")


if __name__ == "__main__":
    main()
