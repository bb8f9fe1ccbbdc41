"""Toolchains whose kernels go wrong in plans, found as installed ones are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from collage_core.hookspecs import ENTRY_POINT_GROUP
from tests.from_source import ROOT, metadata
from tests.integration.wrong_in_plans import sly_toolchain
from tests.integration.wrong_in_plans.plans import Plans


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder, with a distribution of both toolchains being there."""
    folder = tmp_path_factory.mktemp("sly")
    module, site = sly_toolchain.__name__, folder / "site"
    metadata(site, "sly-kernels", "1.0", {ENTRY_POINT_GROUP: {name: f"{module}:{name}" for name in ("steady", "sly")}})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(site), str(ROOT), os.environ.get("PYTHONPATH", "")]))
        for place in (site, ROOT):
            patch.syspath_prepend(str(place))
        patch.setenv(sly_toolchain.LOG, str(folder / "log"))
        yield folder


@pytest.fixture
def plans(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plans:
    return Plans(tmp_path, monkeypatch)
