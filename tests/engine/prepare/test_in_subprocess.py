"""A model that ends the process that prepares it is told as one error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import onnx_ir as ir
import pytest

import collage
import collage_core
from collage.prepare.in_subprocess import prepare_in_subprocess
from collage.setup.workload import Workload
from collage_core.errors import DeadlineExceededError, InvalidModelError
from collage_testing import mnist


def split_into_more_than_it_says() -> ir.Model:
    return ir.from_onnx_text("""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[4, 6] x) => (float[4, 3] a, float[4, 3] b) { a, b, c = Split <axis = 1, num_outputs = 2> (x) }""")


def test_a_sound_model_passes() -> None:
    prepare_in_subprocess(mnist(), {})


def test_what_is_merely_wrong_passes_to_be_told_later() -> None:
    prepare_in_subprocess(
        ir.from_onnx_text("""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[2] x) => (float[2] y) { y = Cast(x) }"""),
        {},
    )


@pytest.mark.guards(
    "a model on which ONNX's own C++ ends the process, or never ends",
    "a subprocess that prepares the model first dies instead; one message",
    area="input",
)
def test_what_ends_the_process_is_an_error() -> None:
    with pytest.raises(InvalidModelError, match="ends with SIGABRT on it"):
        Workload(split_into_more_than_it_says())


@pytest.mark.guards("a model on which ONNX's own C++ ends the process, or never ends")
def test_what_takes_too_long_is_an_error() -> None:
    with pytest.raises(DeadlineExceededError, match="preparing the model"):
        prepare_in_subprocess(mnist(), {}, deadline_s=0.01)


@pytest.mark.guards(
    "the driver is killed while it prepares a model or verifies the winner",
    "neither process outlives it: the preparing subprocess ends itself, the verification is a contender",
    area="kills and databases",
)
def test_a_scout_ends_though_nobody_waits_for_it() -> None:
    endless = "import time; in_subprocess.load_model = lambda path: time.sleep(3600)"
    code = f"from collage.prepare import in_subprocess; {endless}; in_subprocess.main()"
    command = [sys.executable, "-P", "-c", code, "model.onnx", "{}", "1"]
    roots = [str(Path(package.__path__[0]).parent) for package in (collage, collage_core)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(roots)}

    done = subprocess.run(command, env=environment, check=False)

    assert done.returncode == -signal.SIGALRM


@pytest.mark.guards(
    "a library writes bytes that are not text before it ends the process that prepares the model",
    "they are shown as far as they are text",
    area="toolchains",
)
def test_words_that_are_no_text_are_shown_as_far_as_they_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nprintf 'broken \\377 library\\n' >&2\nkill -ABRT $$\n", encoding="ascii")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))

    with pytest.raises(InvalidModelError, match="SIGABRT on it: broken \N{REPLACEMENT CHARACTER} library"):
        prepare_in_subprocess(mnist(), {})
