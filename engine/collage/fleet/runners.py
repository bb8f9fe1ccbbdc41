"""Open runners by what a user calls them."""

from __future__ import annotations

import importlib.metadata
from importlib.metadata import EntryPoint
from typing import Any, Final

from collage_core.contract import RUNNER_ENTRY_POINT_GROUP, Runner
from collage_core.entry_points import discovered
from collage_core.errors import PluginError, RunnerError, UsageError, did_you_mean
from collage_core.plugin_calls import in_driver

_BROUGHT_BY: Final = {"ray": "collage-ray"}
"""What to install for a runner."""


def open_runner(text: str) -> Runner:
    """Open a runner.

    Args:
        text: What its plugin takes, which begins with its name: `local`, `ray://host:10001`.

    Raises:
        UsageError: If no such runner is installed, or the text makes no sense to it.
        RunnerError: If it cannot be reached.
    """
    name = text.partition(":")[0]
    # only this one: another's library takes seconds to import
    runners, failures = discovered(RUNNER_ENTRY_POINT_GROUP, _load, "a runner of this name", only=name)
    if name in runners:
        runner = runners[name](text)
        if not isinstance(runner, Runner):
            raise RunnerError(name, f"its plugin opens {type(runner).__name__}, no Runner")
        return runner
    for failure in failures:
        if failure.name == name:
            raise RunnerError(name, f"{failure.distribution} failed to load: {failure.reason}")
    known = sorted(importlib.metadata.entry_points(group=RUNNER_ENTRY_POINT_GROUP).names)
    advice = f"; pip install {_BROUGHT_BY[name]}" if name in _BROUGHT_BY else did_you_mean(name, known)
    raise UsageError(f"no runner {name!r} is installed; there is {', '.join(known) or 'none'}{advice}")


def _load(entry: EntryPoint) -> Any:
    found = in_driver(entry.name, "import", entry.load)
    if not callable(found):
        raise PluginError(entry.name, "import", f"{type(found).__name__} opens no runner")
    return found
