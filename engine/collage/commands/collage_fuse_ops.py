"""Partition a model by search, as a model pass."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import onnx_ir
from onnx_ir.passes import FunctionalPass, PassResult

from collage.control.choices import UserChoices
from collage.explore.by_options import explore
from collage.options import OptimizeOptions
from collage.process_guard import plugins_guarded
from collage.report.progress import Progress, SilentProgress
from collage.setup.environment import Environment
from collage.setup.queries import usable_rules
from collage.setup.settings import SetupChoices, candidate_bounds
from collage.setup.workload import Workload
from collage_core.candidates.all_proposals import propose_all
from collage_core.candidates.chosen_plan import as_plan
from collage_core.candidates.explanation import refusals, why_uncovered
from collage_core.candidates.proposals import TargetRule
from collage_core.errors import NoCoverError
from collage_core.fusion import CandidateKernel, RuleContext
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits, mask_of
from collage_core.passes.partition_for import mark_kernels, proposed, taken_for
from collage_core.registry import Registry


class CollageFuseOps(FunctionalPass):
    """Partitions a model into the kernels a search finds cheapest, each a call of a function owned by its target.

    Candidates are measured and searched as in `optimize`, by the options' `search`. Whole plans are not raced, so the
    result is not guaranteed to be faster than a single toolchain. Functions that are already marked stay unchanged.
    If only one target remains for the unmarked nodes, and a greedy choice of its kernels covers them, nothing is
    measured or searched: the result is that of `PartitionFor`. If no unmarked nodes remain, the model is returned
    unchanged, so the pass is idempotent.

    Args:
        options: Toolchains, preset, pins and other search options; the defaults if None.
        progress: Receives progress updates.
        registry: The toolchains; those installed if None.

    Attributes:
        searched: Whether the last model needed a search.
    """

    def __init__(
        self,
        options: OptimizeOptions | None = None,
        *,
        progress: Progress | None = None,
        registry: Registry | None = None,
    ) -> None:
        super().__init__()
        self._options = options or OptimizeOptions()
        self._progress = progress or SilentProgress()
        self._registry = registry
        self.searched = False

    @plugins_guarded()
    def call(self, model: onnx_ir.Model) -> PassResult:
        """Prepare a copy of a model and partition it.

        Raises:
            NoCoverError: If no toolchain runs some node; includes the reasons.
            CollageError: If the model, or an option, cannot be used.
        """
        self.searched = False
        if not unplanned(DataflowGraph(model)):
            return PassResult(model.clone(), modified=False)
        options = self._options
        choices = UserChoices.read(options)
        workload = functools.partial(
            Workload, model, input_shapes=options.input_shapes, inputs=options.inputs, seed=options.seed
        )
        with Environment.open(
            workload, SetupChoices.of(options), registry=self._registry, progress=self._progress
        ) as environment:
            graph = environment.graph
            graph_choices = choices.over(graph, environment.toolchains.targets())
            rules = graph_choices.rules(usable_rules(environment.asked))
            able = self._able(environment, rules)
            kernels = self._alone(graph, able[0]) if len(able) == 1 else None
            if kernels is None:
                self.searched = True
                explored = explore(
                    environment.source,
                    environment.pool,
                    rules,
                    options,
                    graph_choices.pins,
                    environment.asked.failures,
                    self._progress,
                    environment.budget.exploring,
                )
                kernels = as_plan(explored.pool, "mixed", explored.result, single=False).kernels
            mark_kernels(graph, kernels)
        return PassResult(graph.model, modified=True)

    def _able(self, environment: Environment[Workload], rules: Sequence[TargetRule]) -> list[TargetRule]:
        """Return the targets that take something nobody owns.

        Raises:
            NoCoverError: If there is something that none takes.
        """
        graph = environment.graph
        left = unplanned(graph)
        proposed = propose_all(rules, graph, candidate_bounds(self._options))
        if missing := left & ~proposed.covered:
            failures = (*environment.asked.failures, *proposed.failures)
            facts = refusals(proposed.by_target.values())
            raise why_uncovered(NoCoverError(tuple(iterate_bits(missing))), graph, facts, failures=failures)
        taken = {name: each.covered for name, each in proposed.by_target.items()}
        return [rule for rule in rules if taken.get(rule.target.name, 0) & left]

    def _alone(self, graph: DataflowGraph, rule: TargetRule) -> Sequence[CandidateKernel] | None:
        """Return the greedy kernels of the only target; None if they leave an unassigned node uncovered."""
        context = RuleContext(
            target=rule.target,
            bounds=candidate_bounds(self._options),
            refusals={**rule.query, **rule.pinned},
            cut_positions=(),
        )
        kernels, _ = taken_for(graph, rule.spec, proposed(rule.spec, graph, context), context)
        left = unplanned(graph)
        for kernel in kernels:
            left &= ~kernel.sub_graph.nodes
        return None if left else kernels


def unplanned(graph: DataflowGraph) -> int:
    """Return the mask of the nodes that need a kernel and are not assigned to a toolchain."""
    owned = mask_of(index for index, toolchain in graph.compilers.items() if toolchain)
    return graph.needs_kernel & ~owned
