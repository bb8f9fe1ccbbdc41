"""A run with every buffer fixed: a list of calls without arguments, and the loop over it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from collage_core.contract import BoundCall, Buffer
from collage_core.errors import KernelRunError
from collage_core.runtime.profiling import Profile, StepProfile


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BoundStep:
    """One call and what it is, for profiles and errors."""

    name: str
    target: str
    nodes: tuple[str, ...]
    call: BoundCall

    def failed(self, error: Exception) -> KernelRunError:
        """The error to raise when the call raised `error`."""
        reason = f"{type(error).__name__}: {error}".rstrip(": .")
        return KernelRunError(self.name, self.target, self.nodes, reason)


class BoundRun:
    """One run of an executable, its inputs and outputs fixed in memory.

    Write into `inputs`, call `call`, read `outputs`: nothing is copied or checked on the way. The bound runs of
    one executable share its kernels and its arena, so only one of them may run at a time.

    Args:
        steps: What to call, in order.
        inputs: Place of each graph input, by name.
        outputs: Place of each graph output, by name.
        order: Names of the graph outputs in order; one may come twice.
        owner: What must live as long as the run does.

    Attributes:
        call: The whole run as one call without arguments. Of an executable of one kernel it is that kernel's
            own bound call: nothing of Collage runs in between, and an error is the kernel's own. Keep this object
            while the call is in use.
    """

    __slots__ = ("_order", "_owner", "call", "input_buffers", "output_buffers", "steps")

    def __init__(
        self,
        *,
        steps: Sequence[BoundStep],
        inputs: Mapping[str, Buffer],
        outputs: Mapping[str, Buffer],
        order: Sequence[str],
        owner: object = None,
    ) -> None:
        self._owner = owner
        self.steps = tuple(steps)
        self.input_buffers = inputs
        self.output_buffers = outputs
        self._order = tuple(order)
        self.call = _sequence(self.steps)

    @property
    def inputs(self) -> dict[str, Any]:
        """What each input holds: for tensors of static shape the array to write into."""
        return {name: buffer.value for name, buffer in self.input_buffers.items()}

    @property
    def outputs(self) -> dict[str, Any]:
        """What each output holds after a call; not a copy, so the next call overwrites it."""
        return {name: buffer.value for name, buffer in self.output_buffers.items()}

    def run(self) -> list[Any]:
        """Run, and return what the outputs hold, in the model's order, uncopied.

        Raises:
            KernelRunError: If a kernel fails; it names the kernel and its nodes.
        """
        try:
            self.call()
        except KernelRunError:
            raise
        except Exception as error:  # from the only step: the loop explains its own
            raise self.steps[0].failed(error) from error
        return [self.output_buffers[name].value for name in self._order]

    def profile(self, runs: int = 20, warmup: int = 3) -> Profile:
        """Run repeatedly with a clock around every step.

        Args:
            runs: Timed runs.
            warmup: Runs before them.

        Raises:
            KernelRunError: If a kernel fails.
        """
        for _ in range(warmup):
            self.run()
        clock = time.perf_counter_ns
        starts = np.zeros((len(self.steps), runs), np.int64)
        ends = np.zeros_like(starts)
        for run in range(runs):
            for index, step in enumerate(self.steps):
                begin = clock()
                try:
                    step.call()
                except Exception as error:
                    raise step.failed(error) from error
                ends[index, run] = clock()
                starts[index, run] = begin
        origin = int(starts.min()) if starts.size else 0
        return Profile(
            steps=tuple(
                StepProfile(
                    name=step.name,
                    target=step.target,
                    nodes=step.nodes,
                    starts_us=tuple(((starts[index] - origin) / 1e3).tolist()),
                    samples_us=tuple(((ends[index] - starts[index]) / 1e3).tolist()),
                )
                for index, step in enumerate(self.steps)
            )
        )


def _sequence(steps: tuple[BoundStep, ...]) -> BoundCall:
    if len(steps) == 1:
        return steps[0].call
    calls = tuple(step.call for step in steps)
    by_call = {id(step.call): step for step in steps}

    def run_all() -> None:
        # entering `try` is free since Python 3.11, and the failing step is known by what `call` is
        try:
            for call in calls:
                call()
        except Exception as error:
            raise by_call[id(call)].failed(error) from error

    return run_all
