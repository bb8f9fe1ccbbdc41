"""Capture stretches of a run on one device as graphs, after one warm-up run.

A stretch is a maximal sequence of consecutive capturable steps on one device: kernels whose artifacts allow capture, of
targets without `launch=eager`, and copies within the device. The first run makes each call one by one: libraries load
code and choose algorithms then, on real values, which a separate warm-up would not have. The second run captures and
launches; every later one launches. Calls that cannot be captured are made one by one from then on, and the reason is
kept.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
from collections.abc import Iterable, Sequence

from collage.devices.opening import is_lost
from collage_core.contract import BoundCall, DeviceStream
from collage_core.errors import KernelRunError


class Does(enum.Enum):
    """Kind of a step of a run."""

    KERNEL = "kernel"
    COPY = "copy"
    """Copies a value to, from or within a device."""
    WAIT = "wait"
    """The host waits for a device."""
    HOST = "host"
    """A view, or a copy within the host's memory."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BoundStep:
    """One call with its description, for profiles and errors.

    Attributes:
        name: Call-site id, or a description of the host's work or the copy.
        target: Name of the target that runs it; `"host"` for Collage itself.
        nodes: Names of the nodes it computes.
        call: The call.
        device: Device it is enqueued on; `"cpu"` if it is complete on return.
        not_captured: Why it is not part of a device's graph; empty if it may be.
        does: Kind of the step.
    """

    name: str
    target: str
    nodes: tuple[str, ...]
    call: BoundCall
    device: str = "cpu"
    not_captured: str = "it runs on the CPU"
    does: Does = Does.KERNEL

    def failed(self, error: Exception) -> KernelRunError:
        """Return the error to raise when the call raised `error`."""
        reason = f"{type(error).__name__}: {error}".rstrip(": .")
        return KernelRunError(self.name, self.target, self.nodes, reason)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One launch of kernels on a device in a run.

    Attributes:
        device: The device.
        steps: Names of the steps, in order.
        kernels: Number of kernels among the steps.
        mode: `"graph"` or `"eager"`.
        reason: Why they are not launched as a graph; empty if they are.
    """

    device: str
    steps: tuple[str, ...]
    kernels: int
    mode: str
    reason: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceWork:
    """Device work of a run.

    Attributes:
        launches: Launches, in order.
        copies: Copies to, from and within devices, including those in graphs.
        synchronisations: How often the host waits.
    """

    launches: tuple[Launch, ...] = ()
    copies: int = 0
    synchronisations: int = 0

    @property
    def graph_launches(self) -> int:
        """Graphs launched."""
        return sum(launch.mode == "graph" for launch in self.launches)

    @property
    def eager_launches(self) -> int:
        """Kernels launched one by one."""
        return sum(launch.kernels for launch in self.launches if launch.mode == "eager")


def stretches(steps: Sequence[BoundStep]) -> list[tuple[BoundStep, ...]]:
    """Split the steps, in order, into groups that may be captured as one graph."""
    found: list[tuple[BoundStep, ...]] = []
    for device, group in itertools.groupby(steps, lambda step: "" if step.not_captured else step.device):
        together = tuple(group)
        found += [together] if device else [(step,) for step in together]
    return found


class Stretch:
    """Consecutive steps of one device as one call.

    Args:
        device: The device.
        steps: The steps.
    """

    __slots__ = ("_device", "_graph", "_now", "_reason", "steps")

    def __init__(self, device: DeviceStream, steps: Iterable[BoundStep]) -> None:
        self._device = device
        self._graph: object = None
        self._reason = "it is captured in the second run"
        self._now: BoundCall = self._warm_up
        self.steps = tuple(steps)

    def __call__(self) -> None:
        """Enqueue the steps.

        Raises:
            KernelRunError: If a step fails; a graph is reported as its first step.
        """
        try:
            self._now()
        except KernelRunError:
            raise
        except Exception as error:
            raise self.steps[0].failed(error) from error

    @property
    def launch(self) -> Launch:
        """Current launch mode."""
        names = tuple(step.name for step in self.steps)
        mode = "eager" if self._graph is None else "graph"
        kernels = sum(step.does is Does.KERNEL for step in self.steps)
        return Launch(device=self._device.name, steps=names, kernels=kernels, mode=mode, reason=self._reason)

    @property
    def is_settled(self) -> bool:
        """Whether later runs launch it as the last one did."""
        return self._graph is not None or self._now == self._eager

    def _warm_up(self) -> None:
        self._eager()
        self._now = self._capture

    def _capture(self) -> None:
        try:
            graph = self._device.capture(self._eager)
        except Exception as error:  # whatever a kernel does that cannot be captured
            if is_lost(error):
                raise
            self._reason = f"it could not be captured: {' '.join(str(error).split())}"
            self._now = self._eager
            self._eager()
            return
        self._graph, self._reason, self._now = graph, "", graph.launch
        graph.launch()

    def _eager(self) -> None:
        for step in self.steps:
            try:
                step.call()
            except Exception as error:
                raise step.failed(error) from error
