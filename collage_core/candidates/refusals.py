"""Reasons why targets do not run nodes or candidates."""

from __future__ import annotations

import dataclasses

from collage_core.contract import Target
from collage_core.errors import CollageError, PluginError


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Reason why a candidate that was tried cannot be used.

    Attributes:
        stage: Stage that failed: `"lower"`, `"load"`, `"run"`, `"check"`, `"measure"`, ...
        reason: Message of the library or the plugin.
    """

    stage: str
    reason: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Nodes or candidates that a target rejected.

    Attributes:
        target: Target name.
        stage: `"query"`, `"predicate"`, `"lower"`, `"load"`, `"run"`, `"check"`, `"measure"`, ...
        nodes: Names of the affected nodes.
        reason: Message of the library or the plugin.
    """

    target: str
    stage: str
    nodes: tuple[str, ...]
    reason: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TargetFailure:
    """A target that is excluded because its plugin failed.

    Attributes:
        target: The target.
        stage: Name of the hook, without its prefix.
        reason: What happened.
    """

    target: Target
    stage: str
    reason: str

    @classmethod
    def of(cls, target: Target, error: CollageError) -> TargetFailure:
        """Return the failure that an error of the plugin's is."""
        if isinstance(error, PluginError):
            return cls(target=target, stage=error.hook.removeprefix("collage_"), reason=error.reason)
        return cls(target=target, stage="query", reason=str(error))
