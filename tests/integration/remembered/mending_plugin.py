"""A toolchain for Add and Relu: one target is well, one is slow, and each other fails in its way until it is mended.

The text of this module is installed by a test, which raises `MENDED` with the version.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from collage_core.contract import (
    Artifact,
    BoundCall,
    Buffer,
    Host,
    KernelFunction,
    RunContext,
    Supported,
    Target,
)
from collage_core.hookspecs import hookimpl
from collage_core.patterns import PatternTable

MENDED = False
HANGS = "HANGS"
"""Variable with the file to which a byte is added by what is about to hang, before time limits pass."""
LOG = "MENDING_LOG"
"""Variable with the file that every lowering and every query is noted in: which, of what."""
FAULTS = ("wrong", "raises", "crashes", "hangs")
QUERY_FAULT = "crashes-when-asked"
SLOW = "slow"
WAYS = (*FAULTS, QUERY_FAULT, SLOW)
LONG_S = 0.005
"""Seconds that every target but the one that is well takes besides, so that it is never on the best plan."""


def note(what: str, way: str) -> None:
    with open(os.environ[LOG], "a", encoding="utf-8") as log:
        log.write(f"{what} {way or 'well'}\n")


class Plugin:
    @hookimpl
    def collage_targets(self, host: Host) -> Sequence[Target]:
        well = Target(toolchain="mending", fingerprint="library 1")
        return [
            well,
            *(Target(toolchain="mending", options=(("way", each),), fingerprint="library 1") for each in WAYS),
        ]

    @hookimpl
    def collage_register_predicates(self, table: PatternTable, target: Target) -> None:
        for operator in ("Add",) if target.options else ("Add", "Relu"):
            table.predicate(operator, lambda node: Supported())

    @hookimpl
    def collage_query(self, target: Target, model: KernelFunction) -> dict[str, str]:
        note("query", target.option("way"))
        if target.option("way") == QUERY_FAULT and not MENDED:
            ctypes.string_at(0)
        return {}

    @hookimpl
    def collage_lower(self, target: Target, function: KernelFunction) -> Iterator[Artifact]:
        note("lowering", target.option("way"))
        [node] = function.model.graph
        return iter([Artifact(files={"operator": node.op_type.encode()})])

    @hookimpl
    def collage_load(self, target: Target, artifact: Artifact, run: RunContext) -> Any:
        return MendingKernel(target.option("way"), artifact.files["operator"].decode())


class MendingKernel:
    def __init__(self, way: str, operator: str) -> None:
        self._way = way
        self._operator = operator

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        arrays, out = [buffer.array for buffer in inputs], outputs[0].array

        def call() -> None:
            if self._operator == "Relu":
                np.maximum(arrays[0], np.float32(0), out=out)
            else:
                np.add(arrays[0], arrays[1], out=out)
            if self._way:
                time.sleep(LONG_S)
            if self._way in FAULTS and not MENDED:
                self._fail(out)

        return call

    def _fail(self, out: Any) -> None:
        match self._way:
            case "wrong":
                out.reshape(-1)[-1] += 0.5
            case "raises":
                raise RuntimeError("run is broken")
            case "crashes":
                ctypes.string_at(0)
            case "hangs":
                with open(os.environ[HANGS], "ab") as hangs:
                    hangs.write(b"!")
                time.sleep(3600)


plugin = Plugin()
