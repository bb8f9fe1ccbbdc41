"""Query TensorRT for its operators and their types: `python -m collage_tensorrt.operators [tensorrt]`.

The queries are ONNX's own node tests, of one node each: unchanged; with all inputs but the first as
constants, which is how shapes, axes and weights come in models; and with the first output alone, since no
model uses the others of a LayerNormalization. The types are those of the first input, and of all values
that ONNX requires to have the same type.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnx_ir

from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.patterns import NodeContext
from collage_tensorrt.editions import RTX, TENSORRT
from collage_tensorrt.patterns import takes
from collage_tensorrt.query import problem

D = onnx_ir.DataType
TYPES = MappingProxyType(
    {
        D.FLOAT: "f32",
        D.FLOAT16: "f16",
        D.BFLOAT16: "bf16",
        D.INT8: "i8",
        D.UINT8: "u8",
        D.INT32: "i32",
        D.INT64: "i64",
        D.BOOL: "bool",
    }
)
"""Types that are queried, with their names in the table."""

_QUOTED = re.compile(r"'[\w/.:-]+'")

_CASES = 12
"""Most queries about an operator in one type; the first accepted one ends them."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A query about one node.

    Attributes:
        model: A model of that node.
        inputs: Values of its inputs in ONNX's test, in order; None for inputs that are not arrays.
    """

    model: onnx_ir.Model
    inputs: tuple[np.ndarray[Any, Any] | None, ...]

    @property
    def node(self) -> onnx_ir.Node:
        """The node."""
        return self.model.graph.node(0)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Result for one operator.

    Attributes:
        operator: Name of the operator.
        types: Types in which it is accepted.
        reason: Why it is refused in the first type queried; empty if it is accepted in some type.
    """

    operator: str
    types: tuple[onnx_ir.DataType, ...]
    reason: str


def rows(library: Any, cases: Iterable[Case]) -> Iterator[Row]:
    """Yield a row for each operator of some cases, by name."""
    grouped: dict[str, list[Case]] = {}
    for case in cases:
        grouped.setdefault(case.node.op_type, []).append(case)
    for operator in sorted(grouped):
        answers: dict[onnx_ir.DataType, str] = {}
        for dtype in TYPES:
            tried = 0
            for case in grouped[operator]:
                if tried == _CASES or answers.get(dtype) == "":
                    break
                for model in _asked(case, dtype):
                    reason = _reason(library, model)
                    answers[dtype] = reason
                    tried += 1
                    if not reason:
                        break
        taken = tuple(dtype for dtype, reason in answers.items() if not reason)
        reasons = [reason for reason in answers.values() if reason]
        why = "" if taken else next(iter(reasons), "ONNX's tests have it in none of these types")
        yield Row(operator=operator, types=taken, reason=why)


def page(found: Sequence[Row]) -> str:
    """Return the table of a README, in Markdown."""
    taken = [row for row in found if row.types]
    refused: dict[str, list[str]] = {}
    for row in found:
        if not row.types:
            refused.setdefault(_general(row.reason, row.operator), []).append(row.operator)
    by_types: dict[tuple[str, ...], list[str]] = {}
    for row in taken:
        by_types.setdefault(tuple(TYPES[dtype] for dtype in row.types), []).append(row.operator)
    lines = [f"Taken, {len(taken)} of {len(found)}:", "", "| Types | Operators |", "|---|---|"]
    lines += [f"| {', '.join(types)} | {', '.join(names)} |" for types, names in _by_size(by_types)]
    lines += ["", f"Refused, {len(found) - len(taken)}:", "", "| Why | Operators |", "|---|---|"]
    lines += [f"| {_cell(reason)} | {', '.join(names)} |" for reason, names in _by_size(refused)]
    return "\n".join(lines) + "\n"


def onnx_cases() -> Iterator[Case]:
    """Yield ONNX's node tests of standard operators in the newest opset, each as its single node."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some tests overflow on purpose while they are made
        tests = list(load_model_tests(kind="node"))
    for test in tests:
        nodes = test.model.graph.node
        if len(nodes) != 1 or nodes[0].domain or test.model.functions:
            continue
        arrays = [each if isinstance(each, np.ndarray) else None for each in test.data_sets[0][0]]
        yield Case(model=onnx_ir.from_proto(test.model), inputs=tuple(arrays))


def _asked(case: Case, dtype: onnx_ir.DataType) -> Iterator[onnx_ir.Model]:
    """Yield a case in a type, in all its forms; nothing if ONNX does not have it in that type."""
    if not case.node.inputs or case.node.inputs[0] is None:
        if dtype is D.FLOAT:
            yield case.model
        return
    version = case.model.opset_imports.get("", 1)
    try:
        schema = onnx.defs.get_schema(case.node.op_type, version, "")
    except onnx.defs.SchemaError:
        return
    first = schema.inputs[0]
    if f"tensor({_onnx_name(dtype)})" not in first.types:
        return
    forms = itertools.product((False, True), (False, True))
    for first_output, constants in forms:
        model = case.model.clone()
        _retype(model.graph.node(0), schema, first.type_str, dtype)
        if constants and not _bind(model, case.inputs):
            continue
        if first_output and not _narrow(model):
            continue
        yield model


def _retype(node: onnx_ir.Node, schema: Any, parameter: str, dtype: onnx_ir.DataType) -> None:
    """Change the type of all values of a type parameter."""
    for values, formals in ((node.inputs, schema.inputs), (node.outputs, schema.outputs)):
        for place, value in enumerate(values):
            formal = formals[min(place, len(formals) - 1)]  # the last may stand for many
            if value is not None and formal.type_str == parameter and isinstance(value.type, onnx_ir.TensorType):
                value.dtype = dtype


def _bind(model: onnx_ir.Model, arrays: Sequence[np.ndarray[Any, Any] | None]) -> bool:
    """Turn all inputs but the first into constants; return False if there are none or one has no array."""
    graph = model.graph
    if len(graph.inputs) < 2:
        return False
    for value, array in list(zip(graph.inputs, arrays, strict=False))[1:]:
        if array is None or value.dtype is None:
            return False
        tensor = onnx_ir.tensor(array.astype(value.dtype.numpy()), name=value.name)
        graph.inputs.remove(value)
        value.const_value = tensor
        graph.register_initializer(value)
    return True


def _narrow(model: onnx_ir.Model) -> bool:
    """Remove all outputs but the first; return False if there are none to remove."""
    graph, node = model.graph, model.graph.node(0)
    if len(graph.outputs) < 2:
        return False
    del graph.outputs[1:]
    for value in node.outputs[1:]:
        value.name = ""
    return True


def _reason(library: Any, model: onnx_ir.Model) -> str:
    """Return why a node is refused: by the plugin's own predicate, else by the importer; empty if it is not."""
    answer = takes(NodeContext(DataflowGraph(model), 0))
    return (problem(library, model) or "") if answer else answer.reason


def _onnx_name(dtype: onnx_ir.DataType) -> str:
    return {D.FLOAT: "float", D.FLOAT16: "float16", D.BFLOAT16: "bfloat16"}.get(dtype, dtype.name.lower())


def _general(reason: str, operator: str) -> str:
    """Return a reason without the parts that are specific to one operator or one model."""
    said = reason.removeprefix(f"{operator}: ").replace(f"{operator} plugin", "plugin")
    return _QUOTED.sub("'...'", said)


def _by_size(groups: Mapping[Any, list[str]]) -> list[tuple[Any, list[str]]]:
    return sorted(groups.items(), key=lambda each: (-len(each[1]), each[1]))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    edition = TENSORRT if sys.argv[1:] == ["tensorrt"] else RTX
    module = edition.find()
    print(f"{edition.title} {module.__version__}\n")
    print(page(list(rows(module, onnx_cases()))), end="")
