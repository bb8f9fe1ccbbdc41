"""What is saved is known as written on this machine; if that cannot be kept, the package is saved all the same."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from collage.commands.optimizing.optimized import Optimized
from collage.errors import UnrecordedPackageWarning
from collage.runtime.package import TrustedPackages
from tests.engine.report.records import RECORD

DIGEST = "ab" * 32


def optimized() -> Optimized:
    def save(path: Path, record: Any, **facts: Any) -> str:
        Path(path).write_bytes(b"a package")
        return DIGEST

    assembled: Any = SimpleNamespace(save=save)
    pool: Any = None
    return Optimized(record=RECORD, assembled=assembled, pool=pool)


def test_a_saved_package_is_listed_as_written_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    optimized().save(tmp_path / "m.collage")

    [listed] = TrustedPackages()
    assert (listed.digest, listed.how, listed.path) == (DIGEST, "written", str(tmp_path / "m.collage"))


@pytest.mark.guards(
    "the list of packages written on this machine cannot be kept",
    "the package is saved; a warning says that its code will not be loaded",
    area="packages and files",
)
def test_a_list_that_cannot_be_kept_costs_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state").write_bytes(b"a file")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    with pytest.warns(UnrecordedPackageWarning, match=r"m\.collage is saved, but code in it will not be loaded"):
        optimized().save(tmp_path / "m.collage")

    assert (tmp_path / "m.collage").read_bytes() == b"a package"
