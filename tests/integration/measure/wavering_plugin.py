"""A toolchain for functions `y = x + w` that is right each time, though some variants give other bits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from collage_core.contract import (
    Artifact,
    BoundCall,
    Buffer,
    BuildContext,
    Kernel,
    KernelFunction,
    Measurement,
    RunContext,
    Target,
)
from collage_core.hookspecs import hookimpl

_US = {"same": 2.0, "other": 1.0, "secret": 1.0}
"""What each variant takes, by the toolchain's own clock."""


class WaveringPlugin:
    """Its option `variants` names what it yields, in order.

    `same` gives the same bits and says so, `other` gives others and says so, `secret` gives others and says nothing.
    """

    @hookimpl
    def collage_targets(self) -> Sequence[Target]:
        return [Target(toolchain="wavering", fingerprint="wavering 1")]

    @hookimpl
    def collage_lower(self, target: Target, function: KernelFunction, build: BuildContext) -> Iterator[Artifact]:
        files = {"w.bin": function.constant("w").tobytes()}
        told = "told" if build.deterministic else ""
        for name in target.option("variants").split("+"):
            if build.variant in (None, name):
                yield Artifact(files=files, variant=name, deterministic=name != "other", metadata={"told": told})

    @hookimpl
    def collage_load(self, artifact: Artifact, run: RunContext) -> Kernel:
        return AddKernel(np.frombuffer(artifact.files["w.bin"], np.float32), artifact.variant)

    @hookimpl
    def collage_measure(self, call: TimedCall) -> Measurement:
        return Measurement(samples_us=(call.us,) * 3, warmup_runs=0)


class TimedCall:
    """A call that says how long it takes."""

    def __init__(self, run: Callable[[], None], us: float) -> None:
        self.us = us
        self._run = run

    def __call__(self) -> None:
        self._run()


class AddKernel:
    def __init__(self, weight: np.ndarray[Any, Any], variant: str) -> None:
        self._weight = weight
        self._variant = variant

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        x, y, calls = inputs[0].array, outputs[0].array, itertools.count()

        def call() -> None:
            np.add(x, self._weight, out=y)
            if self._variant != "same":
                y[0] = np.nextafter(y[0], np.float32(np.inf)) if next(calls) % 2 else y[0]

        return TimedCall(call, _US[self._variant])


plugin = WaveringPlugin()
