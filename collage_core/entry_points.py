"""Find what installed distributions bring to a group of entry points, each on its own."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint
from typing import Any, TypeVar

from collage_core.error_text import one_line
from collage_core.errors import PluginError
from collage_core.plugin_guards import left_out

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PluginFailure:
    """An entry point that cannot be used.

    Attributes:
        name: Name of the entry point.
        distribution: Distribution that declares it, with its version.
        reason: Why it is unusable.
    """

    name: str
    distribution: str
    reason: str


def discovered(
    group: str, load: Callable[[EntryPoint], T], what: str, only: str | None = None
) -> tuple[dict[str, T], tuple[PluginFailure, ...]]:
    """Load every entry point of a group.

    One that fails to load costs only itself. Two distributions that claim one name lose both.

    Args:
        group: Name of the group.
        load: Makes something of an entry point; may raise `PluginError`.
        what: What is brought, for the reason two distributions are refused for: `"a toolchain of this name"`.
        only: Name of the only entry point to load; None for all.

    Returns:
        What was loaded, by the sorted names of the entry points, and the failures.
    """
    owners: dict[str, list[EntryPoint]] = {}
    for entry in importlib.metadata.entry_points(group=group):
        if only not in (None, entry.name):
            continue
        owners.setdefault(entry.name, []).append(entry)
    loaded: dict[str, T] = {}
    failures: list[PluginFailure] = []
    for name, claims in sorted(owners.items()):
        entries = distinct(claims)
        both = " and ".join(sorted(map(distribution_of, entries)))
        try:
            check_not_left_out(name)
            if len(entries) > 1:
                raise PluginError(name, "import", f"{both} both bring {what}; remove one")
            loaded[name] = load(entries[0])
        except PluginError as error:
            failures.append(PluginFailure(name=name, distribution=both, reason=error.reason))
    return loaded, tuple(failures)


def check_not_left_out(name: str) -> None:
    """Refuse an entry point that is not to be loaded.

    Raises:
        PluginError: If it is one, with the reason.
    """
    if (reason := left_out().get(name)) is not None:
        raise PluginError(name, "import", reason)


def distinct(entries: Iterable[EntryPoint]) -> list[EntryPoint]:
    """Leave out repetitions: editable installs show one distribution twice when its folder is on the path too."""
    found: dict[tuple[str, str], EntryPoint] = {}
    for entry in entries:
        found.setdefault((entry.value, distribution_of(entry)), entry)
    return list(found.values())


def distribution_of(entry: EntryPoint) -> str:
    """Name the distribution of an entry point, with its version."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.value


def referred(reference: str, name: str) -> Any:
    """Import `module:attribute`, without an entry point: for plugins under development.

    Args:
        reference: What to import.
        name: What it is to be, for errors.

    Raises:
        PluginError: If the module cannot be imported or has no such attribute.
    """
    module, _, attribute = reference.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:
        raise PluginError(name, "import", one_line(error)) from error
