"""The source of a kernel: a template of this package with the few lines that tell one kernel from another."""

from __future__ import annotations

import dataclasses
import functools
from importlib import resources

from collage_cutlass.menu import Tile
from collage_cutlass.numbers import Numbers
from collage_cutlass.problem import Gemm, Problem, Source

TEMPLATES = {"gemm": "gemm_sm80.cu", "conv": "conv_sm80.cu"}
"""File of the template of each kind of kernel."""

_CONFIGURATION, _EPILOGUE = "//@configuration\n", "//@epilogue\n"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """What is compiled; extents, strides and an activation's numbers are told when it is called.

    Attributes:
        kind: `gemm` or `conv`.
        numbers: How it multiplies.
        activation: Functor in `epilogue.cuh`.
        source: What the tensor beside the bias is for.
        tile: How the product is cut.
        b_by_columns: Whether columns of a product's second factor lie side by side.
    """

    kind: str
    numbers: Numbers
    activation: str
    source: Source
    tile: Tile
    b_by_columns: bool = False

    @classmethod
    def of(cls, problem: Problem, numbers: Numbers, activation: str, source: Source, tile: Tile) -> Kernel:
        """The kernel that computes a problem."""
        common = {"numbers": numbers, "activation": activation, "source": source, "tile": tile}
        if isinstance(problem, Gemm):
            return cls(kind="gemm", b_by_columns=problem.b.by_columns, **common)  # type: ignore[arg-type]
        return cls(kind="conv", **common)  # type: ignore[arg-type]

    @property
    def text(self) -> str:
        """The whole source: nothing but CUTLASS's headers is included."""
        template = _read(TEMPLATES[self.kind])
        for mark in (_CONFIGURATION, _EPILOGUE):
            assert template.count(mark) == 1, f"{TEMPLATES[self.kind]} has not one {mark.strip()}"
        epilogue = _read("epilogue.cuh")
        return template.replace(_CONFIGURATION, self._configuration()).replace(_EPILOGUE, epilogue)

    def _configuration(self) -> str:
        lines = [
            f"using Element = {self.numbers.element};",
            f"using OperatorClass = {self.numbers.operator_class};",
            f"using Threadblock = {_shape(self.tile.block)};",
            f"using Warp = {_shape(self.tile.warp)};",
            f"using Instruction = {_shape(self.numbers.instruction)};",
            f"constexpr int kStages = {self.tile.stages};",
            f"constexpr int kAccess = {self.numbers.access};",
        ]
        if self.kind == "gemm":
            second = "ColumnMajor" if self.b_by_columns else "RowMajor"
            lines += [
                "using LayoutA = cutlass::layout::RowMajor;",
                f"using LayoutB = cutlass::layout::{second};",
            ]
        lines += [
            f"#define COLLAGE_ACTIVATION {self.activation}",
            f"#define COLLAGE_SOURCE {self.source.value}",
        ]
        return "".join(f"{line}\n" for line in lines)


def _shape(extents: tuple[int, int, int]) -> str:
    return f"cutlass::gemm::GemmShape<{', '.join(map(str, extents))}>"


@functools.cache
def _read(name: str) -> str:
    return resources.files("collage_cutlass").joinpath("templates", name).read_text(encoding="utf-8")
