"""The README's table of operators is what the importer says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
import pytest

from collage_tensorrt.operators import TYPES, Case, Row, onnx_cases, page, rows
from collage_tensorrt.query import problem
from collage_testing import operator_models

from .emulated import Library

README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- python -m collage_tensorrt.operators -->\n\n", "\n<!-- end -->"


def table() -> str:
    return README.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]


def written() -> dict[str, set[str]]:
    """Types by operator, from the README's first table."""
    taken = table().partition("Refused")[0]
    found: dict[str, set[str]] = {}
    for line in taken.splitlines():
        if line.startswith("| ") and not line.startswith("| Types"):
            types, names = (cell.strip().split(", ") for cell in line.strip("| ").split(" | "))
            found.update({name: set(types) for name in names})
    return found


@pytest.mark.slow
def test_the_table_is_what_the_importer_says(rtx: Any) -> None:
    if rtx.__version__ not in README.read_text(encoding="utf-8"):
        pytest.skip(f"the README is about another version than {rtx.__version__}; run the command in it again")

    assert table() == page(list(rows(rtx, onnx_cases())))


def test_the_tables_operators_are_those_of_small_models(rtx: Any) -> None:
    """Independent of how the table is made: models by hand, one node each."""
    known = written()
    assert len(known) > 100
    for name, model in operator_models().items():
        [node] = model.graph
        first = node.inputs[0]
        assert first is not None
        assert first.dtype is not None
        claimed = TYPES[first.dtype] in known.get(node.op_type, set())
        assert claimed is (problem(rtx, model) is None), name


def test_a_row_says_in_which_types_a_node_is_taken_or_why_in_none() -> None:
    """Asked of the emulation, which takes what its source lists."""
    shape = np.array([4, 2], np.int64)
    x = np.zeros((2, 4), np.float32)
    cases = [
        case("Reshape", {"x": x, "s": shape}),  # taken once its shape is a constant
        case("Det", {"x": np.zeros((2, 2), np.float32)}),
    ]

    det, reshape = rows(Library(), cases)

    assert det == Row(operator="Det", types=(), reason="Det: unsupported node")
    names = [TYPES[dtype] for dtype in reshape.types]
    assert (reshape.operator, names, reshape.reason) == ("Reshape", list(TYPES.values()), "")
    assert page([det, reshape]).splitlines() == [
        "Taken, 1 of 2:",
        "",
        "| Types | Operators |",
        "|---|---|",
        "| f32, f16, bf16, i8, u8, i32, i64, bool | Reshape |",
        "",
        "Refused, 1:",
        "",
        "| Why | Operators |",
        "|---|---|",
        "| unsupported node | Det |",
    ]


def case(operator: str, arrays: dict[str, np.ndarray[Any, Any]]) -> Case:
    inputs = [onnx_ir.val(name, onnx_ir.DataType.from_numpy(a.dtype), a.shape) for name, a in arrays.items()]
    output = onnx_ir.val("y", onnx_ir.DataType.FLOAT, arrays["s"].tolist() if "s" in arrays else [])
    node = onnx_ir.node(operator, inputs, outputs=[output], name="node")
    graph = onnx_ir.Graph(inputs, [output], nodes=[node], opset_imports={"": 20}, name="case")
    return Case(model=onnx_ir.Model(graph, ir_version=10), inputs=tuple(arrays.values()))
