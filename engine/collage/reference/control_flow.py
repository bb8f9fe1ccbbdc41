"""Run If, Loop, Scan and SequenceMap over captured values.

ONNX's own Loop stacks scalar scan outputs with `np.vstack`, which gives (n, 1) where the standard says (n,),
stops at once when `cond` is omitted, and cannot return an empty scan output; its Scan supports only axis 0 and the
forward direction; the body of its SequenceMap cannot access outer values (onnx 1.23, `onnx/reference/ops/op_loop.py`,
`op_scan.py`, `op_sequence_map.py`). So these implementations follow the standard's text.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

RunGraph = Callable[[ir.Graph, Sequence[Any]], tuple[Any, ...]]
"""Runs a sub-graph on its inputs; captured values are already bound."""


def run_if(node: ir.Node, inputs: Sequence[Any], run: RunGraph) -> tuple[Any, ...]:
    """Run the branch that the condition, one element, selects."""
    branch = "then_branch" if bool(np.asarray(inputs[0]).item()) else "else_branch"
    return run(node.attributes[branch].as_graph(), ())


def run_loop(node: ir.Node, inputs: Sequence[Any], run: RunGraph) -> tuple[Any, ...]:
    """Run the body until the trip count is reached or the condition is false; both are optional."""
    body = node.attributes["body"].as_graph()
    limit = None if inputs[0] is None else int(np.asarray(inputs[0]).item())
    condition = np.array(True) if len(inputs) < 2 or inputs[1] is None else inputs[1]
    carried = list(inputs[2:])
    scanned: list[list[Any]] = [[] for _ in body.outputs[1 + len(carried) :]]
    for step in itertools.count():
        if (limit is not None and step >= limit) or not bool(np.asarray(condition).item()):
            break
        results = run(body, (np.array(step, dtype=np.int64), condition, *carried))
        condition = results[0]
        carried = list(results[1 : 1 + len(carried)])
        for collected, result in zip(scanned, results[1 + len(carried) :], strict=True):
            collected.append(result)
    stacks = [
        np.stack(collected) if collected else _empty(value, 0)
        for collected, value in zip(scanned, body.outputs[1 + len(carried) :], strict=True)
    ]
    return (*carried, *stacks)


def run_scan(node: ir.Node, inputs: Sequence[Any], run: RunGraph) -> tuple[Any, ...]:
    """Run the body once per slice of the scanned inputs; as of opset 8, that for each item of a batch."""
    body = node.attributes["body"].as_graph()
    if len(inputs) == len(body.inputs) + 1:  # only that opset has an input the body has not: lengths of sequences
        return _run_batch_scan(node, inputs, run)
    scan_count = node.attributes["num_scan_inputs"].as_int()
    state_count = len(inputs) - scan_count
    state, scanned = list(inputs[:state_count]), inputs[state_count:]
    out_values = body.outputs[state_count:]
    axes = _integers(node.attributes, "scan_input_axes", scan_count)
    backwards = _integers(node.attributes, "scan_input_directions", scan_count)
    out_axes = _integers(node.attributes, "scan_output_axes", len(out_values))
    out_backwards = _integers(node.attributes, "scan_output_directions", len(out_values))
    length = scanned[0].shape[axes[0]]
    collected: list[list[Any]] = [[] for _ in out_values]
    for step in range(length):
        slices = [
            np.take(array, length - 1 - step if back else step, axis=axis)
            for array, axis, back in zip(scanned, axes, backwards, strict=True)
        ]
        results = run(body, (*state, *slices))
        state = list(results[:state_count])
        for column, result in zip(collected, results[state_count:], strict=True):
            column.append(result)
    stacks = [
        np.stack(column[::-1] if back else column, axis=axis) if column else _empty(value, axis)
        for column, value, axis, back in zip(collected, out_values, out_axes, out_backwards, strict=True)
    ]
    return (*state, *stacks)


def _run_batch_scan(node: ir.Node, inputs: Sequence[Any], run: RunGraph) -> tuple[Any, ...]:
    """Run a Scan of opset 8: batches on axis 0, sequences on axis 1, which end early where a length says so."""
    body = node.attributes["body"].as_graph()
    scan_count = node.attributes["num_scan_inputs"].as_int()
    lengths, states, scanned = inputs[0], inputs[1 : len(inputs) - scan_count], inputs[len(inputs) - scan_count :]
    backwards = _integers(node.attributes, "directions", scan_count)
    batch, longest = scanned[0].shape[:2]
    columns: list[list[Any]] = [[] for _ in body.outputs]
    for item in range(batch):
        length = longest if lengths is None else int(lengths[item])
        state = [each[item] for each in states]
        collected: list[list[Any]] = [[] for _ in body.outputs[len(state) :]]
        for step in range(length):
            slices = [
                array[item, length - 1 - step if back else step] for array, back in zip(scanned, backwards, strict=True)
            ]
            results = run(body, (*state, *slices))
            state = list(results[: len(state)])
            for column, result in zip(collected, results[len(state) :], strict=True):
                column.append(result)
        padded = [_padded(c, longest, value) for c, value in zip(collected, body.outputs[len(state) :], strict=True)]
        for column, result in zip(columns, [*state, *padded], strict=True):
            column.append(result)
    return tuple(np.stack(column) for column in columns)


def run_sequence_map(node: ir.Node, inputs: Sequence[Any], run: RunGraph) -> tuple[Any, ...]:
    """Run the body once per member of the first sequence; further inputs that are no sequences go in whole."""
    body = node.attributes["body"].as_graph()
    collected: list[list[Any]] = [[] for _ in body.outputs]
    for index in range(len(inputs[0])):
        results = run(body, [each[index] if isinstance(each, list | tuple) else each for each in inputs])
        for column, result in zip(collected, results, strict=True):
            column.append(result)
    return tuple(collected)


def _padded(steps: Sequence[Any], length: int, value: ir.Value) -> Any:
    """Stack steps along a new axis 0 and pad with zeros at the end."""
    taken = np.stack(steps) if steps else _empty(value, 0)
    return np.concatenate([taken, np.zeros((length - len(taken), *taken.shape[1:]), taken.dtype)])


def _integers(attributes: Mapping[str, ir.Attr], name: str, count: int) -> list[int]:
    return list(attributes[name].as_ints()) if name in attributes else [0] * count


def _empty(value: ir.Value, axis: int) -> Any:
    """Return the stack of no steps: what the body declares, with an axis of length 0."""
    if value.dtype is None or value.shape is None or not value.shape.is_static():
        raise NotImplementedError(f"no step ran and the shape of {value.name!r} is not declared")
    shape = list(value.shape.numpy())
    shape.insert(axis % (len(shape) + 1), 0)
    return np.empty(shape, dtype=value.dtype.numpy())


OPERATORS: Mapping[str, Callable[[ir.Node, Sequence[Any], RunGraph], tuple[Any, ...]]] = {
    "If": run_if,
    "Loop": run_loop,
    "Scan": run_scan,
    "SequenceMap": run_sequence_map,
}
