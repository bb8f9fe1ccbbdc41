"""What `load` says of a package that runs otherwise than it was measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from collage.commands.load import load
from collage.devices.this_host import usable_cpus
from collage.errors import OtherThreadsWarning, VerificationError
from collage.reference.plugin import ReferencePlugin
from collage.runtime.package import save_package
from collage_core.contract import Target
from collage_core.errors import FeedError
from collage_core.passes.call_sites import call_sites
from tests.engine.runtime.mocks import partition

Parse = Callable[[str], ir.Model]
REFERENCE = Target(toolchain="reference", fingerprint="onnx")


def packaged(path: Path, parsed: Parse, threads: int, computes: str = "Neg") -> Path:
    """Save a package of a model of one Neg, with a kernel that computes this operator."""
    model, other = (
        partition(parsed(f"g (float[2,3] x) => (float[2,3] y) {{ y = {operator}(x) }}"), target=REFERENCE)
        for operator in ("Neg", computes)
    )
    artifacts = {site.name: next(ReferencePlugin().collage_lower(site.kernel_function())) for site in call_sites(other)}
    targets = dict.fromkeys(artifacts, REFERENCE)
    save_package(path, model, artifacts, targets, None, threads=threads, model_name="m", model_sha256="")
    return path


def test_other_threads_than_it_was_verified_with_are_told_with_what_to_do(parsed: Parse, tmp_path: Path) -> None:
    package = packaged(tmp_path / "m.collage", parsed, threads=4096)
    told: list[str] = []

    load(package, tell=told.append)
    load(package, threads=2, tell=told.append)

    advice = (
        "whether its numbers are right so is not known. Check them with `collage run --verify` or load(verify=True); "
        "optimize the model with as many threads for the best plan"
    )
    assert told == [
        f"it was measured and verified with 4096 threads and runs with {usable_cpus()}, one for each CPU: {advice}",
        f"it was measured and verified with 4096 threads and runs with 2: {advice}",
    ]
    with pytest.warns(OtherThreadsWarning, match=r"m\.collage: it was measured and verified with 4096 threads") as said:
        load(package, threads=3)
    assert len(said) == 1


def test_nothing_is_told_of_as_many_threads_as_there_were(parsed: Parse, tmp_path: Path) -> None:
    told: list[str] = []

    load(packaged(tmp_path / "m.collage", parsed, threads=1), tell=told.append)

    assert told == []


@pytest.mark.parametrize("values", [True, {"x": np.ones((2, 3), np.float32)}])
def test_nothing_is_told_once_its_numbers_were_verified(values: Any, parsed: Parse, tmp_path: Path) -> None:
    told: list[str] = []

    load(packaged(tmp_path / "m.collage", parsed, threads=1), threads=2, verify=values, tell=told.append)

    assert told == []


def test_values_to_verify_on_that_do_not_fit_are_refused(parsed: Parse, tmp_path: Path) -> None:
    with pytest.raises(FeedError, match="'x'"):
        load(packaged(tmp_path / "m.collage", parsed, threads=1), verify={"x": np.ones(7, np.float32)})


def test_a_package_of_another_models_kernel_is_not_verified(parsed: Parse, tmp_path: Path) -> None:
    package = packaged(tmp_path / "m.collage", parsed, threads=1, computes="Abs")

    load(package)
    with pytest.raises(VerificationError, match=r"m\.collage' with 1 thread is wrong: output 'y': 6 of 6 elements"):
        load(package, verify={"x": np.ones((2, 3), np.float32)})
