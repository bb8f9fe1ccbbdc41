"""A package runs where toolchains of its plan are missing: other toolchains run their kernels, and that is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collage.commands.optimize import optimize
from collage.options import OptimizeOptions
from collage.runtime.package import load_package
from tests.integration.commands.conftest import BOTH, TINY, check
from tests.integration.commands.environments import Environment
from tests.integration.commands.models import Arrays, inputs, reference, written

pytestmark = pytest.mark.plugins

OPENVINO = ("collage-openvino", "openvino")
ONNXRUNTIME = ("collage-onnxruntime", "onnxruntime")
OTHERS = ("collage-halide", "halide", "collage-sampler")

RUN = """
import json, sys, warnings
import numpy as np
import collage
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    session = collage.load(sys.argv[1], verify=json.loads(sys.argv[4]))
report = session.report()
np.savez(sys.argv[3], *session.run(None, dict(np.load(sys.argv[2]))))
print(json.dumps({
    "said": [[type(each.message).__name__, str(each.message)] for each in said],
    "runs": {each.site: each.target for each in report.kernels},
    "packaged": {each.site: each.packaged for each in report.kernels},
    "substitutes": [each.site for each in report.substitutes],
    "verified": report.verified,
    "text": str(report),
}))
"""

REFUSE = """
import sys
import collage
try:
    collage.load(sys.argv[1], strict=True)
except collage.CollageError as error:
    print(type(error).__name__, error)
"""

Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package over both toolchains, beside its model and inputs."""
    folder = tmp_path_factory.mktemp("both")
    model = written("cnn", folder)
    pins = ("conv_*=openvino", "gemm_0=onnxruntime")
    optimize(model, OptimizeOptions(toolchains=BOTH, pins=pins, tuning_db="memory:", **TINY)).save(
        folder / "cnn.collage"
    )
    np.savez(folder / "in.npz", **inputs(model))  # type: ignore[arg-type]
    targets = load_package(folder / "cnn.collage").plan.targets.values()
    assert {each.toolchain for each in targets} == set(BOTH.split(","))
    return folder / "cnn.collage"


@pytest.fixture
def ran(package: Path, tmp_path: Path) -> Run:
    """Loads and runs the package in an environment, checks its outputs, and returns what was said."""

    def run(environment: Environment, *, verify: bool = False) -> dict[str, Any]:
        out = tmp_path / "out.npz"
        done = environment.run(RUN, package, package.with_name("in.npz"), out, json.dumps(verify))
        assert done.returncode == 0, done.stderr
        with np.load(package.with_name("in.npz")) as given:
            feeds: Arrays = dict(given)
        [right] = reference(package.with_name("cnn.onnx"), feeds).values()
        with np.load(out) as made:
            check({"y": made["arr_0"]}, {"y": right})
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    return run


def test_where_all_is_installed_nothing_is_said(ran: Run, tmp_path: Path) -> None:
    found = ran(Environment(tmp_path / "env", ()))

    assert found["said"] == []
    assert found["substitutes"] == []
    assert found["runs"] == found["packaged"]
    assert found["text"].endswith("0 of them not as packaged")


@pytest.mark.guards(
    "a toolchain of a package is not installed",
    "an installed one runs its kernels, ONNX's evaluator as the last resort; one warning says which, what they cost "
    "and how to get the packaged ones back, and `session.report()` has them; `strict=True` refuses",
    area="packages and files",
)
@pytest.mark.parametrize(
    ("gone", "stays", "bring_back"),
    [
        (OPENVINO, "onnxruntime", "pip install collage-openvino openvino=="),
        (ONNXRUNTIME, "openvino", "pip install collage-onnxruntime onnxruntime=="),
    ],
)
def test_without_one_of_its_toolchains_the_other_runs_all(
    gone: tuple[str, str], stays: str, bring_back: str, ran: Run, package: Path, tmp_path: Path
) -> None:
    environment = Environment(tmp_path / "env", gone)

    found = ran(environment)

    [[kind, message]] = found["said"]
    lost = [site for site, target in found["packaged"].items() if target == gone[1]]
    assert kind == "SubstituteWarning"
    assert found["substitutes"] == lost
    assert set(found["runs"].values()) == {stays}
    assert f"{', '.join(lost)} of {gone[1]} {'was' if len(lost) == 1 else 'were'} not loaded" in message
    assert f"{stays} runs {'it' if len(lost) == 1 else 'them'} instead, neither measured nor verified here" in message
    assert "ms where the package was made" in message
    assert bring_back in message
    assert found["text"].count(f"on {stays} in its place, not verified") == len(lost)
    refused = environment.run(REFUSE, package).stdout
    assert "KernelLoadError" in refused
    assert "no installed distribution brings it" in refused


@pytest.mark.slow
def test_without_any_of_its_toolchains_the_reference_runs_all(ran: Run, package: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "env", (*OPENVINO, *ONNXRUNTIME, *OTHERS))

    found = ran(environment, verify=True)

    [[kind, message]] = found["said"]
    assert kind == "SubstituteWarning"
    assert set(found["runs"].values()) == {"reference"}
    assert found["substitutes"] == list(found["packaged"])
    assert "reference runs" in message
    assert "instead, not measured here" in message
    assert "collage-openvino" in message
    assert "collage-onnxruntime" in message
    assert found["verified"]
    assert "KernelLoadError" in environment.run(REFUSE, package).stdout
