"""Wrong kernels, in toolchains that are found as installed ones are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from collage_core.hookspecs import ENTRY_POINT_GROUP
from tests.from_source import ROOT, metadata

TOOLCHAINS = ("honest", "wrong")


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A distribution with both toolchains is there."""
    folder = tmp_path_factory.mktemp("installed")
    module = "tests.integration.wrong_kernels.wrong_toolchain"
    metadata(folder, "wrong-kernels", "1.0", {ENTRY_POINT_GROUP: {name: f"{module}:{name}" for name in TOOLCHAINS}})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")]))
        for place in (folder, Path(ROOT)):
            patch.syspath_prepend(str(place))
        yield
