"""What `load` says of a package that runs otherwise than it was measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx_ir as ir
import pytest

from collage.commands.load import load
from collage.devices.this_host import usable_cpus
from collage.errors import FewerThreadsWarning
from collage.reference.plugin import ReferencePlugin
from collage.runtime.package import save_package
from collage_core.contract import Target
from collage_core.passes.call_sites import call_sites
from tests.engine.runtime.mocks import partition

Parse = Callable[[str], ir.Model]
REFERENCE = Target(toolchain="reference", fingerprint="onnx")


def packaged(path: Path, parsed: Parse, threads: int) -> Path:
    model = partition(parsed("g (float[2,3] x) => (float[2,3] y) { y = Neg(x) }"), target=REFERENCE)
    artifacts = {site.name: next(ReferencePlugin().collage_lower(site.kernel_function())) for site in call_sites(model)}
    targets = dict.fromkeys(artifacts, REFERENCE)
    save_package(path, model, artifacts, targets, None, threads=threads, model_name="m", model_sha256="")
    return path


def test_fewer_threads_than_it_was_measured_with_are_told(parsed: Parse, tmp_path: Path) -> None:
    package = packaged(tmp_path / "m.collage", parsed, threads=4096)
    told: list[str] = []

    load(package, tell=told.append)
    load(package, threads=2, tell=told.append)

    assert told == [f"it was measured with 4096 threads and runs with {usable_cpus()}, one for each CPU"]
    with pytest.warns(FewerThreadsWarning, match=r"m\.collage: it was measured with 4096 threads"):
        load(package)


def test_nothing_is_told_of_as_many_threads_as_there_were(parsed: Parse, tmp_path: Path) -> None:
    told: list[str] = []

    load(packaged(tmp_path / "m.collage", parsed, threads=1), tell=told.append)

    assert told == []
