"""Lower call sites of a package that do not load here: for their own target, or for another toolchain's."""

from __future__ import annotations

import math
from collections.abc import Iterator

from collage.build.lowering_workers import LoweringWorkers
from collage.build.packaged_facts import PackagedFacts
from collage.build.whole_kernels import refusal_of
from collage.measure.wire.outcomes import BuildSettings
from collage.runtime import Lowered
from collage.runtime.package import PackagedPlan
from collage.setup.targets import ON_REQUEST
from collage_core.contract import KernelFunction, Target, TargetSpelling, Unsupported
from collage_core.passes.call_sites import CallSite


class Relowering:
    """Lowers call sites of a plan in the workers of installed toolchains.

    Args:
        plan: The plan of a package.
        threads: CPU threads of each kernel.
        workers: The workers, which plans of one package share.

    Attributes:
        facts: What the plan says of its kernels.
    """

    def __init__(self, plan: PackagedPlan, threads: int, workers: LoweringWorkers) -> None:
        self._plan = plan
        self._workers = workers
        self.facts = PackagedFacts(plan)
        self._settings = BuildSettings(threads=threads, deterministic=self.facts.is_deterministic)

    def __call__(self, site: CallSite, target: Target) -> Iterator[Lowered | Unsupported]:
        """Lower a call site for its target, then for others: toolchains that were cheaper where it was made come first.

        Others compute in the model's own dtypes and take the whole function as one kernel, by their own predicates.
        The built-in reference, which takes nearly everything, is the last. Whatever one raises is its refusal.
        """
        function = site.kernel_function()
        offered = self._workers.offered(target.toolchain)
        wanted = (target.device, target.options)
        same = [] if isinstance(offered, Unsupported) else [t for t in offered if (t.device, t.options) == wanted]
        if same:
            yield self._lowered(function, same[0])
        elif isinstance(offered, Unsupported):
            yield Unsupported(f"{target.toolchain} offers no target here: {offered.reason}")
        else:
            yield Unsupported(f"{target.toolchain} offers {', '.join(each.name for each in offered)} here")
        for other in self._others(site, target):
            yield self._for_another(function, other)

    def _others(self, site: CallSite, target: Target) -> Iterator[Target]:
        """Yield the targets that may take a kernel of another one, the most promising first."""
        costs = self.facts.costs_us(site.name)
        wanted = (target.toolchain, target.device, target.options)
        staying = [each for each in self._plan.targets.values() if each.toolchain != target.toolchain]
        present = {each.toolchain for each in staying}

        def rank(toolchain: str) -> tuple[bool, float, bool, str]:
            cost = min((us for name, us in costs.items() if _toolchain_of(name) == toolchain), default=math.inf)
            return toolchain in ON_REQUEST, cost, toolchain not in present, toolchain

        for name in sorted(self._workers.installed, key=rank):
            offered = self._workers.offered(name)
            if isinstance(offered, Unsupported):
                continue
            possible = [
                each
                for each in offered
                if each.exact
                and each.mixable
                and not each.on_request
                and (each.toolchain, each.device, each.options) != wanted
                and not each.excludes & present
                and not any(name in other.excludes for other in staying)
            ]
            yield from sorted(possible, key=lambda each: costs.get(each.name, math.inf))

    def _for_another(self, function: KernelFunction, target: Target) -> Lowered | Unsupported:
        try:
            refusal = refusal_of(self._workers.installed[target.toolchain], target, function)
        except Exception as error:  # of a plugin's rule, or of a function that nothing of ours wrote
            refusal = f"it cannot say whether it takes them: {error}"
        return Unsupported(f"{target.name}: {refusal}") if refusal else self._lowered(function, target)

    def _lowered(self, function: KernelFunction, target: Target) -> Lowered | Unsupported:
        try:
            artifact = self._workers.lowered(function, target, self._settings)
        except Exception as error:  # of the conversation with a worker
            artifact = Unsupported(f"{type(error).__name__}: {error}")
        if isinstance(artifact, Unsupported):
            return Unsupported(f"lowering it again for {target.name} failed: {artifact.reason}")
        return Lowered(target=target, artifact=artifact)


def _toolchain_of(target: str) -> str:
    """Return the toolchain in the name of a target, as a record has it; empty if that is no target."""
    try:
        return TargetSpelling.parse(target).toolchain
    except ValueError:
        return ""
