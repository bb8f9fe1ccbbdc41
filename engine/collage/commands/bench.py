"""`bench`: time packages and single toolchains, interleaved, each in its own process."""

from __future__ import annotations

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from collage.control.plan_file import PlanFile, read_plan
from collage.decide.built_contenders import plan_packages, single_packages
from collage.decide.contenders import is_package, model_of, package_contender
from collage.decide.recording import as_called_facts, latency_facts
from collage.measure.contenders.interleaved import Rounds, interleaved
from collage.measure.statistics import Interval, ratio_interval
from collage.measure.wire.messages import Burst
from collage.measure.wire.outcomes import Failed
from collage.options import BenchOptions
from collage.process_guard import plugins_guarded
from collage.report.facts.bench_facts import ApparentLoss, BenchReport
from collage.report.facts.record import Comparison, ContenderFacts, ModelFacts
from collage.report.progress import Progress, SilentProgress
from collage.runtime.package import PackagedPlan, load_package
from collage.setup.environment import Environment
from collage.setup.facts import host_facts
from collage.setup.settings import SetupChoices
from collage.setup.workload import Workload
from collage_core.errors import UsageError
from collage_core.ir.values.symbolic_sizes import input_shapes
from collage_core.passes.call_sites import call_sites
from collage_core.registry import Registry


@plugins_guarded()
def bench(
    paths: Sequence[Path],
    options: BenchOptions | None = None,
    *,
    progress: Progress | None = None,
    registry: Registry | None = None,
) -> BenchReport:
    """Time packages, and every single toolchain on their model, in fresh processes that take turns.

    Args:
        paths: Models and packages. A model adds every single toolchain as a contender; so does `--compare` with
            packages.
        options: Duration, inputs and toolchains of the benchmark.
        progress: Receives progress updates.
        registry: Toolchains to use; the installed ones if None.

    Raises:
        CollageError: If a file cannot be used, or several models are given.
    """
    options = options or BenchOptions()
    progress = progress or SilentProgress()
    plans = [read_plan(path) for path in options.plans]
    packages = [path for path in paths if is_package(path)]
    models = [path for path in paths if not is_package(path)]
    if len(models) > 1:
        raise UsageError(f"bench compares contenders on one model, not {len(models)}")

    def workload() -> Workload:
        return Workload(
            model_of(models[0] if models else packages[0], options.input_shapes),
            input_shapes=options.input_shapes,
            inputs=options.inputs,
            seed=options.seed,
        )

    opening = Environment.open(workload, SetupChoices.of_bench(options), registry=registry, progress=progress)
    try:
        with opening as environment:
            timing = _Bench(environment, options, progress, is_model=bool(models))
            return timing.run(packages, plans, bool(models) or options.compare)
    finally:
        progress.done()


class _Bench:
    def __init__(
        self, environment: Environment[Workload], options: BenchOptions, progress: Progress, *, is_model: bool
    ) -> None:
        self._workload = environment.workload
        self._is_model = is_model  # rather than what a package was made from
        self._environment = environment
        self._options = options
        self._progress = progress

    def run(self, packages: Sequence[Path], plans: Sequence[PlanFile], singles: bool) -> BenchReport:
        options, environment, toolchains = self._options, self._environment, self._environment.toolchains
        taken = [target.name for status in toolchains.statuses for target in status.targets]
        paths: dict[str, Path] = dict(zip(_names(packages, taken), packages, strict=True))
        given = _names([Path(plan.source) for plan in plans], [*taken, *paths, "collage"], alone="")
        failed: Mapping[str, str] = {}
        own = {*paths, *given}
        if singles or plans:
            paths |= plan_packages(plans, given, environment, self._progress)
            if singles:
                built, failed = single_packages(environment, self._progress)
                paths |= built
        # a package without a plan for these shapes is told before anything is timed
        shapes = input_shapes(self._workload.graph.model)
        packaged = {name: load_package(path).plan_for(shapes) for name, path in paths.items()}
        inputs = [self._workload.inputs_document(toolchains.folder, toolchains.store)]
        contenders = [
            package_contender(
                name, path, inputs, toolchains.threads, warmup=options.warmup, built_here=path not in packages
            )
            for name, path in paths.items()
        ]
        self._progress.phase("timing", options.rounds * len(contenders))
        called: dict[str, list[tuple[float, ...]]] = defaultdict(list)
        per_s: dict[str, list[float]] = defaultdict(list)

        def noted(name: str, burst: Burst) -> None:
            if burst.called_us:
                called[name].append(burst.called_us)
            if burst.per_s:
                per_s[name].append(burst.per_s)

        rounds = interleaved(
            contenders,
            rounds=options.rounds,
            burst_s=options.duration_s / options.rounds,
            min_runs=options.iterations,
            as_called=True,
            streams=options.streams,
            progress=lambda done, total: self._progress.advance(),
            on_burst=noted,
        )
        comparison = self._comparison(packaged, own, rounds, called, failed)
        return BenchReport(
            model=self._facts(packages),
            host=host_facts(toolchains.host),
            threads=toolchains.threads,
            comparison=dataclasses.replace(
                comparison,
                streams=options.streams,
                contenders=tuple(
                    dataclasses.replace(each, per_s=statistics.median(per_s[each.name])) if each.name in per_s else each
                    for each in comparison.contenders
                ),
            ),
            notes=(*([] if options.inputs else [f"random inputs, seed {options.seed}"]), *self._other_models(packages)),
            apparent_losses=_apparent_losses([name for name in paths if name not in given], given, rounds),
        )

    def _facts(self, packages: Sequence[Path]) -> ModelFacts:
        """Return facts on the model; if it comes from a package, name the file the package was made from."""
        if self._is_model:
            return self._workload.facts
        manifest = load_package(packages[0]).manifest
        return dataclasses.replace(self._workload.facts, name=manifest.model_name, sha256=manifest.model_sha256)

    def _other_models(self, packages: Sequence[Path]) -> list[str]:
        """Return a note on each package made from a different model file, whose model may still be the same."""
        made_from = {path: load_package(path).manifest for path in packages}
        known = [manifest.model_sha256 for manifest in made_from.values() if manifest.model_sha256]
        expected = self._workload.facts.sha256 if self._is_model else next(iter(known), "")
        return [
            f"{path.name} was made from another file, {manifest.model_name}"
            for path, manifest in made_from.items()
            if manifest.model_sha256 not in ("", expected)
        ]

    def _comparison(
        self,
        packaged: Mapping[str, PackagedPlan],
        own: set[str],
        rounds: Mapping[str, Rounds | Failed],
        called: Mapping[str, Sequence[tuple[float, ...]]],
        failed: Mapping[str, str],
    ) -> Comparison:
        timed = {name: answer for name, answer in rounds.items() if not isinstance(answer, Failed)}
        inexact = {name for name, each in packaged.items() if not all(target.exact for target in each.targets.values())}
        # a toolchain that computes in a lower precision is the measure of nobody who does not
        rivals = (set(timed) - own) if not own or inexact & own else set(timed) - own - inexact
        best, ratios = _against_best(timed, rivals)
        best_called, called_ratios = _against_best({name: called[name] for name in timed if name in called}, rivals)
        contenders = []
        for name, plan in packaged.items():
            answer = rounds[name]
            sites = call_sites(plan.model)
            toolchains = tuple(sorted({site.toolchain for site in sites}))
            ratio = ratios.get(name)
            contenders.append(
                ContenderFacts(
                    name=name,
                    kind="mixed" if name in own and len(sites) > 1 else "single",
                    toolchains=toolchains,
                    regions=len(sites),
                    latency_ms=None if isinstance(answer, Failed) else latency_facts(answer),
                    failed=answer.reason if isinstance(answer, Failed) else "",
                    ratio=ratio.value if ratio is not None else None,
                    ratio_ci95=(ratio.low, ratio.high) if ratio is not None else None,
                    exact=name not in inexact,
                    as_called=(
                        as_called_facts(called[name], called_ratios.get(name))
                        if name in timed and name in called
                        else None
                    ),
                )
            )
        contenders += [ContenderFacts(name=name, kind="single", failed=reason) for name, reason in failed.items()]
        first = next((name for name in packaged if name in own and name in ratios), None)
        if first is None:
            return Comparison(contenders=tuple(contenders), best_single=best, best_single_as_called=best_called)
        ratio = ratios[first]
        return Comparison(
            contenders=tuple(contenders),
            best_single=best,
            speedup_vs_best_single=1 / ratio.value,
            speedup_ci95=(1 / ratio.high, 1 / ratio.low),
            best_single_as_called=best_called,
        )


def _against_best(
    rounds: Mapping[str, Sequence[tuple[float, ...]]], rivals: Collection[str]
) -> tuple[str | None, dict[str, Interval]]:
    """Return the fastest rival, None if there is none, and every contender's ratio to it."""
    racing = [name for name in rounds if name in rivals]
    best = min(racing, key=lambda name: (_median(rounds[name]), name), default=None)
    if best is None:
        return None, {}
    return best, {name: ratio_interval(each, rounds[best], seed=0) for name, each in rounds.items()}


def _apparent_losses(
    others: Sequence[str], given: Sequence[str], rounds: Mapping[str, Rounds | Failed]
) -> tuple[ApparentLoss, ...]:
    """Return how much faster the best other contender is than each plan that the user gave."""
    timed = {name: answer for name, answer in rounds.items() if not isinstance(answer, Failed)}
    ranked = sorted((_median(timed[name]), name) for name in others if name in timed)
    if not ranked:
        return ()
    best = "collage" if "collage" in timed else ranked[0][1]
    ratios = {name: ratio_interval(timed[best], timed[name], seed=0) for name in given if name in timed}
    return tuple(
        ApparentLoss(contender=best, plan=name, loss=ratio.value - 1, loss_ci95=(ratio.low - 1, ratio.high - 1))
        for name, ratio in ratios.items()
    )


def _names(packages: Sequence[Path], taken: Sequence[str], *, alone: str = "collage") -> list[str]:
    """Return a name for each package: `alone`, if set, for a single one, else its file stem, made unique."""
    if len(packages) == 1 and alone:
        return [alone]
    names: list[str] = []
    for path in packages:
        name = path.stem
        while name in (*names, *taken):
            name += "'"
        names.append(name)
    return names


def _median(rounds: Sequence[Sequence[float]]) -> float:
    return statistics.median(statistics.median(each) for each in rounds)
