"""A plugin that is installed, fails, and is mended in its next version."""

from __future__ import annotations

import dataclasses
import importlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from collage import options
from collage.commands.optimize import optimize
from collage.commands.optimizing.optimized import Optimized
from collage.decide.races import race
from collage.options import OptimizeOptions
from collage.store import TuningRecord, open_database
from collage_core.hookspecs import ENTRY_POINT_GROUP
from collage_core.ir.io.model_io import save_model
from collage_core.registry import Registry
from collage_testing import GraphBuilder
from tests.from_source import metadata
from tests.integration.remembered import mending_plugin

MODULE = "installed_mending"
DISTRIBUTION = "collage-mending"


@dataclasses.dataclass(frozen=True)
class Run:
    """One optimization.

    Attributes:
        optimized: What came of it.
        noted: What the plugin noted meanwhile.
        new: The records it added.
    """

    optimized: Optimized
    noted: tuple[str, ...]
    new: tuple[TuningRecord, ...]

    def of(self, way: str) -> list[TuningRecord]:
        """The new records of one target."""
        target = f"mending(way={way})" if way else "mending"
        return [record for record in self.new if record.key.target == target]


class Installation:
    """A folder with the plugin, and a model that is optimized with it over one database.

    Args:
        folder: For all of it.
    """

    def __init__(self, folder: Path) -> None:
        self.site, self.log = folder / "site", folder / "log.txt"
        self.database, self.model = folder / "tuning.sqlite", folder / "model.onnx"
        self.site.mkdir()
        self.log.touch()
        g = GraphBuilder("small")
        save_model(g.model(g.op("Relu", g.op("Add", g.input("x", 8, 16), g.input("z", 8, 16)))), self.model)

    def install(self, version: str, *, mended: bool) -> None:
        """Install a release, which lists its files, in place of what is there."""
        for facts in self.site.glob("*.dist-info"):
            shutil.rmtree(facts)
        text = Path(mending_plugin.__file__).read_text(encoding="utf-8")
        text = text.replace("MENDED = False", f"MENDED = {mended}")
        (self.site / f"{MODULE}.py").write_text(text, encoding="utf-8")
        metadata(self.site, DISTRIBUTION, version, {ENTRY_POINT_GROUP: {"mending": f"{MODULE}:plugin"}})
        [facts] = self.site.glob("*.dist-info")
        (facts / "RECORD").write_text(f"{MODULE}.py,,\n{facts.name}/METADATA,,\n", encoding="utf-8")
        sys.modules.pop(MODULE, None)
        importlib.invalidate_caches()

    def optimized(self, *, search: str = "exact", retry_failed: bool = False) -> Run:
        before, known = self.log.read_text().splitlines(), {record.content_id for record in self.records()}
        wanted = OptimizeOptions(
            preset="quick",
            search=search,
            warmup=1,
            iterations=3,
            duration_s=0.001,
            threads=1,
            tuning_db=str(self.database),
            retry_failed=retry_failed,
        )
        found = optimize(self.model, wanted)
        noted = self.log.read_text().splitlines()[len(before) :]
        return Run(found, tuple(noted), tuple(each for each in self.records() if each.content_id not in known))

    def records(self) -> list[TuningRecord]:
        if not self.database.exists():
            return []
        with open_database(self.database, read_only=True) as store:
            return list(store.all_records())


@pytest.fixture(scope="module")
def installing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pytest.MonkeyPatch]:
    """Only the toolchain `mending` is there, and whole plans run for a moment."""
    discover = Registry.discover

    def discovered() -> Registry:
        return Registry({name: each for name, each in discover().toolchains.items() if name == "mending"})

    quick = dataclasses.replace(options.PRESETS["quick"], rounds=1, round_s=0.005)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Registry, "discover", discovered)
        patch.setitem(options.PRESETS, "quick", quick)
        patch.setattr(race, "FIRST_ROUNDS", 1)
        yield patch
    sys.modules.pop(MODULE, None)


def installation(folder: Path, patch: pytest.MonkeyPatch) -> Installation:
    """Make a folder that Python takes for one with an installed distribution."""
    made = Installation(folder)
    patch.setenv(mending_plugin.LOG, str(made.log))
    patch.setenv("PYTHONPATH", os.pathsep.join([str(made.site), os.environ.get("PYTHONPATH", "")]))
    patch.syspath_prepend(str(made.site))
    return made
