"""Phase 1: determine the targets the installed toolchains offer here, and select those the user wants."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from collage.installed_code import plugin_version
from collage.measure.driver.worker_pool import WorkerPool
from collage_core.contract import Host, Obstacle, Supported, Target, TargetSpelling, Unsupported, split_targets
from collage_core.entry_points import PluginFailure
from collage_core.errors import PluginError, UsageError, did_you_mean
from collage_core.registry import Registry, Toolchain

ON_REQUEST = frozenset({"reference"})
"""Toolchains that take part only when named: slow, meant for operators without any other kernel."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ToolchainStatus:
    """One toolchain and its targets.

    Attributes:
        toolchain: The toolchain.
        targets: Every usable target, selected or not, the default one first.
        unusable: Why there is none; empty if there are some.
        obstacle: Category of that reason; None if there are some.
        selected: The participating targets.
        skipped: Reason for each usable target that does not take part, by target name.
    """

    toolchain: Toolchain
    targets: tuple[Target, ...] = ()
    unusable: str = ""
    obstacle: Obstacle | None = None
    selected: tuple[Target, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()

    @property
    def plugin(self) -> str:
        """Version of its plugin, to which results belong; reads the plugin's files where it is no release."""
        return plugin_version(self.toolchain)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The user's selection of targets.

    Attributes:
        wanted: Targets named with `--toolchains`; None for all.
        excluded: Targets named with `--exclude`.
        inexact: Whether targets that do not compute in the model's dtypes may take part.
    """

    wanted: tuple[TargetSpelling, ...] | None = None
    excluded: tuple[TargetSpelling, ...] = ()
    inexact: bool = False

    @classmethod
    def parse(cls, toolchains: str | None, exclude: Iterable[str], *, inexact: bool) -> Selection:
        """Parse the options.

        Raises:
            UsageError: If a target is misspelt, or none is named.
        """
        try:
            wanted = None if toolchains is None else split_targets(toolchains)
            excluded = tuple(spelling for text in exclude for spelling in split_targets(text))
        except ValueError as error:
            raise UsageError(str(error)) from error
        if wanted == ():
            raise UsageError("--toolchains names none; leave it out to use all that are installed")
        return cls(wanted=wanted, excluded=excluded, inexact=inexact)

    def toolchains(self, registry: Registry) -> tuple[str, ...]:
        """Return the names of the toolchains whose workers are queried, sorted.

        Raises:
            UsageError: If a named toolchain is not installed, or failed to load.
        """
        check_installed((*(self.wanted or ()), *self.excluded), registry)
        if self.wanted is not None:
            return tuple(sorted({spelling.toolchain for spelling in self.wanted}))
        whole = {s.toolchain for s in self.excluded if not s.options and s.device is None}
        return tuple(name for name in registry.toolchains if name not in ON_REQUEST | whole)

    def reason_against(self, target: Target) -> str:
        """Return why a usable target is not selected; empty if it is.

        A toolchain named without options selects all its targets of the kind the user allows, except those
        available only on request; a toolchain named with options selects just that target.
        """
        if any(covers(spelling, target) for spelling in self.excluded):
            return "excluded"
        named = self.wanted is None or any(covers(spelling, target) for spelling in self.wanted)
        if not named:
            return "not named with --toolchains"
        if target.on_request and not any(spelling.matches(target) for spelling in self.wanted or ()):
            return f"slow here, so only on request: --toolchains '{target.name}'"
        if not target.exact and not self.inexact:
            return "it does not compute in the model's own dtypes; allow an error with --max-error or --metric"
        return ""


def check_installed(spellings: Iterable[TargetSpelling], registry: Registry) -> None:
    """See that whatever toolchains are named are there; no worker is asked.

    Raises:
        UsageError: If one is not installed, or failed to load.
    """
    for spelling in spellings:
        if spelling.toolchain not in registry.toolchains:
            raise UsageError(_unknown(spelling.toolchain, registry))


def check_reference(reference: str | None, registry: Registry) -> None:
    """See that what `--reference` names is a target of a toolchain that is there; no worker is asked.

    Raises:
        UsageError: If it is not.
    """
    if reference is None:
        return
    try:
        check_installed([TargetSpelling.parse(reference)], registry)
    except (UsageError, ValueError) as error:
        raise UsageError(f"--reference: {error}") from error


def statuses(registry: Registry, pool: WorkerPool, host: Host, selection: Selection) -> tuple[ToolchainStatus, ...]:
    """Query each selected toolchain for its targets.

    Raises:
        UsageError: If a target named with `--toolchains` or `--exclude` is not one of its toolchain's.
    """
    found = []
    for name, answer in answers(registry, pool, host, selection.toolchains(registry)).items():
        toolchain = registry.toolchains[name]
        if isinstance(answer, Unsupported):
            found.append(ToolchainStatus(toolchain=toolchain, unusable=answer.reason, obstacle=answer.obstacle))
            continue
        against = {target: selection.reason_against(target) for target in answer}
        found.append(
            ToolchainStatus(
                toolchain=toolchain,
                targets=tuple(answer),
                selected=tuple(target for target, reason in against.items() if not reason),
                skipped=tuple((target.name, reason) for target, reason in against.items() if reason),
            )
        )
    _check_named(found, selection)
    return tuple(found)


def answers(
    registry: Registry, pool: WorkerPool, host: Host, names: Iterable[str]
) -> dict[str, tuple[Target, ...] | Unsupported]:
    """Return the targets of each toolchain, or why it has none.

    Workers are started only for toolchains whose host check accepts the machine.

    Args:
        registry: The toolchains.
        pool: Workers of the toolchains.
        host: The machine.
        names: Names of the toolchains to query.
    """
    checked = {name: _checked(registry.toolchains[name], host) for name in names}
    pool.begin(name for name, answer in checked.items() if answer)
    return {name: pool.worker(name).targets(host) if answer else answer for name, answer in checked.items()}


def _checked(toolchain: Toolchain, host: Host) -> Supported | Unsupported:
    try:
        return toolchain.check_host(host)
    except PluginError as error:
        return Unsupported(str(error))


def named_but_unusable(found: Iterable[ToolchainStatus], selection: Selection) -> tuple[str, ...]:
    """Return a sentence for each toolchain that the user named and that has no usable target here."""
    named = {spelling.toolchain for spelling in selection.wanted or ()}
    return tuple(
        f"{status.toolchain.name} takes no part: {status.unusable}"
        for status in found
        if status.unusable and status.toolchain.name in named
    )


def selected_targets(found: Sequence[ToolchainStatus]) -> tuple[Target, ...]:
    """Return the selected targets, by toolchain.

    Raises:
        UsageError: If there is none; the message gives the reason for each toolchain.
    """
    chosen = tuple(target for status in found for target in status.selected)
    if chosen:
        return chosen
    reasons = [
        f"{status.toolchain.name}: {status.unusable or '; '.join(f'{name} {why}' for name, why in status.skipped)}"
        for status in found
    ]
    raise UsageError(
        "no toolchain is usable here"
        + (f" ({' | '.join(reasons)})" if reasons else ": none is installed")
        + ". Install one, for example collage-onnxruntime; see `collage doctor`."
    )


def covers(spelling: TargetSpelling, target: Target) -> bool:
    """Return whether a spelling selects a target; a toolchain without options stands for all its targets."""
    if not spelling.options:
        return spelling.toolchain == target.toolchain and spelling.device in (None, target.device)
    return spelling.matches(target)


def _check_named(found: Sequence[ToolchainStatus], selection: Selection) -> None:
    for spelling in (*(selection.wanted or ()), *selection.excluded):
        for status in found:
            if status.toolchain.name != spelling.toolchain or not status.targets:
                continue
            if not any(covers(spelling, target) for target in status.targets):
                names = [target.name for target in status.targets]
                raise UsageError(
                    f"there is no target {_spelt(spelling)!r} here; {spelling.toolchain} offers {', '.join(names)}"
                    f"{did_you_mean(_spelt(spelling), names)}"
                )


def _spelt(spelling: TargetSpelling) -> str:
    options = ",".join(f"{name}={value}" for name, value in spelling.options)
    device = f"@{spelling.device}" if spelling.device else ""
    return f"{spelling.toolchain}{f'({options})' if options else ''}{device}"


def _unknown(name: str, registry: Registry) -> str:
    failed: PluginFailure | None = next((f for f in registry.failures if f.name == name), None)
    if failed is not None:
        return f"toolchain {name!r} ({failed.distribution}) failed to load: {failed.reason}"
    installed = ", ".join(registry.toolchains) or "none"
    return f"no toolchain {name!r} is installed; installed: {installed}{did_you_mean(name, registry.toolchains)}"
