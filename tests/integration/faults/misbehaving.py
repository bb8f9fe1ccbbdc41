"""Toolchains for element-wise operators: one that is well, and one that misbehaves as its target's option `fault` says.

A fault is named `HOW-in-WHERE`, after a hook or something a hook gives core, or after what a kernel does. Each target
takes the model's only Add.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from collage_core.contract import (
    Artifact,
    BoundCall,
    Buffer,
    BuildContext,
    Host,
    Kernel,
    KernelFunction,
    Measurement,
    RunContext,
    Supported,
    Target,
    Unsupported,
)
from collage_core.fusion import FusionRule, RuleContext, RuleOutcome
from collage_core.hookspecs import hookimpl
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.patterns import Match, NodeContext, PatternTable, is_op, wildcard

HANGS = "HANGS"
"""Variable with the file to which a byte is added by what is about to hang, before time limits pass."""
LOG = "MISBEHAVING_LOG"
"""Variable with the file that every lowering and every misdeed is noted in: what, fault, process."""

DRIVER_FAULTS = (
    "raises-in-register_patterns",
    "wrong-type-in-register_patterns",
    "hangs-in-register_patterns",
    "raises-in-register_predicates",
    "exits-in-register_predicates",
    "wrong-type-in-register_predicates",
    "hangs-in-register_predicates",
    "raises-in-fusion_spec",
    "wrong-type-in-fusion_spec",
    "hangs-in-fusion_spec",
    "raises-in-rule",
    "wrong-type-in-rule",
    "hangs-in-rule",
    "raises-in-predicate",
    "wrong-type-in-predicate",
    "hangs-in-predicate",
    "raises-in-check",
    "wrong-type-in-check",
    "raises-in-attrs_getter",
    "wrong-type-in-attrs_getter",
    "refuses-in-predicate",
)
QUERY_FAULTS = (
    "raises-in-query",
    "wrong-type-in-query",
    "refuses-in-query",
    "crashes-in-query",
    "hangs-in-query",
)
MILD_FAULTS = (
    "raises-in-lower",
    "exits-in-lower",
    "wrong-type-in-lower",
    "wrong-artifact-in-lower",
    "nothing-in-lower",
    "refuses-in-lower",
    "raises-in-load",
    "wrong-type-in-load",
    "refuses-in-load",
    "raises-in-bind",
    "wrong-type-in-bind",
    "raises-in-run",
    "wrong-element",
    "nan",
    "shape-off-by-one",
    "skips-an-element",
    "writes-its-input",
    "replaces-its-output",
    "accumulates",
    "raises-in-measure",
    "wrong-type-in-measure",
    "nan-in-measure",
)
"""Of candidates, whose worker lives on."""
HANGING_FAULTS = ("hangs-in-lower", "hangs-in-load", "hangs-in-measure")
DEADLY_FAULTS = ("crashes-in-run", "forks-and-exits", "leaks")
FAULTS = (*DRIVER_FAULTS, *QUERY_FAULTS, *MILD_FAULTS, *HANGING_FAULTS, *DEADLY_FAULTS)


def note(what: str, fault: str, process: int | None = None) -> None:
    with open(os.environ[LOG], "a", encoding="utf-8") as log:
        log.write(f"{what} {fault} {process or os.getpid()}\n")


def hang() -> None:
    """Hangs, and has the limit it is under pass: that of its worker, or that of a hook in the driver."""
    if callable(signal.getsignal(signal.SIGALRM)):  # in the driver, whose interruption is due in an hour
        signal.setitimer(signal.ITIMER_REAL, 0.01, 1.0)
    else:
        with open(os.environ[HANGS], "ab") as hangs:
            hangs.write(b"!")
    time.sleep(3600)


def misbehave(target: Target, where: str) -> Any:
    """Does what the target's fault says here; what the caller is to answer with, or None to go on."""
    fault = target.option("fault")
    how, _, place = fault.partition("-in-")
    if place != where:
        return None
    note("misdeed", fault)
    match how:
        case "raises":
            raise RuntimeError(f"{where} is broken")
        case "exits":
            sys.exit(f"{where} has had enough")
        case "hangs":
            hang()
        case "crashes":
            ctypes.string_at(0)
        case "refuses":
            return Unsupported(f"{where} wants none of it")
        case "wrong-type":
            return 7
    return None


def answered(answer: Any) -> Any:
    """What a predicate answers; a refusal is false, so `or` will not do."""
    return Supported() if answer is None else answer


class Rule(FusionRule):
    def __init__(self, target: Target) -> None:
        self._target = target

    def propose(self, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
        answer: RuleOutcome = misbehave(self._target, "rule")
        return answer


class Well:
    """Hooks of a toolchain that is well."""

    name = "well"
    operators: tuple[str, ...] = ("Add", "Relu")

    @hookimpl
    def collage_targets(self, host: Host) -> Sequence[Target] | Unsupported:
        return [Target(toolchain=self.name, fingerprint="well 1")]

    @hookimpl
    def collage_register_predicates(self, table: PatternTable, target: Target) -> None:
        for operator in self.operators:
            table.predicate(operator, lambda node: Supported())

    @hookimpl
    def collage_lower(self, target: Target, function: KernelFunction, build: BuildContext) -> Any:
        [node] = function.model.graph
        return iter([Artifact(files={"operator": node.op_type.encode()})])

    @hookimpl
    def collage_load(self, target: Target, artifact: Artifact, run: RunContext) -> Any:
        return WellKernel(artifact.files["operator"].decode())


class WellKernel:
    def __init__(self, operator: str) -> None:
        self._operator = operator

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        arrays, out = [buffer.array for buffer in inputs], outputs[0].array
        if self._operator == "Relu":
            return lambda: np.maximum(arrays[0], np.float32(0), out=out)
        return lambda: np.add(arrays[0], arrays[1], out=out)


class Misbehaving:
    """Hooks of the toolchain with a target for each fault."""

    @hookimpl
    def collage_targets(self, host: Host) -> Sequence[Target]:
        return [
            Target(toolchain="misbehaving", options=(("fault", fault),), fingerprint="misbehaving 1")
            for fault in FAULTS
        ]

    @hookimpl
    def collage_register_patterns(self, table: PatternTable, target: Target) -> Any:
        def check(match: Match) -> Any:
            return answered(misbehave(target, "check"))

        def attributes(match: Match) -> Any:
            return misbehave(target, "attrs_getter") or {}

        if target.option("fault").endswith(("-in-check", "-in-attrs_getter")):
            table.pattern("add", is_op("Add")(wildcard(), wildcard()), check=check, attrs_getter=attributes)
        return misbehave(target, "register_patterns")

    @hookimpl
    def collage_register_predicates(self, table: PatternTable, target: Target) -> Any:
        def predicate(node: NodeContext) -> Any:
            return answered(misbehave(target, "predicate"))

        if not table.patterns:
            table.predicate("Add", predicate)
        return misbehave(target, "register_predicates")

    @hookimpl
    def collage_fusion_spec(self, target: Target, default: FusionRule) -> Any:
        if target.option("fault").endswith("-in-rule"):
            return Rule(target)
        return misbehave(target, "fusion_spec")

    @hookimpl
    def collage_query(self, target: Target, model: KernelFunction) -> Any:
        answer = misbehave(target, "query")
        if isinstance(answer, Unsupported):
            return {str(node.name): answer.reason for node in model.model.graph}
        return {} if answer is None else answer

    @hookimpl
    def collage_lower(self, target: Target, function: KernelFunction, build: BuildContext) -> Any:
        note("lowering", target.option("fault"))
        answer = misbehave(target, "lower")
        return self._variants(target) if answer is None else answer

    def _variants(self, target: Target) -> Iterator[Artifact]:
        match target.option("fault"):
            case "nothing-in-lower":
                return
            case "wrong-artifact-in-lower":
                yield Artifact(files={"kernel": "text"})  # type: ignore[dict-item]
            case _:
                yield Artifact(files={})

    @hookimpl
    def collage_load(self, target: Target, artifact: Artifact, run: RunContext) -> Kernel | Any:
        answer = misbehave(target, "load")
        return MisbehavingKernel(target) if answer is None else answer

    @hookimpl
    def collage_measure(self, target: Target, call: BoundCall, fallback: Callable[[], Measurement]) -> Any:
        if target.option("fault") == "nan-in-measure":
            return Measurement(samples_us=(float("nan"),), warmup_runs=0)
        return misbehave(target, "measure")


class MisbehavingKernel:
    def __init__(self, target: Target) -> None:
        self._target = target
        self._hoard: list[Any] = []

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> Any:
        answer = misbehave(self._target, "bind")
        if answer is not None:
            return answer
        [y] = outputs
        first, second = (buffer.array for buffer in inputs)

        def call() -> None:
            kept = np.nan_to_num(y.array)
            np.add(first, second, out=y.array)
            self._spoil(inputs, y, kept)

        return call

    def _spoil(self, inputs: Sequence[Buffer], y: Buffer, kept: Any) -> None:
        fault = self._target.option("fault")
        misbehave(self._target, "run")
        match fault:
            case "wrong-element":
                y.array.reshape(-1)[-1] += 0.5
            case "nan":
                y.array.reshape(-1)[3] = np.nan
            case "shape-off-by-one":
                y.put(np.zeros((y.array.shape[0], y.array.shape[1] + 1), np.float32))
            case "skips-an-element":
                y.array.reshape(-1)[-1] = kept.reshape(-1)[-1]
            case "writes-its-input":
                inputs[0].array[...] = 0
            case "replaces-its-output":
                np.copyto(inputs[0].array, y.array)
                y._value = inputs[0].array
            case "accumulates":
                y.array[...] += kept
            case "forks-and-exits":
                child = os.fork()
                if child == 0:
                    os.setsid()
                    time.sleep(600)
                note("misdeed", fault, child)
                os._exit(0)
            case "leaks":
                note("misdeed", fault)
                self._hoard.append(np.ones(650 << 18, np.float32))  # 650 MiB at once, then it takes for ever
                time.sleep(3600)


class OffersNothing(Well):
    @hookimpl
    def collage_targets(self, host: Host) -> Sequence[Target]:
        return []


class RefusesInTargets(Well):
    @hookimpl
    def collage_targets(self, host: Host) -> Unsupported:
        return Unsupported("targets wants none of this machine")


class WrongTypeInTargets(Well):
    @hookimpl
    def collage_targets(self, host: Host) -> Any:
        return 7


class RaisesInTargets(Well):
    @hookimpl
    def collage_targets(self, host: Host) -> Sequence[Target]:
        raise RuntimeError("targets is broken")


class HangsInTargets(Well):
    @hookimpl
    def collage_targets(self, host: Host) -> Sequence[Target]:
        hang()
        return []


class CrashesInTargets(Well):
    @hookimpl
    def collage_targets(self, host: Host) -> Sequence[Target]:
        ctypes.string_at(0)
        return []


TOOLCHAINS: Mapping[str, str] = {
    "well": "well",
    "misbehaving": "misbehaving",
    "offers-nothing": "offers_nothing",
    "refuses-in-targets": "refuses_in_targets",
    "wrong-type-in-targets": "wrong_type_in_targets",
    "raises-in-targets": "raises_in_targets",
    "hangs-in-targets": "hangs_in_targets",
    "crashes-in-targets": "crashes_in_targets",
}
"""Name of the plugin object of each toolchain that can be imported."""

well = Well()
misbehaving = Misbehaving()
offers_nothing = OffersNothing()
refuses_in_targets = RefusesInTargets()
wrong_type_in_targets = WrongTypeInTargets()
raises_in_targets = RaisesInTargets()
hangs_in_targets = HangsInTargets()
crashes_in_targets = CrashesInTargets()
