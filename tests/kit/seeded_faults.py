"""A plugin that keeps the contract, and sixteen that each break it in one way."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import onnx.parser
import onnx_ir

from collage_core.contract import (
    Artifact,
    BoundCall,
    Buffer,
    BuildContext,
    Kernel,
    KernelFunction,
    RunContext,
    Supported,
    Target,
    Unsupported,
)
from collage_core.hookspecs import hookimpl
from collage_core.patterns import PatternTable
from collage_testing import GraphBuilder

Array = np.ndarray[Any, Any]


class Sound:
    """Relu; NonZero, whose number of results is not known beforehand; and sequences. Right in every way."""

    fingerprint: ClassVar[str] = "sound 1"

    @hookimpl
    def collage_targets(self) -> list[Target]:
        return [Target(toolchain="seeded", fingerprint=self.fingerprint)]

    @hookimpl
    def collage_register_predicates(self, table: PatternTable) -> None:
        for operator in ("Relu", "NonZero", "SequenceConstruct"):
            table.predicate(operator, lambda node: Supported())

    @hookimpl
    def collage_lower(self, function: KernelFunction, build: BuildContext) -> Iterator[Artifact]:
        [node] = function.model.graph
        for tile in (8, 16):
            if build.variant in (None, f"t{tile}"):
                yield Artifact(files={"op": node.op_type.encode()}, metadata={"tile": tile}, variant=f"t{tile}")

    @hookimpl
    def collage_load(self, artifact: Artifact, run: RunContext) -> Kernel:
        return SoundKernel(self, artifact.files["op"].decode(), run.threads)

    def relu(self, x: Array, y: Array, threads: int) -> None:
        """Compute Relu."""
        np.maximum(x, 0, out=y)

    def nonzero(self, x: Array) -> Array:
        """Compute NonZero."""
        return np.array(np.nonzero(x), np.int64)

    def sequence(self, x: Array) -> list[Array]:
        """Compute SequenceConstruct."""
        return [x.copy()]


class SoundKernel:
    """Calls the plugin's own functions."""

    def __init__(self, plugin: Sound, op: str, threads: int) -> None:
        self.plugin, self.op, self.threads = plugin, op, threads

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        """See `Kernel.bind`."""
        [x], [y] = inputs, outputs
        if self.op == "NonZero":
            return lambda: y.put(self.plugin.nonzero(x.array))
        if self.op == "SequenceConstruct":
            return lambda: y.put(self.plugin.sequence(x.array))
        return lambda: self.plugin.relu(x.array, y.array, self.threads)


class WrongForNegatives(Sound):
    def relu(self, x: Array, y: Array, threads: int) -> None:
        np.copyto(y, np.where(x < 0, x * 0.01, x))


class WrongOnTheSecondCall(Sound):
    @hookimpl
    def collage_load(self, artifact: Artifact, run: RunContext) -> Kernel:
        calls = itertools.count(1)

        class Once(Sound):
            def relu(self, x: Array, y: Array, threads: int) -> None:
                np.maximum(x, 0 if next(calls) == 1 else 0.5, out=y)

        return SoundKernel(Once(), artifact.files["op"].decode(), run.threads)


class WritesItsInput(Sound):
    def relu(self, x: Array, y: Array, threads: int) -> None:
        np.maximum(x, 0, out=x)
        np.copyto(y, x)


class KeepsABuffer(Sound):
    @hookimpl
    def collage_load(self, artifact: Artifact, run: RunContext) -> Kernel:
        kept: list[Array] = []

        class Keeping(Sound):
            def relu(self, x: Array, y: Array, threads: int) -> None:
                kept.append(y)
                np.maximum(x, 0, out=kept[0])

        return SoundKernel(Keeping(), artifact.files["op"].decode(), run.threads)


class WrongShape(Sound):
    def nonzero(self, x: Array) -> Array:
        return super().nonzero(x).T.copy()


class WrongDtype(Sound):
    def nonzero(self, x: Array) -> Array:
        return super().nonzero(x).astype(np.int32)


class AliasingOutput(Sound):
    def sequence(self, x: Array) -> list[Array]:
        return [x]


class PutsItAgain(Sound):
    """Every third time, so that two results in a row never share memory."""

    def __init__(self) -> None:
        self.results: list[Array] = []

    def sequence(self, x: Array) -> list[Array]:
        if not self.results or self.results[0].shape != x.shape:
            self.results = [np.empty_like(x) for _ in range(3)]
        self.results.append(self.results.pop(0))
        np.copyto(self.results[0], x)
        return [self.results[0]]


class AllocatesPerCall(Sound):
    def __init__(self) -> None:
        self.results: list[Array] = []

    def relu(self, x: Array, y: Array, threads: int) -> None:
        self.results.append(np.maximum(x, 0))
        np.copyto(y, self.results[-1])


class NotDeterministic(Sound):
    noise: ClassVar[Iterator[int]] = itertools.count(1)

    def relu(self, x: Array, y: Array, threads: int) -> None:
        np.maximum(x, 0, out=y)
        if next(self.noise) % 2:
            np.nextafter(y, np.float32(np.inf), out=y, where=y > 0.5)


class IgnoresThreads(Sound):
    """Keeps three threads that work in each call, whatever it was told."""

    def __init__(self) -> None:
        self.wanted = [threading.Semaphore(0) for _ in range(3)]
        self.done = threading.Semaphore(0)
        self.started = False

    def relu(self, x: Array, y: Array, threads: int) -> None:
        if not self.started:
            self.started = True
            for wanted in self.wanted:
                threading.Thread(target=self.work, args=(wanted,), daemon=True).start()
        for wanted in self.wanted:
            wanted.release()
        np.maximum(x, 0, out=y)
        for _ in self.wanted:
            self.done.acquire()

    def work(self, wanted: threading.Semaphore) -> None:
        """Take part in every call."""
        while True:
            wanted.acquire()
            sum(range(20_000))
            self.done.release()


class RecompilesAtLoad(Sound):
    @hookimpl
    def collage_load(self, artifact: Artifact, run: RunContext) -> Kernel:
        subprocess.run([sys.executable, "-c", ""], check=True)  # stands for a compiler
        return SoundKernel(self, artifact.files["op"].decode(), run.threads)


class NamesByOrder(Sound):
    @hookimpl
    def collage_lower(self, function: KernelFunction, build: BuildContext) -> Iterator[Artifact]:
        [node] = function.model.graph
        # asked for one, it tries the larger tile first
        tiles = (8, 16) if build.variant is None else (16, 8)
        for number, tile in enumerate(tiles):
            files = {"op": node.op_type.encode()}
            yield Artifact(files=files, metadata={"tile": tile}, variant=f"v{number}")


class RaisesInPredicate(Sound):
    @hookimpl
    def collage_register_predicates(self, table: PatternTable) -> None:
        table.predicate("Relu", lambda node: Supported() if node.inputs[7] else Unsupported("no"))


class SurvivesNoProcess(Sound):
    """Keeps in this process what loading needs."""

    made: ClassVar[dict[str, str]] = {}

    @hookimpl
    def collage_lower(self, function: KernelFunction, build: BuildContext) -> Iterator[Artifact]:
        [node] = function.model.graph
        self.made["best"] = node.op_type
        yield Artifact(files={})

    @hookimpl
    def collage_load(self, artifact: Artifact, run: RunContext) -> Kernel:
        return SoundKernel(self, self.made["best"], run.threads)


sound = Sound()
forgetful = SurvivesNoProcess()


def models() -> Mapping[str, onnx_ir.Model]:
    """Return a model of each operator."""
    g, h = GraphBuilder("relu"), GraphBuilder("nonzero")
    text = """
        <ir_version: 10, opset_import: ["": 21]>
        g (float[4] x) => (seq(float[4]) y) { y = SequenceConstruct(x) }"""
    numbers = h.input("x", 8, dtype=onnx_ir.DataType.INT64)
    return {
        "relu": g.model(g.op("Relu", g.input("x", 8, 16))),
        "nonzero": h.model(h.op("NonZero", numbers)),
        "sequence": onnx_ir.from_proto(onnx.parser.parse_model(text)),
    }
