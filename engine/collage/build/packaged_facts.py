"""What a packaged plan says of its kernels: what they cost where it was made, and what has to be installed for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from collage.devices.this_host import this_host
from collage.report.documents.codec import record_from_document
from collage.report.facts.record import Record
from collage.runtime.kernels.requirements import check_requirements
from collage.runtime.package import PackagedPlan
from collage_core.errors import CollageError


class PackagedFacts:
    """Facts of a plan, as far as its record can be read.

    Args:
        plan: The plan of a package.
    """

    def __init__(self, plan: PackagedPlan) -> None:
        self._plan = plan
        self._record: Record | None = None
        try:
            self._record = record_from_document(plan.record)
        except CollageError:  # no record at all, or one of another version
            self._record = None

    @property
    def is_deterministic(self) -> bool:
        """Whether the package was made with `--deterministic`."""
        document = self._plan.record
        return isinstance(document, Mapping) and document.get("deterministic") is True

    def costs_us(self, site: str) -> Mapping[str, float]:
        """Return what a call site cost where the package was made, by the name of the target, as far as is known."""
        for region in () if self._record is None else self._record.regions:
            if region.id == site:
                known = {each.target: each.cost_us for each in region.alternatives if each.cost_us is not None}
                return {**known, region.target: region.measured_us or region.cost_us}
        return {}

    def missing_distributions(self, site: str, installed: Collection[str]) -> tuple[str, ...]:
        """Return what has to be installed for the packaged kernel of a call site, as pip takes it.

        These are plugins that are not installed, and libraries of which another version or none is.

        Args:
            site: The call site.
            installed: Names of the installed toolchains.
        """
        toolchain = self._plan.targets[site].toolchain
        known = () if self._record is None or toolchain in installed else self._record.toolchains
        plugins = [each.distribution.partition(" ")[0] for each in known if each.name == toolchain]
        libraries = [
            f"{requirement.name}{requirement.specifier}"
            for requirement in self._plan.artifacts[site].requires
            if requirement.kind == "library" and not check_requirements([requirement], this_host())
        ]
        return (*filter(None, plugins), *libraries)
