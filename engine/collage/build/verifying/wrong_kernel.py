"""Find the kernel that makes a plan wrong: the first that is wrong, in the plan, on what it is given there."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx_ir

from collage.build.assemble import Assembled
from collage.build.kernel_check import KernelCheck, Reference
from collage.build.plan_parts import PARTS_CALL, made_by
from collage.errors import ModelCostError, some_of
from collage.measure.budget import UNLIMITED, Budget
from collage.measure.contenders.interleaved import Contender, ContenderProcess
from collage.measure.driver.records import is_short_of_disk, is_short_of_memory
from collage.measure.driver.settings import MeasureSettings
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.outcomes import Failed, Stage
from collage.measure.wire.value_files import read_values, write_values
from collage.reference import Evaluation
from collage_core.contract import Json
from collage_core.errors import MemoryNeededError
from collage_core.fusion import CandidateKernel

_MOST_RUNS = 12
"""Runs after which the company that a kernel goes wrong in is not made smaller."""
_LEAST_S = 1.0
"""Seconds that a run gets which begins in time."""
_OF_THE_MACHINE = ("deadline", "memory", "start", MemoryError.__name__, MemoryNeededError.__name__)
"""With what a failure begins that says nothing of one kernel, or takes long to find out again."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WrongKernel:
    """The kernel that makes a plan wrong.

    Attributes:
        site: Its call site.
        kernel: The kernel.
        failure: How it fails, and in which company if it does not alone.
    """

    site: str
    kernel: CandidateKernel
    failure: Failed


class _SpentError(Exception):
    """The time for looking is over."""


_ENDS_IT = (_SpentError, ModelCostError)
"""What ends the search without an error: there is no time or memory to go on."""


class PlanTrial:
    """Runs a saved plan whole and in parts, on inputs on which it fails.

    Args:
        assembled: The plan.
        package: Path of the plan's package.
        inputs: Input values, by name.
        store: Stores tensors.
        folder: Directory for documents.
        threads: CPU threads of each kernel.
        settings: What kernels are held to.
        reference: Evaluates the model, and the functions of its kernels.
        budget: Time that looking for a kernel may take; what is not found by then is not found.
    """

    def __init__(
        self,
        assembled: Assembled,
        package: Path,
        inputs: Mapping[str, Any],
        *,
        store: BlobStore,
        folder: Path,
        threads: int,
        settings: MeasureSettings,
        reference: Reference,
        budget: Budget = UNLIMITED,
    ) -> None:
        self._kernels = assembled.kernels
        self._checks = {site: KernelCheck(kernel.sub_graph) for site, kernel in self._kernels.items()}
        self._package = package
        self._inputs = inputs
        self._store = store
        self._folder = folder
        self._threads = threads
        self._settings = settings
        self._reference = reference
        self._budget = budget

    def wrong_kernel(self) -> WrongKernel | None:
        """Return the first kernel that is wrong on what it is given; None if there is none, or nobody can tell."""
        with contextlib.suppress(*_ENDS_IT):
            values = self._values()
            if isinstance(values, Failed):  # giving out the values between takes more memory
                return None
            for site in self._kernels:
                if problem := self._problem(site, values, self._right(site, values)):
                    return self._found(Stage.CHECK, site, "wrong numbers", problem, values)
        return None

    def too_far(self, model: onnx_ir.Model) -> str:
        """Return a clause about the first kernel after which the errors of right kernels have added up to too much.

        Args:
            model: The prepared model.

        Returns:
            The clause; empty if there is no such kernel.
        """
        with contextlib.suppress(*_ENDS_IT):
            values = self._values()
            if isinstance(values, Failed):
                return ""
            self._go_on()
            right = self._reference(model, self._inputs, frozenset(values))
            for site, kernel in self._kernels.items():
                if problem := self._problem(site, values, right):
                    where = f"{kernel.target.name} on {some_of(kernel.sub_graph.names)} ({site}), {problem}"
                    return f"each kernel is right, but errors add up; first too far: {where}"
        return ""

    def stopping_kernel(self) -> WrongKernel | None:
        """Return the kernel with which a plan stops running, by halving: what comes before it runs.

        None if the plan runs now, or stops for lack of memory or time, which says nothing of one kernel.
        """
        with contextlib.suppress(*_ENDS_IT):
            sites = list(self._kernels)
            given: Mapping[str, Any] = self._inputs
            values = self._values()
            runs, fails, failure = 0, len(sites), values
            while isinstance(failure, Failed) and not _is_of_the_machine(failure.reason):
                if fails - runs == 1:
                    return self._found(Stage.RUN, sites[runs], "it does not run", failure.reason, given)
                middle = (runs + fails) // 2
                values = self._values(before=sites[middle])
                if isinstance(values, Failed):
                    fails, failure = middle, values
                else:
                    runs, given = middle, values
        return None

    def _found(self, stage: Stage, site: str, what: str, problem: str, values: Mapping[str, Any]) -> WrongKernel:
        """Say whether a kernel fails alone, or in which company, as far as there is time to find out."""
        where = "in the plan"
        with contextlib.suppress(*_ENDS_IT):
            where = self._where(stage, site, values)
        failure = Failed(stage=stage, reason=f"{what} {where}: {problem}")
        return WrongKernel(site=site, kernel=self._kernels[site], failure=failure)

    def _where(self, stage: Stage, site: str, values: Mapping[str, Any]) -> str:
        check = self._checks[site]
        right = self._right(site, values) if stage is Stage.CHECK else None

        def fails(others: Sequence[str]) -> bool:
            made = self._run(only=[each for each in self._kernels if each == site or each in others], given=values)
            if isinstance(made, Failed):
                return stage is Stage.RUN
            return bool(self._problem(site, {name: made[made_by(site, name)] for name in check.writes}, right))

        others = [each for each in self._kernels if each != site and values.keys() >= set(self._checks[each].reads)]
        if fails([]):
            return "on fresh inputs"
        if others and fails(others):
            beside = (self._kernels[each] for each in _fewest(others, fails))
            named = " and ".join(f"{each.target.name} ({some_of(each.sub_graph.names)})" for each in beside)
            return f"beside {named} in one process"
        return "in the plan, and not apart from it"

    def _go_on(self) -> None:
        if self._budget.is_spent:
            raise _SpentError

    def _right(self, site: str, values: Mapping[str, Any]) -> Evaluation | None:
        self._go_on()
        return self._checks[site].right(values, self._reference)

    def _problem(self, site: str, made: Mapping[str, Any], right: Evaluation | None) -> str:
        if right is None:
            return ""
        target = self._kernels[site].target
        tolerance = self._settings.limits(target).tolerance
        correct = target.exact and tolerance.is_of_correct_kernels
        return self._checks[site].problem(made, right, tolerance, correct=correct)

    def _values(self, before: str = "") -> dict[str, Any] | Failed:
        """Run the plan and return its inputs, and what kernels read and wrote."""
        made = self._run(before=before, given=self._inputs)
        return made if isinstance(made, Failed) else {**self._inputs, **made}

    def _run(self, *, before: str = "", only: Sequence[str] = (), given: Mapping[str, Any]) -> dict[str, Any] | Failed:
        self._go_on()
        inputs, outputs = self._folder / "parts-given.json", self._folder / "parts-made.json"
        write_values(inputs, given, self._store)
        arguments: dict[str, Json] = {
            "package": str(self._package),
            "inputs": str(inputs),
            "outputs": str(outputs),
            "blobs": str(self._store.directory),
            "threads": self._threads,
            "before": before,
            "only": list(only),
        }
        with ContenderProcess(Contender(name="parts of the plan", call=PARTS_CALL, arguments=arguments)) as process:
            ran = process.prepare(self._budget.within(self._settings.deadline_s, least_s=_LEAST_S))
        if isinstance(ran, Failed):
            self._go_on()  # it may have failed for lack of time
        return ran if isinstance(ran, Failed) else read_values(outputs)


def _fewest(others: Sequence[str], fails: Callable[[Sequence[str]], bool]) -> Sequence[str]:
    """Return a part of some call sites in whose company another one still fails: halves, then ever fewer, are left out.

    See Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE TSE 28(2), 2002.
    """
    size, runs = len(others) // 2, 0
    while size:
        for begin in range(len(others) - size, -1, -size):
            rest = [*others[:begin], *others[begin + size :]]
            runs += 1
            if runs > _MOST_RUNS:
                return others
            if rest and fails(rest):
                others = rest
        size //= 2
    return others


def _is_of_the_machine(reason: str) -> bool:
    return reason.startswith(_OF_THE_MACHINE) or is_short_of_memory(reason) or is_short_of_disk(reason)
