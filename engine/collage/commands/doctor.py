"""`doctor`: report what is installed, and why something is unusable."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence

import collage
from collage.devices.providers import Providers
from collage.devices.this_host import this_host
from collage.installed_code import plugin_version
from collage.measure.driver.client import PluginSource
from collage.measure.driver.worker_pool import WorkerPool
from collage.measure.wire.blobs import BlobStore
from collage.process_guard import plugins_guarded
from collage.report.facts.doctor_facts import DoctorReport
from collage.report.facts.record import ToolchainFacts
from collage.setup.facts import host_facts
from collage.setup.library_clashes import installed_clashes, loaded_clashes
from collage.setup.targets import answers
from collage.store import shown_name
from collage.temporary_folders import TemporaryFolder
from collage_core.candidates.proposals import target_rule
from collage_core.contract import Obstacle, Target, Unsupported
from collage_core.errors import PluginError
from collage_core.registry import Registry, Toolchain

_DISTRIBUTION = "collage-engine"


@plugins_guarded()
def doctor(registry: Registry | None = None) -> DoctorReport:
    """Query every installed toolchain, each in a separate process, for its targets on this machine.

    A toolchain that rules itself out from the host description alone is not queried further.

    Also registers each target's patterns and predicates in this process, as a search would, and looks for
    conflicting libraries.
    """
    registry = registry or Registry.discover()
    providers = Providers.discover()
    host = this_host(providers)
    facts: list[ToolchainFacts] = []
    devices: dict[str, None] = {}
    obstacles: dict[str, str] = {}
    with TemporaryFolder() as folder:
        sources = [PluginSource(toolchain=name) for name in registry.toolchains]
        with WorkerPool(sources, BlobStore(folder)) as pool:
            answered = answers(registry, pool, host, registry.toolchains)
            loaded = pool.libraries()
            for name, answer in answered.items():
                distribution = registry.toolchains[name].distribution
                if isinstance(answer, Unsupported):
                    if answer.obstacle is not Obstacle.OTHER:
                        obstacles[name] = answer.obstacle.value
                    facts.append(ToolchainFacts(name=name, distribution=distribution, unusable=answer.reason))
                    continue
                failed = {target: _failure(registry.toolchains[name], target) for target in answer}
                usable = [target for target, reason in failed.items() if not reason]
                devices.update(dict.fromkeys(target.device for target in usable))
                facts.append(
                    ToolchainFacts(
                        name=name,
                        distribution=distribution,
                        targets=tuple(target.name for target in usable),
                        fingerprint=answer[0].fingerprint,
                        unusable="; ".join(dict.fromkeys(filter(None, failed.values()))),
                        plugin=plugin_version(registry.toolchains[name]),
                    )
                )
    return DoctorReport(
        collage_version=collage.__version__,
        host=host_facts(host),
        devices=tuple(sorted(devices)),
        unusable_devices=(
            *(f"{each.name}: {reason}" for each in host.devices if (reason := providers.why_unusable(each.name))),
            *providers.unprovided(),
        ),
        toolchains=tuple(facts),
        failures=(*registry.failures, *providers.problems()),
        obstacles=obstacles,
        warnings=other_owners(),
        clashes=(*installed_clashes(providers.libraries), *loaded_clashes(loaded, providers.libraries)),
        tuning_db=shown_name(),
    )


@plugins_guarded()
def targets_of(toolchain: str) -> tuple[str, ...]:
    """Return the names of one installed toolchain's targets on this machine; none if it is unusable or not there."""
    registry = Registry.discover()
    if toolchain not in registry.toolchains:
        return ()
    with (
        TemporaryFolder() as folder,
        WorkerPool([PluginSource(toolchain=toolchain)], BlobStore(folder)) as pool,
    ):
        answer = answers(registry, pool, this_host(Providers.discover()), [toolchain])[toolchain]
    return () if isinstance(answer, Unsupported) else tuple(target.name for target in answer)


def other_owners(owners: Mapping[str, Sequence[str]] | None = None) -> tuple[str, ...]:
    """Return a warning for each other distribution that installs the import package `collage`.

    The name `collage` on the package index belongs to another project, whose files overwrite the engine's.

    Args:
        owners: Distributions by the import package they install; those beside this interpreter if None.
    """
    known = importlib.metadata.packages_distributions() if owners is None else owners
    others = sorted({name for name in known.get("collage", ()) if name != _DISTRIBUTION})
    return tuple(
        f"distribution {name!r} installs the import package 'collage', too, and may have overwritten files of "
        f"{_DISTRIBUTION}: pip uninstall {name} {_DISTRIBUTION}, then install {_DISTRIBUTION} again"
        for name in others
    )


def _failure(toolchain: Toolchain, target: Target) -> str:
    """Return why a target has no rule; empty if it has one."""
    try:
        target_rule(toolchain, target, {})
    except PluginError as error:
        return f"{target.name} failed in {error.hook}: {error.reason}"
    return ""
