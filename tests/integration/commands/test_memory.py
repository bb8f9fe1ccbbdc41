"""The driver holds a model's weights a few times over at most; measuring is the workers' business."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import onnx_ir
import pytest

from benchmarks.models import MODELS as SUITE
from collage_core.ir.io.model_io import load_model
from tests.integration.commands.conftest import BOTH, TINY

pytestmark = [pytest.mark.plugins, pytest.mark.slow]

DRIVER = """
import json, resource, sys
from collage.commands.optimize import optimize
from collage.measure.driver.capture import Capture
from collage.options import OptimizeOptions

captured = []
take = Capture.take.__func__

def noted(*arguments, **keywords):
    capture = take(*arguments, **keywords)
    captured.append(capture.nbytes())
    return capture

Capture.take = classmethod(noted)
model, options = sys.argv[1], json.loads(sys.argv[2])
optimize(model, OptimizeOptions(**options)).save(sys.argv[3])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"peak": peak, "captured": sum(captured)}))
"""


def test_the_driver_of_resnet50_stays_within_bounds(tmp_path: Path) -> None:
    model = tmp_path / "resnet50.onnx"
    model.write_bytes(SUITE["resnet50"].build().SerializeToString())
    weights = _initializer_bytes(load_model(model))
    options = {**TINY, "toolchains": BOTH, "tuning_db": str(tmp_path / "tuning.sqlite")}

    ran = subprocess.run(
        [sys.executable, "-P", "-c", DRIVER, str(model), json.dumps(options), str(tmp_path / "out.collage")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    facts = json.loads(ran.stdout.splitlines()[-1])
    allowed = 4 * weights + facts["captured"] + 512 * 1024**2
    print(
        f"peak {facts['peak'] / 1e6:.0f} MB, allowed {allowed / 1e6:.0f} MB, captured {facts['captured'] / 1e6:.0f} MB"
    )
    assert facts["captured"] > 0
    assert facts["peak"] <= allowed


def _initializer_bytes(model: onnx_ir.Model) -> int:
    return sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value is not None)
