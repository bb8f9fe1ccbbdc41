"""Tests that need a GPU are skipped with the reason where there is none, or not what they need besides.

One that loses it is the last.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Generator, Iterable

import pytest
from hypothesis import HealthCheck, settings

collect_ignore_glob = ["testing/collage_testing/template/*"]  # plugins with tests of their own, by `collage new-plugin`

settings.register_profile("collage", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("collage")  # a busy machine must not fail a property


def pytest_configure(config: pytest.Config) -> None:
    """Keeps the list of packages that tests write, for the processes they start too, out of the user's own."""
    folder = tempfile.mkdtemp(prefix="collage-tests-state-")
    os.environ["XDG_STATE_HOME"] = folder
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Asks for one process per processor: kernels wait spinning, and with more processes they wait for each other."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def why_not(modules: Iterable[str]) -> str:
    """Why a test cannot be run here that needs a GPU and some modules; empty if it can."""
    from collage.devices.this_host import this_host

    if this_host().device("cuda:0") is None:
        return "needs an NVIDIA GPU: collage-cuda shows none, or is not installed"
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    return f"needs {', '.join(missing)}, not installed beside this Python" if missing else ""


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Looks at `pytest.mark.gpu("module", ...)` before anything of the test is made."""
    for marker in item.iter_markers("gpu"):
        if reason := why_not(marker.args):
            pytest.skip(reason)


def why_lost() -> str:
    """What the GPU says if it does not answer this process any more; empty if it does, or was never asked."""
    from collage.devices.providers import Providers
    from collage_core.errors import DeviceError, DeviceLostError

    try:
        Providers.discover().open("cuda:0").synchronise()
    except DeviceLostError as error:
        return str(error)
    except DeviceError:
        return ""
    return ""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Ends the run once a test has lost the GPU: all that follow would fail for it, in this process."""
    report = yield
    if report.failed and item.get_closest_marker("gpu") and (reason := why_lost()):
        item.session.shouldfail = f"{item.nodeid} lost the GPU; for the others leave it out by --deselect. {reason}"
    return report
