"""Why targets do not run what they do not run."""

from __future__ import annotations

import dataclasses

from collage_core.contract import Target
from collage_core.errors import CollageError, PluginError


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Why a candidate that was tried cannot be used.

    Attributes:
        stage: Where that came to light: `"lower"`, `"load"`, `"run"`, `"check"`, `"measure"`, ...
        reason: The library's or the plugin's words.
    """

    stage: str
    reason: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Nodes or candidates a target did not take.

    Attributes:
        target: Target name.
        stage: `"query"`, `"predicate"`, `"lower"`, `"load"`, `"run"`, `"check"`, `"measure"`, ...
        nodes: Names of the nodes concerned.
        reason: The library's or the plugin's words.
    """

    target: str
    stage: str
    nodes: tuple[str, ...]
    reason: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TargetFailure:
    """A target that takes no part because its plugin failed.

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
