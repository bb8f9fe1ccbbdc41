"""What a packaged plan says of its kernels: what they cost where it was made, and what has to be installed for them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Mapping
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from collage.devices.this_host import this_host
from collage.report.documents.codec import record_from_document
from collage.report.facts.record import Record
from collage.runtime.kernels.requirements import check_requirements
from collage.runtime.package import PackagedPlan, TrustedPackages
from collage_core.errors import CollageError


class PackagedFacts:
    """Facts of a plan, as far as its record can be read.

    Args:
        plan: The plan of a package.
    """

    def __init__(self, plan: PackagedPlan) -> None:
        self._plan = plan
        document: Any = None
        self._record: Record | None = None
        with contextlib.suppress(CollageError):  # no record at all, a damaged one, or one of another version
            document = plan.record
            self._record = record_from_document(document)
        self.is_deterministic = isinstance(document, Mapping) and document.get("deterministic") is True
        """Whether the package was made with `--deterministic`."""

    @functools.cached_property
    def _costs_us(self) -> Mapping[str, Mapping[str, float]]:
        """Costs by call site and target."""
        found = {}
        for region in () if self._record is None else self._record.regions:
            known = {each.target: each.cost_us for each in region.alternatives if each.cost_us is not None}
            found[region.id] = {**known, region.target: region.measured_us or region.cost_us}
        return found

    def costs_us(self, site: str) -> Mapping[str, float]:
        """Return what a call site cost where the package was made, by the name of the target, as far as is known."""
        return self._costs_us.get(site, {})

    def whole_ms(self, target: str) -> tuple[float, float] | None:
        """Return what a target alone took for the whole model, and what the plan took, where the package was made."""
        contenders = () if self._record is None else self._record.comparison.contenders
        known = {each.name: each.latency_ms.p50 for each in contenders if each.latency_ms is not None}
        if not contenders or not {target, contenders[0].name} <= set(known):  # the plan that was kept comes first
            return None
        return known[target], known[contenders[0].name]

    def missing_distributions(self, site: str, installed: Collection[str]) -> tuple[str, ...]:
        """Return what has to be installed for the packaged kernel of a call site, as pip takes it.

        These are plugins that are not installed, and libraries of which another version or none is. A package says so
        itself: only one that is trusted may tell a user what to install.

        Args:
            site: The call site.
            installed: Names of the installed toolchains.
        """
        if not self._is_trusted:
            return ()
        toolchain = self._plan.targets[site].toolchain
        known = () if self._record is None or toolchain in installed else self._record.toolchains
        plugins = [each.distribution.partition(" ")[0] for each in known if each.name == toolchain]
        libraries = [
            f"{requirement.name}{requirement.specifier}"
            for requirement in self._plan.requires(site)
            if requirement.kind == "library" and not check_requirements([requirement], this_host())
        ]
        return tuple(name for name in (*plugins, *libraries) if _is_distribution(name))

    @functools.cached_property
    def _is_trusted(self) -> bool:
        return self._plan.package.digest in TrustedPackages()


def _is_distribution(text: str) -> bool:
    """Return whether pip takes a text as a distribution with versions: not as an option, a file or an address."""
    try:
        return Requirement(text).url is None
    except InvalidRequirement:
        return False
