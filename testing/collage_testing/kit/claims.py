"""What a plugin claims of one model: its library's refusals and its candidates, each of which has to run."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir

from collage.reference import evaluate
from collage.setup.inputs.random_arrays import random_inputs
from collage_core.candidates.proposals import propose, target_rule
from collage_core.contract import Unsupported
from collage_core.fusion import CandidateBounds, CandidateKernel, SubGraph, SubGraphConfig, kernel_function
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.plugin_calls import is_fault
from collage_testing.kit.clauses import ANSWERS, CANDIDATES, PREDICATE
from collage_testing.kit.kernel_check import KernelCheck


def check_model(check: KernelCheck, model: onnx_ir.Model, where: str, problems: list[str]) -> tuple[int, str]:
    """Check all candidates of one model; return how many kernels ran, and a reason if none did.

    Args:
        check: Toolchain and target.
        model: The model.
        where: Begins each problem.
        problems: Receives what breaks the contract.
    """
    graph = DataflowGraph(model)
    refused = _queried(check, graph, where, problems)
    candidates, refusals = _proposed(check, graph, refused)
    again, _ = _proposed(check, graph, refused)
    if [c.sub_graph for c in candidates] != [c.sub_graph for c in again]:
        problems.append(CANDIDATES.broken(f"{where}: a second registration proposes other candidates"))
    for index, reason in refusals.items():
        if not reason:
            problems.append(ANSWERS.broken(f"{where}: {graph.names[index]} is refused without a reason"))
        if is_fault(reason):
            problems.append(PREDICATE.broken(f"{where}: {graph.names[index]} is refused: {reason}"))
    feeds = random_inputs(graph, seed=0)
    run = evaluate(model, feeds, conditioned=True)
    ran, why = 0, next(iter(refusals.values()), "it is in no candidate")
    for candidate in candidates:
        valid = candidate.sub_graph.validity(SubGraphConfig())
        if not valid:
            names = ", ".join(candidate.sub_graph.names)
            problems.append(CANDIDATES.broken(f"{where}: proposes {names}: {valid.reason}"))
            continue
        outcome = check.run(candidate.sub_graph, run)
        if isinstance(outcome, Unsupported):
            why = outcome.reason
        elif outcome:
            problems.extend(f"{where}, {', '.join(candidate.sub_graph.names)}: {problem}" for problem in outcome)
        else:
            ran += 1
    return ran, why


def _queried(check: KernelCheck, graph: DataflowGraph, where: str, problems: list[str]) -> dict[int, str]:
    """Return what the library itself refuses, by node index.

    Args:
        check: Toolchain and target.
        graph: The model's graph.
        where: Begins each problem.
        problems: Receives what breaks the contract.
    """
    whole = SubGraph(graph, graph.all_mask)
    answer = check.toolchain.query(check.target, kernel_function(whole, "model")) or {}
    unknown = [name for name in answer if name not in graph.names]
    if unknown:
        problem = f"{where}: collage_query names nodes the model does not have: {', '.join(unknown)}"
        problems.append(ANSWERS.broken(problem))
    return {index: answer[name] for index, name in enumerate(graph.names) if name in answer}


def _proposed(
    check: KernelCheck, graph: DataflowGraph, queried: Mapping[int, str]
) -> tuple[tuple[CandidateKernel, ...], Mapping[int, str]]:
    """Return what a target proposes of a graph, and refuses by node index.

    Args:
        check: Toolchain and target.
        graph: The graph.
        queried: What the library itself refuses, by node index.
    """
    proposals = propose(target_rule(check.toolchain, check.target, queried), graph, CandidateBounds.preset("quick"))
    return proposals.candidates, proposals.refusals
