"""Partitioning by search as a pass over a model."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import onnx_ir
from onnx_ir.passes import FunctionalPass, PassResult

from collage.control.choices import UserChoices
from collage.explore.by_options import explore
from collage.options import OptimizeOptions
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
from collage_core.passes.partition_for import mark_kernels, taken_for
from collage_core.registry import Registry


class CollageFuseOps(FunctionalPass):
    """Cuts a model into the kernels a search finds cheapest, each a call of a function its target owns.

    Candidates are measured and searched as `optimize` does, by the options' `search`; whole plans are not raced, so
    nothing here promises to be faster than one toolchain alone. What is marked already stays as it is. Where one target
    only is left for all that is not, and a greedy choice of its kernels covers that, nothing is measured and nothing
    searched: it gets what `PartitionFor` would give it. Where nothing is left, the model comes back as it was, so
    running the pass twice changes nothing.

    Args:
        options: Toolchains, preset, pins and everything else a search goes by; the defaults if None.
        progress: Is told what happens.
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

    def call(self, model: onnx_ir.Model) -> PassResult:
        """Prepares a copy of a model and partitions it.

        Raises:
            NoCoverError: If nobody runs part of it; says why.
            CollageError: If it, or an option, cannot be used.
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
                explored = explore(environment, rules, options, graph_choices.pins, self._progress)
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
        """What the only target gets without a search; None if a greedy choice leaves some of it out."""
        context = RuleContext(
            target=rule.target,
            bounds=candidate_bounds(self._options),
            refusals={**rule.query, **rule.pinned},
            cut_positions=(),
        )
        kernels, _ = taken_for(graph, rule.spec, rule.spec.rule.propose(graph, context), context)
        left = unplanned(graph)
        for kernel in kernels:
            left &= ~kernel.sub_graph.nodes
        return None if left else kernels


def unplanned(graph: DataflowGraph) -> int:
    """Mask of the nodes that need a kernel and have none a toolchain owns."""
    owned = mask_of(index for index, toolchain in graph.compilers.items() if toolchain)
    return graph.needs_kernel & ~owned
