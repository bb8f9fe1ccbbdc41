"""Models with something odd in them, ordinary float parts around it, and what each computes, in plain NumPy.

A builder is a function marked with `odd`; the modules `odd_bodies`, `odd_values`, `odd_shapes`, `odd_types` and
`odd_form` hold them. `joined` puts many of them beside each other in one model.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

HEADER = '<ir_version: 10, opset_import: ["" : 21, "ai.onnx.ml" : 5, "test.local" : 1, "test.other" : 1]>\n'
Oracle = Callable[..., Mapping[str, Any]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OddModel:
    """A model and what it is to compute.

    Attributes:
        name: What is odd about it.
        proto: The model.
        feeds: Inputs to run it on; the first are those to optimize it with.
        oracle: Computes the outputs from the inputs, both by name.
    """

    name: str
    proto: onnx.ModelProto
    feeds: tuple[Mapping[str, Any], ...]
    oracle: Oracle

    def expected(self, case: int = 0) -> Mapping[str, Any]:
        """What the model gives for one of its feeds."""
        return self.oracle(**self.feeds[case])


ODD: dict[str, Callable[[], OddModel]] = {}
"""Builders by name."""


def odd(builder: Callable[[], OddModel]) -> Callable[[], OddModel]:
    """Registers a builder under its own name."""
    ODD[builder.__name__] = builder
    return builder


def made(
    name: str, text: str, oracle: Oracle, *feeds: Mapping[str, Any], header: str = HEADER, **weights: Any
) -> OddModel:
    """A model from ONNX's textual form; each weight becomes an initializer."""
    proto = onnx.parser.parse_model(header + text)
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(value), key) for key, value in weights.items())
    return OddModel(name=name, proto=proto, feeds=feeds, oracle=oracle)


def floats(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    """Normal numbers, the same each time."""
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(dtype)


def relu(array: Any) -> Any:
    """As the operator."""
    return np.maximum(array, np.zeros((), array.dtype))


def texts(*items: str) -> Any:
    """A tensor of strings."""
    return np.array(items, dtype=object)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """Models beside each other in one.

    Attributes:
        proto: The one; names of each start with its own and a slash.
        parts: The models.
    """

    proto: onnx.ModelProto
    parts: Sequence[OddModel]

    def feeds(self, case: int = 0) -> dict[str, Any]:
        """Inputs of all; a model with fewer feeds than asked for takes its last."""
        return {
            f"{part.name}/{key}": value
            for part in self.parts
            for key, value in part.feeds[min(case, len(part.feeds) - 1)].items()
        }

    def expected(self, case: int = 0) -> dict[str, Any]:
        """Outputs of all."""
        return {
            f"{part.name}/{key}": value
            for part in self.parts
            for key, value in part.expected(min(case, len(part.feeds) - 1)).items()
        }


def joined(parts: Sequence[OddModel]) -> Joined:
    """Puts models beside each other."""
    proto = onnx.parser.parse_model(HEADER + "joined () => () {}")
    for part in parts:
        own = onnx.ModelProto.FromString(part.proto.SerializeToString())
        _prefix(own.graph, f"{part.name}/")
        for field in ("node", "input", "output", "initializer", "sparse_initializer", "value_info"):
            getattr(proto.graph, field).extend(getattr(own.graph, field))
        for index, node in enumerate(proto.graph.node):
            node.name = node.name or f"{part.name}/{index}"
        proto.functions.extend(own.functions)
    return Joined(proto=proto, parts=tuple(parts))


def _prefix(graph: onnx.GraphProto, prefix: str) -> None:
    """Renames every value, in bodies of bodies, too, where `onnx.compose.add_prefix` forgets captured ones."""
    sparse = [tensor.values for tensor in graph.sparse_initializer]
    for named in (*graph.input, *graph.output, *graph.value_info, *graph.initializer, *sparse):
        named.name = prefix + named.name
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [name and prefix + name for name in names]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _prefix(attribute.g, prefix)


def same(actual: Any, expected: Any, name: str, *, rtol: float = 1e-4) -> None:
    """Holds a value to the oracle's: type, shape, elements."""
    if expected is None:
        assert actual is None, name
        return
    if isinstance(expected, list):
        assert isinstance(actual, list), f"{name} is a {type(actual).__name__}"
        assert len(actual) == len(expected), name
        for number, (one, other) in enumerate(zip(actual, expected, strict=True)):
            same(one, other, f"{name}[{number}]", rtol=rtol)
        return
    expected = np.asarray(expected)
    assert isinstance(actual, np.ndarray), f"{name} is a {type(actual).__name__}"
    assert actual.shape == expected.shape, name
    if expected.dtype.kind in "OUS":
        assert actual.dtype.kind in "OU", name
        assert actual.tolist() == expected.tolist(), name
        return
    assert actual.dtype == expected.dtype, name
    if expected.dtype.kind in "iub":
        np.testing.assert_array_equal(actual, expected, err_msg=name)
        return
    # 16-bit floats are right to about their own precision
    loose = rtol if expected.dtype.itemsize > 2 else 2e-2
    wide = expected.astype(np.float64)
    scale = float(np.abs(wide).max(initial=0.0))
    np.testing.assert_allclose(actual.astype(np.float64), wide, rtol=0, atol=loose * max(scale, 1e-3), err_msg=name)


def seed_of(name: str) -> int:
    """A number that is the same for a name in each process."""
    return zlib.crc32(name.encode())
