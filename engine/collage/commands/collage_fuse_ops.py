"""Partitioning by search as a pass over a model."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir
from onnx_ir.passes import FunctionalPass, PassResult

from collage.control.choices import UserChoices
from collage.explore.exhaustive import Explorer
from collage.explore.fixed_plan import proposed
from collage.explore.lazy import LazyExplorer
from collage.measure.driver.source import MeasuringCostSource
from collage.options import OptimizeOptions
from collage.prepare.validity import blamed_on
from collage.report.progress import Progress, SilentProgress
from collage.setup.dispatch import dispatch_us
from collage.setup.environment import Environment
from collage.setup.queries import ask_targets, usable_rules
from collage.setup.settings import candidate_bounds, measure_settings
from collage.setup.targets import Selection
from collage.setup.workload import Workload
from collage_core.candidates.chosen_plan import as_plan
from collage_core.candidates.explanation import refusals
from collage_core.candidates.pool import CandidatePool
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
        selection = Selection.parse(options.toolchains, options.exclude, inexact=options.max_error is not None)
        workload = Workload(model, input_shapes=options.input_shapes, inputs=options.inputs, seed=options.seed)
        with (
            Environment(
                selection, tuning_db=options.tuning_db, threads=options.threads, registry=self._registry
            ) as environment,
            blamed_on(workload.graph.model),
        ):
            graph_choices = choices.over(workload.graph, environment.targets())
            asked = ask_targets(workload.graph, environment, self._progress)
            rules = graph_choices.rules(usable_rules(asked))
            able = self._able(workload.graph, rules)
            kernels = self._alone(workload.graph, able[0]) if len(able) == 1 else None
            if kernels is None:
                self.searched = True
                kernels = self._search(workload, environment, rules)
            mark_kernels(workload.graph, kernels)
        return PassResult(workload.graph.model, modified=True)

    def _able(self, graph: DataflowGraph, rules: tuple[TargetRule, ...]) -> list[TargetRule]:
        """The targets that take something nobody owns.

        Raises:
            NoCoverError: If there is something that none takes.
        """
        left = unplanned(graph)
        proposals = proposed(rules, graph, candidate_bounds(self._options))
        missing = left
        for each in proposals.values():
            missing &= ~each.covered
        if missing:
            lines = [
                f"{graph.names[index]!r} ({graph.nodes[index].op_type}): {name}: {each.refusals[index]}"
                for index in iterate_bits(missing)
                for name, each in proposals.items()
                if index in each.refusals
            ]
            nodes = tuple(iterate_bits(missing))
            raise NoCoverError(nodes).explained(tuple(lines), tuple(graph.names[index] for index in nodes))
        return [rule for rule in rules if rule.target.name in proposals and proposals[rule.target.name].covered & left]

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

    def _search(
        self, workload: Workload, environment: Environment, rules: tuple[TargetRule, ...]
    ) -> Sequence[CandidateKernel]:
        """Measures and searches."""
        graph, options = workload.graph, self._options
        source = MeasuringCostSource(
            pool=environment.pool,
            capture=workload.capture(environment.store, environment.fallback(graph, options.reference)),
            database=environment.database,
            host=environment.host,
            settings=measure_settings(options, environment.threads),
            warm=environment.warm_devices(graph),
        )
        loop_us = dispatch_us(environment.database, environment.host)
        pool = CandidatePool(graph, source, loop_us, environment.copy_costs())
        explorer = (LazyExplorer if options.search in ("lazy", "two-level") else Explorer)(
            pool,
            rules,
            source,
            preset=options.effective,
            bounds=candidate_bounds(options),
            progress=self._progress,
            budget_s=options.budget_s,
        )
        try:
            result = explorer.run().result
        except NoCoverError as error:
            names = tuple(graph.names[index] for index in error.nodes)
            facts = refusals(pool, explorer.proposals.values())
            lines = [
                f"{node!r}: {fact.target}: {fact.reason}" for fact in facts for node in fact.nodes if node in names
            ]
            raise error.explained(tuple(dict.fromkeys(lines)), names) from error
        return as_plan(pool, "mixed", result, single=False).kernels


def unplanned(graph: DataflowGraph) -> int:
    """Mask of the nodes that need a kernel and have none a toolchain owns."""
    owned = mask_of(index for index, toolchain in graph.compilers.items() if toolchain)
    return graph.needs_kernel & ~owned
