"""Open runners by what a user calls them; those besides `local` are brought by plugins."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Final

from collage.fleet.local_runner import NAME, open_local
from collage_core.contract import RUNNER_ENTRY_POINT_GROUP, OpenRunner, Runner
from collage_core.entry_points import discovered
from collage_core.errors import PluginError, RunnerError, UsageError, did_you_mean
from collage_core.plugin_calls import in_driver

_BROUGHT_BY: Final = {"ray": "collage-ray"}
"""What to install for a runner."""


def open_runner(text: str) -> Runner:
    """Open a runner.

    Args:
        text: `local`, or what another runner's plugin takes, which begins with its name: `ray://host:10001`.

    Raises:
        UsageError: If no such runner is installed, or the text makes no sense to it.
        RunnerError: If it cannot be reached.
    """
    name = text.partition(":")[0]
    if name == NAME:
        return open_local(text)
    runners, failures = discovered(RUNNER_ENTRY_POINT_GROUP, _load, "a runner of this name")
    if name in runners:
        return runners[name](text)
    for failure in failures:
        if failure.name == name:
            raise RunnerError(name, f"{failure.distribution} failed to load: {failure.reason}")
    known = [NAME, *runners]
    advice = f"; pip install {_BROUGHT_BY[name]}" if name in _BROUGHT_BY else did_you_mean(name, known)
    raise UsageError(f"no runner {name!r} is installed; there is {', '.join(known)}{advice}")


def _load(entry: EntryPoint) -> OpenRunner:
    found = in_driver(entry.name, "import", entry.load)
    if not callable(found):
        raise PluginError(entry.name, "import", f"{type(found).__name__} opens no runner")
    return found  # type: ignore[no-any-return]
