"""Toolchains of which kernels pass alone, and go wrong in a plan as the variable `SLY` says.

`steady` runs every operator, and slowly those that `sly` runs fast. Both compute as the reference does, and then `sly`
may spoil an element of the output.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from collage.reference.plugin import ReferencePlugin
from collage_core.contract import (
    Artifact,
    BoundCall,
    Buffer,
    Host,
    Joins,
    Kernel,
    KernelFunction,
    RunContext,
    Supported,
    Target,
)
from collage_core.hookspecs import hookimpl
from collage_core.patterns import PatternTable

SLY: Final = "SLY"
"""Variable with the way in which kernels go wrong:

- `beside`: those of `sly`, where a kernel of `steady` was loaded in the same process;
- `third`: those of `sly`, while at least three of them are loaded;
- `later`: those of `sly`, after 100 calls;
- `threads`: those of `sly`, on more than one thread, every other time;
- `value V`: those of `sly`, where an element of the input is V;
- `both V`: those of both, likewise;
- `a little`: those of `sly`, always, by a share of the scale that kernels are allowed;
- `fails V`, `ends V`: those of `sly`, likewise, but they raise, or end the process.
"""
LOG: Final = "SLY_LOG"
"""Variable with the file to which a line is added for whatever is lowered: the toolchain and the operator."""
SLOW_S: Final = 0.02
LITTLE: Final = 6e-4
"""Error of an element where the largest is about 1; a kernel is allowed 1e-3."""
OPERATORS: Final = ("Relu", "Sigmoid", "Tanh")
"""Those that `sly` runs."""


class _Toolchain:
    """What both have in common."""

    name = ""
    loaded: ClassVar[weakref.WeakSet[Any]] = weakref.WeakSet()

    @hookimpl
    def collage_targets(self, host: Host) -> Sequence[Target]:
        return [Target(toolchain=self.name, fingerprint="1", joins=Joins.NONE)]

    @hookimpl
    def collage_lower(self, target: Target, function: KernelFunction) -> Iterator[Artifact]:
        [node] = function.model.graph
        with open(os.environ[LOG], "a", encoding="utf-8") as log:
            log.write(f"{self.name} {node.op_type}\n")
        for artifact in ReferencePlugin().collage_lower(function):
            yield Artifact(files=artifact.files, metadata={"operator": node.op_type})

    @hookimpl
    def collage_check_data(self, target: Target, artifact: Artifact) -> Supported:
        return Supported()

    @hookimpl
    def collage_load(self, target: Target, artifact: Artifact, run: RunContext) -> Kernel:
        slow = self.name == "steady" and artifact.metadata.get("operator") in OPERATORS
        kernel = SpoiltKernel(ReferencePlugin().collage_load(artifact, run), self.name, run.threads, slow=slow)
        self.loaded.add(kernel)
        return kernel


class Steady(_Toolchain):
    """Runs everything."""

    name = "steady"

    @hookimpl
    def collage_register_predicates(self, table: PatternTable, target: Target) -> None:
        table.predicate("*", lambda node: Supported())


class Sly(_Toolchain):
    """Runs some operators, fast."""

    name = "sly"

    @hookimpl
    def collage_register_predicates(self, table: PatternTable, target: Target) -> None:
        for operator in OPERATORS:
            table.predicate(operator, lambda node: Supported())


class SpoiltKernel:
    """A kernel that computes as another does, and then goes wrong if it has to."""

    def __init__(self, kernel: Kernel, toolchain: str, threads: int, *, slow: bool) -> None:
        self._kernel = kernel
        self._threads = threads
        self._calls = 0
        self._slow = slow
        self.toolchain = toolchain

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        """See `Kernel.bind`."""
        right = self._kernel.bind(inputs, outputs, workspace)
        x, [y] = inputs[0], outputs

        def call() -> None:
            right()
            self._calls += 1
            if self._slow:
                time.sleep(SLOW_S)
            if self._goes_wrong(x.array):
                y.array.reshape(-1)[-1] += LITTLE if os.environ[SLY] == "a little" else 0.5

        return call

    def _goes_wrong(self, x: np.ndarray[Any, Any]) -> bool:
        way, _, value = os.environ.get(SLY, "").partition(" ")
        if not way or (self.toolchain != "sly" and way != "both"):
            return False
        loaded = [kernel.toolchain for kernel in _Toolchain.loaded]
        if way == "beside":
            return "steady" in loaded
        if way == "threads":
            return self._threads > 1 and self._calls % 2 == 0
        if way == "later":
            return self._calls > 100
        if way == "a":
            return True
        if way == "third":
            return loaded.count("sly") >= 3
        met = bool((x == np.float32(value)).any())
        if met and way == "fails":
            raise RuntimeError("it cannot run this")
        if met and way == "ends":
            os._exit(7)
        return met


steady, sly = Steady(), Sly()
