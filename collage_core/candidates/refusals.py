"""Reasons why targets do not run nodes or candidates."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable

from collage_core.contract import Target
from collage_core.errors import CollageError, PluginError


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """Where a reason comes from that this run did not find out.

    Attributes:
        since: When it was found out, as ISO 8601 with offset.
        plugin: Version of the plugin then; empty if unknown.

    Examples:
        >>> str(Remembered(since="2026-01-02T03:04:05+00:00", plugin="collage-openvino 1.0"))
        'known since 2026-01-02 with collage-openvino 1.0'
    """

    since: str
    plugin: str = ""

    def __str__(self) -> str:
        return f"known since {self.since[:10]}" + (f" with {self.plugin}" if self.plugin else "")


def oldest(known: Iterable[Remembered | None] | None) -> Remembered | None:
    """Return the oldest of what is remembered; None if nothing is."""
    remembered = [each for each in known or () if each is not None]
    return min(remembered, key=lambda each: datetime.datetime.fromisoformat(each.since), default=None)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Reason why a candidate that was tried cannot be used.

    Attributes:
        stage: Stage that failed: `"lower"`, `"load"`, `"run"`, `"check"`, `"measure"`, ...
        reason: Message of the library or the plugin.
        remembered: Where it is known from; None if this run found it out.
    """

    stage: str
    reason: str
    remembered: Remembered | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Nodes or candidates that a target rejected.

    Attributes:
        target: Target name.
        stage: `"query"`, `"predicate"`, `"lower"`, `"load"`, `"run"`, `"check"`, `"measure"`, ...
        nodes: Names of the affected nodes.
        reason: Message of the library or the plugin.
        remembered: Where it is known from, of several the oldest; None if this run found it out.
    """

    target: str
    stage: str
    nodes: tuple[str, ...]
    reason: str
    remembered: Remembered | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TargetFailure:
    """A target that is excluded because its plugin failed.

    Attributes:
        target: The target.
        stage: Name of the hook, without its prefix.
        reason: What happened.
        remembered: Where it is known from; None if this run found it out.
    """

    target: Target
    stage: str
    reason: str
    remembered: Remembered | None = None

    @classmethod
    def of(cls, target: Target, error: CollageError, remembered: Remembered | None = None) -> TargetFailure:
        """Return the failure that an error of the plugin's is."""
        if isinstance(error, PluginError):
            stage, reason = error.hook.removeprefix("collage_"), error.reason
        else:
            stage, reason = "query", str(error)
        return cls(target=target, stage=stage, reason=reason, remembered=remembered)
