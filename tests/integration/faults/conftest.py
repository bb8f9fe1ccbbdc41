"""Toolchains that misbehave, found as installed ones are, in a driver and workers that are otherwise as always."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from collage import options
from collage.decide.races import race
from collage.measure.driver import memory
from collage_core.hookspecs import ENTRY_POINT_GROUP
from collage_core.registry import Registry
from tests.integration.faults import misbehaving

HERE = Path(__file__).parent

UNLOADABLE: Mapping[str, str] = {
    "raises-at-import": 'raise RuntimeError("import is broken")',
    "exits-at-import": 'import sys\nsys.exit("import has had enough")',
    "hangs-at-import": "import signal, time\nsignal.setitimer(signal.ITIMER_REAL, 0.01, 1.0); time.sleep(3600)",
    "is-no-plugin": "plugin = 7",
}
"""Text of the module of each entry point that gives no toolchain."""


def installation(folder: Path) -> None:
    """Makes a folder that Python takes for one with an installed distribution."""
    entries = {name: f"misbehaving:{attribute}" for name, attribute in misbehaving.TOOLCHAINS.items()}
    for name, text in UNLOADABLE.items():
        module = name.replace("-", "_")
        (folder / f"{module}.py").write_text(text, encoding="utf-8")
        entries[name] = f"{module}:plugin"
    facts = folder / "misbehaving-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: misbehaving\nVersion: 1.0\n", encoding="utf-8")
    lines = [f"[{ENTRY_POINT_GROUP}]", *(f"{name} = {value}" for name, value in entries.items())]
    (facts / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the plugins did, noted by themselves."""
    return tmp_path_factory.mktemp("log") / "log.txt"


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory, log: Path) -> Iterator[None]:
    """The distribution is there, beside `reference` and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    installation(folder)
    discover = Registry.discover

    def discovered() -> Registry:
        found = discover()
        mine = {*misbehaving.TOOLCHAINS, *UNLOADABLE, "reference"}
        return Registry(
            {name: toolchain for name, toolchain in found.toolchains.items() if name in mine},
            tuple(failure for failure in found.failures if failure.name in mine),
        )

    quick = dataclasses.replace(options.PRESETS["quick"], rounds=1, round_s=0.005)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(misbehaving.LOG, str(log))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), str(HERE), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("COLUMNS", "1000")
        for place in (folder, HERE):
            patch.syspath_prepend(str(place))
        patch.setattr(Registry, "discover", discovered)
        patch.setattr(memory, "limit_bytes", lambda: 600 << 20)
        patch.setitem(options.PRESETS, "quick", quick)
        patch.setattr(race, "FIRST_ROUNDS", 1)
        yield
    sys.modules.pop("misbehaving", None)
