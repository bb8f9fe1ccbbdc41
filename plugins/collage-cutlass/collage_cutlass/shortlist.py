"""Tiles that nvidia-matmul-heuristics ranks highest for a product, where that library is installed."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from typing import Any

from collage_cutlass.architectures import Architecture
from collage_cutlass.menu import AnyTile, HopperTile
from collage_cutlass.numbers import Numbers
from collage_cutlass.problem import Gemm

VERSION = "0.1.0.27"
"""Supported version of nvidia-matmul-heuristics, the one tested; its structures are not guaranteed to be stable."""

_COUNT = 8


class Heuristics:
    """Queries the library; keeps one interface of it for each type and kind of tile, since creating one is expensive.

    Answers are guesses about a device of the architecture's kind; there are none if the library is missing or of
    another version.
    """

    def __init__(self) -> None:
        self._module: Any = None
        self._interfaces: dict[tuple[str, str], Any] = {}
        self._devices: dict[tuple[str, str, str], Any] = {}

    def __call__(
        self, numbers: Numbers, product: Gemm, architecture: Architecture, kind: type[AnyTile]
    ) -> list[tuple[int, int, int]]:
        """See `menu.Shortlist`."""
        if not numbers.heuristic or not self._installed():
            return []
        try:
            return self._asked(numbers, product, architecture, "CUTLASS3" if kind is HopperTile else "CUTLASS")
        except (OSError, RuntimeError, AttributeError, AssertionError, TypeError):
            return []  # a guess that cannot be had costs nothing but its order

    def _asked(
        self, numbers: Numbers, product: Gemm, architecture: Architecture, generation: str
    ) -> list[tuple[int, int, int]]:
        known = self._module = self._module or importlib.import_module("nvMatmulHeuristics")
        wanted = (numbers.heuristic, generation)
        if wanted not in self._interfaces:
            target = known.NvMatmulHeuristicsTarget[generation]
            made = known.NvMatmulHeuristicsInterface(target, numbers.heuristic)
            made.nvMatmulHeuristicsDestroy = _kept  # the library's own ends the process, when it is called for one
            self._interfaces[wanted] = made
        asked = self._interfaces[wanted]
        key = (*wanted, architecture.heuristic)
        if key not in self._devices:
            self._devices[key] = asked.createHardwareDescriptor()
            asked.setHardwarePredefinedGpu(
                self._devices[key], known.NvMatmulHeuristicsNvidiaGpu[architecture.heuristic]
            )
        layout = known.boolsToNvMatmulHeuristicsLayout(False, product.b.by_columns)
        problem = asked.makeNvMatmulHeuristicsProblem(product.m, product.n, product.k, layout, product.batch)
        answers = asked.get(problem, _COUNT, self._devices[key])
        kernels = [each["kernel"] for each in sorted(answers, key=lambda each: each["runtime"])]
        blocks = [(int(each.cta_tile_m), int(each.cta_tile_n), int(each.cta_tile_k)) for each in kernels]
        return list(dict.fromkeys(blocks))

    def _installed(self) -> bool:
        if importlib.util.find_spec("nvMatmulHeuristics") is None:
            return False
        try:
            return importlib.metadata.version("nvidia-matmul-heuristics") == VERSION
        except importlib.metadata.PackageNotFoundError:
            return False


def _kept(handle: object) -> None:
    """Keep an interface allocated: there are few, and they last as long as the process."""
