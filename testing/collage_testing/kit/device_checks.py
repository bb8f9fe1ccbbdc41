"""Check candidates on a device, by the checks of the conformance kit."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from collage.reference import Evaluation, evaluate
from collage.setup.inputs.random_arrays import random_inputs
from collage_core.contract import Target, Unsupported
from collage_core.fusion import CandidateKernel, SubGraph
from collage_testing.kit.device_kernels import DeviceMachine
from collage_testing.kit.kernel_check import KernelCheck


def check_sub_graphs(
    machine: DeviceMachine,
    sub_graphs: Iterable[SubGraph],
    run: Evaluation,
    target: Target,
    *,
    tolerance: float,
    max_variants: int = 1,
) -> None:
    """Run the checks of `check_plugin` on given candidates.

    Args:
        machine: The toolchain and the device.
        sub_graphs: The candidates, of one model.
        run: A reference run of the model: the result of `evaluate`, or the expected values for a target that rounds.
        target: One of the toolchain's.
        tolerance: Largest error, relative to a tensor's scale.
        max_variants: Maximum number of variants tried per candidate.

    Raises:
        AssertionError: If a candidate is refused or breaks the contract; says which and how.
    """
    with tempfile.TemporaryDirectory(prefix="collage-check-") as folder:
        check = KernelCheck(
            machine.toolchain,
            target,
            Path(folder),
            threads=1,
            tolerance=tolerance,
            max_variants=max_variants,
            host=machine.host,
            device=machine.stream,
        )
        for sub_graph in sub_graphs:
            outcome = check.run(sub_graph, run)
            problems = [f"it is refused: {outcome.reason}"] if isinstance(outcome, Unsupported) else outcome
            if problems:
                raise AssertionError(f"{target.name}, {', '.join(sub_graph.names)}: {'; '.join(problems)}")


def check_candidates(
    machine: DeviceMachine,
    candidates: Sequence[CandidateKernel],
    target: Target,
    *,
    tolerance: float,
    max_variants: int = 1,
) -> list[str]:
    """Check candidates of one model on random inputs, against ONNX's reference.

    Args:
        machine: The toolchain and the device.
        candidates: The candidates.
        target: One of the toolchain's.
        tolerance: Largest error, relative to a tensor's scale.
        max_variants: Maximum number of variants tried per candidate.

    Returns:
        Labels of the candidates.

    Raises:
        AssertionError: If one is refused or breaks the contract; names which and how.
    """
    sub_graphs = [candidate.sub_graph for candidate in candidates]
    if sub_graphs:
        graph = sub_graphs[0].graph
        run = evaluate(graph.model, random_inputs(graph, seed=0), conditioned=True)
        check_sub_graphs(machine, sub_graphs, run, target, tolerance=tolerance, max_variants=max_variants)
    return [sub_graph.label for sub_graph in sub_graphs]
