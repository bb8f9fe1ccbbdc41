"""Values in memory, and values with loops of their own: outputs, reductions, what is kept for several readers."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from collage_halide import hl
from collage_halide.elements import ElementType
from collage_halide.indices import Index, loop
from collage_halide.values import CHEAP, Value

LEAST_WORK = 32_768
"""Operations below which threads cost more than they bring."""
Role: TypeAlias = Literal["output", "kept", "reduced", "lanes", "scanned"]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Place:
    """An argument of the compiled function.

    Attributes:
        where: `"in"`, `"out"` or `"weight"`.
        name: Position of an input or output, name of a weight.
        shape: Extents as the function sees them.
        kind: Type of the elements.
        parameter: Halide's parameter.
        extents_of_another: Whether its extents are those of another place, of which Halide is told them.
    """

    where: str
    name: int | str
    shape: tuple[int, ...]
    kind: ElementType
    parameter: Any
    extents_of_another: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """Elements along an axis that one element of a reduction reads.

    Attributes:
        variable: Reduced variable over them.
        extent: How many there are.
        step: Distance of the next element's window.
        dilation: Distance of elements.
    """

    variable: Any
    extent: int
    step: int
    dilation: int

    @property
    def overlaps(self) -> bool:
        """Whether windows share elements with others near them."""
        return math.lcm(self.step, self.dilation) // self.dilation < self.extent

    def read(self, windows: int) -> int:
        """Return how many elements some windows side by side have together."""
        places = itertools.product(range(windows), range(self.extent))
        return len({window * self.step + element * self.dilation for window, element in places})


class Reads(Protocol):
    """Records what the stage that is being defined reads."""

    def note(self, stage: Stage, index: tuple[Index, ...]) -> None:
        """Remember that it reads another stage."""

    def load(self, index: Sequence[Index]) -> None:
        """Remember which loops a load depends on."""

    def parameter(self, where: str, name: int | str, shape: tuple[int, ...], kind: ElementType) -> Any:
        """Return the parameter that stands for memory under a shape."""


class Stage(Value):
    """A value with loops of its own.

    Args:
        scope: Where it is.
        name: Its name.
        shape: Extents; of a scalar one axis of extent 1.
        kind: Type of its elements.
        role: What it is for.

    Attributes:
        func: Halide's function.
        variables: Its loops, innermost last.
        loops: The same as indices.
        reads: Other stages that it reads, at which index.
        reduction: Halide's variables that it adds up along, innermost last; None if it adds nothing up.
        scanned: Axis that it adds up along, if every part of the sum is a result.
        part: Which of several parts of an element readers get; None if it has one.
        work: About how many operations an element takes.
        repeats: How often an element of it reads what it reads, at other places each time.
        windows: By axis, the windows along it that its elements read.
        may_be_inlined: Whether what is kept may be computed by each reader instead.
        seldom_kept: Whether that is the better guess.
        loads: Loops that each of its loads depends on.
        gathers: Whether it loads from places that depend on what is in memory.
        apart: Whether it has loops of its own, whoever reads it.
        phased: Whether its last axis but one is of phases (`Value.phases`) that read nearly the same elements.
        fused: Whether products may be fused with additions; else floats are computed as written.
    """

    def __init__(self, scope: Reads, name: str, shape: Sequence[int], kind: ElementType, role: Role) -> None:
        super().__init__(shape, kind)
        self._scope = scope
        self.name = name
        self.role = role
        self.func = hl.Func(name)
        self.variables = tuple(hl.Var(f"{name}_{axis}") for axis in range(len(self.shape)))
        self.loops = tuple(
            loop(variable, f"{name}_{axis}", extent)
            for axis, (variable, extent) in enumerate(zip(self.variables, self.shape, strict=True))
        )
        self.reads: list[tuple[Stage, tuple[Index, ...]]] = []
        self.reduction: tuple[Any, ...] | None = None
        self.part: int | None = None
        self.scanned: int | None = None
        self.work = CHEAP
        self.repeats = 1
        self.windows: Mapping[int, Window] = {}
        self.may_be_inlined = True
        self.seldom_kept = False
        self.loads: list[frozenset[str]] = []
        self.gathers = False
        self.apart = False
        self.fused = False
        self.phased = False

    def at(self, index: Sequence[Index]) -> Any:
        """Return an element, and remember who reads it."""
        return self.element(index, self.part)

    def element(self, index: Sequence[Index], part: int | None) -> Any:
        """Return a part of an element, where elements have several."""
        self._scope.note(self, tuple(index))
        element = self.func[tuple(each.expression for each in reversed(index))]
        return hl.Expr(element if part is None else element[part])


class Given(Value):
    """An input or a weight.

    Args:
        scope: Where it is read.
        where: `"in"` or `"weight"`.
        name: Its position or name.
        shape: Extents.
        kind: Type of its elements.
    """

    def __init__(self, scope: Reads, where: str, name: int | str, shape: Sequence[int], kind: ElementType) -> None:
        super().__init__(shape, kind)
        self._scope, self._where, self._name = scope, where, name

    def at(self, index: Sequence[Index]) -> Any:
        """Return an element in memory."""
        self._scope.load(index)
        parameter = self._scope.parameter(self._where, self._name, self.shape, self.kind)
        return parameter[tuple(each.expression for each in reversed(index)) or (0,)]

    def merges(self, axis: int) -> bool:
        """Return True: the memory is read under any shape."""
        return True

    def reshaped(self, shape: Sequence[int]) -> Value:
        """Return the same memory under another shape."""
        return Given(self._scope, self._where, self._name, shape, self.kind)
