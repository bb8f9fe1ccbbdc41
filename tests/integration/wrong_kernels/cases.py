"""Wrong kernels by family, type and position, with what is drawn of each by a fixed seed.

Each case is a branch of one model: a node that is named after the case, with an input of its own. The kernel of
`wrong_toolchain.py` computes it as the reference does and then does what `Case.family` says.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from collage_testing.graphs import GraphBuilder

SEED: Final = 20261123
"""Chosen before kernels were judged element by element, and not changed since."""

FAMILIES: Final[Mapping[str, str]] = {
    "value-range": "wrong where the input is beyond a threshold that one in two hundred values passes",
    "position": "wrong in one element",
    "call-number": "wrong in one element from some call on",
    "thread-count": "wrong in one element on two threads",
    "buffer-identity": "wrong in one element when bound to other memory than at first",
    "aliasing": "writes beyond the memory that it is given",
    "late-write": "writes one element after the call has returned",
    "nan": "gives a number where NaN or an infinity is right, or the reverse",
    "mask": "wrong in one element of ordinary size, beside a column of huge values",
    "small-scale": "wrong in one of many elements that are a millionth of the others",
    "stale-input": "goes on using what its inputs held before",
    "rare-integer": "wrong where the input has one rare value",
}
"""What each family does."""

FLOATS: Final = ("float32", "float16")
INTEGERS: Final = ("int64", "int8")
TYPES: Final = (*FLOATS, *INTEGERS, "bool")
POSITIONS: Final = ("first", "middle", "last")

NOT_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "nan": (*INTEGERS, "bool"),
    "mask": ("bool",),
    "small-scale": ("int8", "bool"),
    "rare-integer": ("bool",),
    "value-range": ("bool",),
}
"""Types that have no such values, by family."""

HUGE: Final[Mapping[str, float]] = {"float32": -1e9, "float16": -6e4, "int64": 1 << 40, "int8": 100}
"""What a mask adds to what it masks."""
LARGE: Final[Mapping[str, float]] = {"float32": 1e6, "float16": 1e3, "int64": 1 << 20}
"""By how much every other column is larger than the rest."""
BOUND: Final = 1000
"""Number of values that indices are drawn from."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One wrong kernel.

    Attributes:
        name: Name of its node; that of its output is the same behind `y_`.
        family: A key of `FAMILIES`.
        dtype: NumPy name of the type of its values.
        position: A member of `POSITIONS`.
        shape: Shape of its values.
        off: By what share of itself a wrong floating-point element is off.
        after: Calls after which it is wrong, for the family that counts them.
        way: Which of a family's ways to be wrong: even or odd.
    """

    name: str
    family: str
    dtype: str
    position: str
    shape: tuple[int, int]
    off: float
    after: int
    way: int

    def element(self, fit: np.ndarray[Any, Any]) -> int:
        """Return the index in the flat output of the wrong element: the one that fits nearest to the position."""
        at = {"first": 0, "middle": fit.size // 2, "last": fit.size - 1}[self.position]
        fitting = np.flatnonzero(fit)
        return int(fitting[np.abs(fitting - at).argmin()])


def cases() -> tuple[Case, ...]:
    """Return every combination of family, type and position that there is, with the rest drawn."""
    rng = np.random.default_rng(SEED)
    found: list[Case] = []
    for family, dtype, position in itertools.product(FAMILIES, TYPES, POSITIONS):
        rows = int(rng.integers(8, 17))
        off = float(10 ** rng.uniform(-1.3 if dtype == "float16" else -2, 0))
        after, way = int(rng.choice([2, 3, 7, 20, 100])), int(rng.integers(2))
        if dtype not in NOT_OF.get(family, ()):
            found.append(
                Case(
                    name=f"{family}-{dtype}-{position}",
                    family=family,
                    dtype=dtype,
                    position=position,
                    shape=(rows, 150 + len(found)),  # no two are alike, so none is measured for another
                    off=off,
                    after=after,
                    way=way,
                )
            )
    return tuple(found)


def model() -> ir.Model:
    """Return the model of which each case is a branch, named after it."""
    g = GraphBuilder("wrong_kernels", seed=SEED)
    return g.model(*(_branch(g, case) for case in cases()))


def _branch(g: GraphBuilder, case: Case) -> ir.Value:
    """Add a case's node and what it reads; inputs are drawn as for any model."""
    dtype = ir.DataType.FLOAT if case.dtype == "float32" else ir.DataType[case.dtype.upper()]
    x = g.input(f"x-{case.name}", *case.shape, dtype=dtype)
    floating, rare = case.dtype in FLOATS, case.family in ("rare-integer", "value-range")
    if case.dtype == "int64" and rare:
        return g.op("Gather", g.constant(f"c-{case.name}", np.arange(BOUND) * 3), x, name=case.name)
    if floating and case.family == "rare-integer":
        return g.op("Floor", x, name=case.name)
    if floating and case.family == "nan" and case.way == 0:
        return g.op("Log", x, name=case.name)
    operator = {"bool": "Xor", **dict.fromkeys(INTEGERS, "Add")}.get(case.dtype, "Mul")
    operator = "Add" if case.family == "mask" else operator
    return g.op(operator, x, g.constant(f"c-{case.name}", _constant(case)), name=case.name)


def _constant(case: Case) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng([SEED, case.shape[1]])
    dtype = np.dtype(case.dtype)
    if case.family == "mask":
        mask = np.zeros(case.shape, dtype)
        mask[:, case.shape[1] // 3] = HUGE[case.dtype]
        return mask
    if case.dtype == "bool":
        return rng.integers(0, 2, case.shape).astype(bool)
    values = rng.integers(-5, 6, case.shape) if case.dtype in INTEGERS else rng.standard_normal(case.shape)
    if case.family == "small-scale":
        values = values * np.where(np.arange(case.shape[1]) % 2, LARGE[case.dtype], 1)
    return values.astype(dtype)
