"""Source of a kernel: a template of this package, with the few lines that distinguish kernels."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from importlib import resources
from types import MappingProxyType

from collage_cutlass.menu import AnyTile, HopperTile, Tile
from collage_cutlass.numbers import Numbers
from collage_cutlass.problem import Gemm, Problem, Source

TEMPLATES: Mapping[tuple[str, type[AnyTile]], str] = MappingProxyType(
    {("gemm", Tile): "gemm_sm80.cu", ("gemm", HopperTile): "gemm_sm90.cu", ("conv", Tile): "conv_sm80.cu"}
)
"""File of the template, by kind of kernel and of tile."""

_CONFIGURATION = "//@configuration\n"
_PARTS: Mapping[str, str] = MappingProxyType({"//@epilogue\n": "epilogue.cuh", "//@calls\n": "calls.cuh"})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """Compile-time parameters of a kernel; extents, strides and an activation's parameters are arguments of its call.

    Attributes:
        kind: `gemm` or `conv`.
        numbers: Types, and how they are multiplied.
        activation: Functor in `epilogue.cuh`.
        source: Role of the tensor beside the bias.
        tile: Tile shape.
        b_by_columns: Whether a product's second factor is column-major.
    """

    kind: str
    numbers: Numbers
    activation: str
    source: Source
    tile: AnyTile
    b_by_columns: bool = False

    @classmethod
    def of(cls, problem: Problem, numbers: Numbers, activation: str, source: Source, tile: AnyTile) -> Kernel:
        """Return the kernel that computes a problem."""
        common = {"numbers": numbers, "activation": activation, "source": source, "tile": tile}
        if isinstance(problem, Gemm):
            return cls(kind="gemm", b_by_columns=problem.b.by_columns, **common)  # type: ignore[arg-type]
        return cls(kind="conv", **common)  # type: ignore[arg-type]

    @property
    def text(self) -> str:
        """The complete source; it includes nothing but CUTLASS's headers."""
        name = TEMPLATES[self.kind, type(self.tile)]
        text = _read(name)
        parts = {_CONFIGURATION: self._configuration(), **{mark: _read(part) for mark, part in _PARTS.items()}}
        for mark, part in parts.items():
            assert text.count(mark) == 1, f"{name} has not one {mark.strip()}"
            text = text.replace(mark, part)
        return text

    def _configuration(self) -> str:
        lines = [
            f"using Element = {self.numbers.element};",
            f"using Result = {self.numbers.result};",
            f"using OperatorClass = {self.numbers.operator_class};",
            f"constexpr int kAccess = {self.numbers.access};",
            f"constexpr int kResultAccess = {self.numbers.result_access};",
            *(_by_warps(self.tile, self.numbers) if isinstance(self.tile, Tile) else _by_wgmma(self.tile)),
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


def _by_warps(tile: Tile, numbers: Numbers) -> Iterator[str]:
    for name, extents in (("Threadblock", tile.block), ("Warp", tile.warp), ("Instruction", numbers.instruction)):
        yield f"using {name} = cutlass::gemm::GemmShape<{', '.join(map(str, extents))}>;"
    yield f"constexpr int kStages = {tile.stages};"


def _by_wgmma(tile: HopperTile) -> Iterator[str]:
    for name, extents in (("Threadblock", tile.block), ("Cluster", (*tile.cluster, 1))):
        yield f"using {name} = cute::Shape<{', '.join(f'cute::_{each}' for each in extents)}>;"
    yield f"using Schedule = cutlass::gemm::KernelTmaWarpSpecialized{tile.schedule};"
    # of warps that take turns each has an epilogue of its own
    epilogue = tile.schedule if tile.schedule == "Cooperative" else ""
    yield f"using EpilogueSchedule = cutlass::epilogue::TmaWarpSpecialized{epilogue};"


@functools.cache
def _read(name: str) -> str:
    return resources.files("collage_cutlass").joinpath("templates", name).read_text(encoding="utf-8")
