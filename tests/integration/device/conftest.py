"""A machine with toolchains on devices, as if they were installed."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from collage import options
from collage_core.contract import DEVICE_ENTRY_POINT_GROUP
from collage_core.hookspecs import ENTRY_POINT_GROUP
from tests import from_source
from tests.integration.device import toolchains

if importlib.util.find_spec("collage_cuda") is None:
    # these import the provider at once; the plugins of the others are found in their folders
    collect_ignore = ["place.py", "test_detection.py", "test_faults.py", "test_replay.py"]

GPU_PLUGINS = (
    "collage-cuda",
    "collage-cublas",
    "collage-cudnn",
    "collage-cutlass",
    "collage-tensorrt",
    "collage-triton",
)


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the toolchains of tests lower, noted by themselves."""
    return tmp_path_factory.mktemp("log") / "lowered.txt"


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory, log: Path) -> Iterator[None]:
    """The toolchains of tests are there, core and the plugins for GPUs too, also for processes this one starts."""
    folder = tmp_path_factory.mktemp("installed")
    plugins = [from_source.ROOT / "plugins" / name for name in GPU_PLUGINS]
    paths = from_source.described(folder, [*from_source.BASE, *plugins])
    entries = {**toolchains.TOOLCHAINS, "failing": "tests.integration.device.failing:failing"}
    devices = {**toolchains.DEVICES, "failing": "tests.integration.device.failing:devices"}
    from_source.metadata(
        folder, "toolchains-of-tests", "1.0", {ENTRY_POINT_GROUP: entries, DEVICE_ENTRY_POINT_GROUP: devices}
    )
    quick = dataclasses.replace(options.PRESETS["quick"], rounds=3, round_s=0.02, challengers=1, coalesce_rounds=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(toolchains.LOG, str(log))
        patch.setenv("PYTHONPATH", from_source.environment(paths)["PYTHONPATH"])
        patch.setenv("COLUMNS", "1000")
        for path in paths:
            patch.syspath_prepend(path)
        patch.setitem(options.PRESETS, "quick", quick)
        yield
