"""What workers are asked of candidates and call sites: their functions, with values to run them on."""

from __future__ import annotations

from collections.abc import Callable

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
            brief: Whether to take the first blocks only.
        """
        function, inputs, expected = self._checked(candidate.sub_graph)
        target = candidate.measured_as
        return AskMeasure(
            target=target,
            function=function,
            inputs=inputs,
            expected=expected,
            build=self._settings.build_for(target),
            protocol=self._settings.brief if brief else self._settings.protocol,
            tolerance=self._settings.limits(target).tolerance,
            deadline_s=self._settings.deadline_s,
            variant=variant,
            cold=cold,
            bytes_beside=bytes_beside,
        )

    def build(self, sub_graph: SubGraph, target: Target, variant: str | None, *, check: bool) -> AskBuild:
        """Return the request to build a call site.

        Args:
            sub_graph: What.
            target: For whom.
            variant: Name of the variant to build; None for the first that is right.
            check: Whether to check it; otherwise nothing is captured.
        """
        function, inputs, expected = self._checked(sub_graph) if check else (self._function(sub_graph), (), ())
        return AskBuild(
            target=target,
            function=function,
            variant=variant,
            inputs=inputs,
            expected=expected,
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

    def _checked(self, sub_graph: SubGraph) -> tuple[WireFunction, tuple[WireValue, ...], tuple[WireValue | None, ...]]:
        function = function_of(sub_graph)
        expected = self._capture().expected_of(function, sub_graph.graph, sub_graph.nodes)
        return self._encoder.encode(function), self._capture().inputs_of(function), expected

    def _function(self, sub_graph: SubGraph) -> WireFunction:
        return self._encoder.encode(function_of(sub_graph))


def function_of(sub_graph: SubGraph) -> KernelFunction:
    """Return the function that workers get for a sub-graph."""
    return kernel_function(sub_graph, f"k_{sub_graph.structural_hash[:12]}")
