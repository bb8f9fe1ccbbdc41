"""What workers are asked of candidates and call sites: their functions, with values to run them on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from collage.measure.driver.capture import Capture
from collage.measure.driver.settings import MeasureSettings
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.function_codec import FunctionEncoder
from collage.measure.wire.messages import AskBuild, AskMeasure, AskProfile
from collage.measure.wire.wire_values import WireFunction, WireValue
from collage_core.contract import KernelFunction, Target
from collage_core.fusion.kernel import kernel_function
from collage_core.fusion.spec import CandidateKernel
from collage_core.fusion.sub_graph import SubGraph

PROFILED_RUNS = 5
"""Runs of which a profile is made: shares of the time need fewer than the time itself."""


class Requests:
    """Makes requests under the same settings.

    Args:
        capture: Gives the values to run candidates on; called when they are first needed, and then often.
        store: Blobs shared with workers.
        settings: How candidates are built, checked and timed.
    """

    def __init__(self, capture: Callable[[], Capture], store: BlobStore, settings: MeasureSettings) -> None:
        self._capture = capture
        self._settings = settings
        self._encoder = FunctionEncoder(store)

    def measure(
        self, candidate: CandidateKernel, variant: str | None, *, cold: bool, bytes_beside: int, brief: bool
    ) -> AskMeasure:
        """Return the request to measure a candidate; the reference may have to run first.

        Args:
            candidate: The candidate.
            variant: Name of the variant to measure; None for the fastest that is right.
            cold: Whether its weights are not in the device's cache.
            bytes_beside: Memory that the model's other kernels touch on the host.
            brief: Whether to take the first blocks only, and not to judge it again after that.
        """
        checked = self._checked(candidate.sub_graph)
        target = candidate.measured_as
        return AskMeasure(
            target=target,
            function=checked.function,
            inputs=checked.inputs,
            expected=checked.expected,
            behind=checked.behind,
            build=self._settings.build_for(target),
            protocol=self._settings.brief if brief else self._settings.protocol,
            tolerance=self._settings.limits(target).tolerance,
            deadline_s=self._settings.deadline_s,
            variant=variant,
            cold=cold,
            bytes_beside=bytes_beside,
            as_used=not brief,
            load_wait_s=self._settings.load_wait_s,
        )

    def build(self, sub_graph: SubGraph, target: Target, variant: str | None, *, check: bool) -> AskBuild:
        """Return the request to build a call site.

        Args:
            sub_graph: What.
            target: For whom.
            variant: Name of the variant to build; None for the first that is right.
            check: Whether to check it; otherwise nothing is captured.
        """
        checked = self._checked(sub_graph) if check else _Checked(self._encoder.encode(function_of(sub_graph)))
        return AskBuild(
            target=target,
            function=checked.function,
            variant=variant,
            inputs=checked.inputs,
            expected=checked.expected,
            behind=checked.behind,
            build=self._settings.build_for(target),
            tolerance=self._settings.limits(target).tolerance,
            deadline_s=self._settings.deadline_s,
        )

    def profile(self, candidate: CandidateKernel, variant: str | None) -> AskProfile:
        """Return the request to profile a candidate; the reference may have to run first.

        Args:
            candidate: The candidate.
            variant: Name of the variant to profile; None for the first that works.
        """
        function = function_of(candidate.sub_graph)
        target = candidate.measured_as
        return AskProfile(
            target=target,
            function=self._encoder.encode(function),
            inputs=self._capture().inputs_of(function),
            build=self._settings.build_for(target),
            deadline_s=self._settings.deadline_s,
            variant=variant,
            runs=PROFILED_RUNS,
        )

    def _checked(self, sub_graph: SubGraph) -> _Checked:
        function, capture = function_of(sub_graph), self._capture()
        return _Checked(
            function=self._encoder.encode(function),
            inputs=capture.inputs_of(function),
            expected=capture.expected_of(function, sub_graph.graph, sub_graph.nodes),
            behind=capture.behind(function),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _Checked:
    """A function with what it is checked by; nothing where it is not checked."""

    function: WireFunction
    inputs: tuple[WireValue, ...] = ()
    expected: tuple[WireValue | None, ...] = ()
    behind: Mapping[str, WireValue] = dataclasses.field(default_factory=dict)


def function_of(sub_graph: SubGraph) -> KernelFunction:
    """Return the function that workers get for a sub-graph."""
    return kernel_function(sub_graph, f"k_{sub_graph.structural_hash[:12]}")
