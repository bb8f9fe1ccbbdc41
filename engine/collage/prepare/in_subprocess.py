"""Prepare a model in a subprocess first, so that a crash does not end the user's process.

ONNX's inference and version converter are C++. They have been seen to abort on models that its checker accepts: in onnx
1.23 a Split whose number of outputs differs from its `num_outputs` fails an assertion of the standard library.

Usage: python -m collage.prepare.in_subprocess MODEL INPUT_SHAPES SECONDS   (a file, JSON, seconds until it exits)
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from collage.own_process import own_command
from collage.prepare.steps import prepare
from collage.prepare.validity import large_weights, serialized_without
from collage.temporary_folders import TemporaryFolder
from collage_core.errors import DeadlineExceededError, InvalidModelError
from collage_core.ir.io.model_io import load_model

_DEADLINE_S = 60.0
_PER_NODE_S = 0.05
"""Seconds allowed per node: ten times the preparation time of a node in a large export."""
_GRACE_S = 5
_TAIL_BYTES = 4000


def prepare_in_subprocess(
    model: ir.Model, input_shapes: Mapping[str, Sequence[int]], *, deadline_s: float | None = None
) -> None:
    """Check in a subprocess that preparing a model terminates and does not crash.

    The result of the preparation is not reported: the caller prepares the model again and gets any error then.
    Large weights are left out; nothing reads them before a model runs.

    Args:
        model: The model as given, not prepared.
        input_shapes: As for `prepare`.
        deadline_s: Time limit in seconds; if None, a minute, and more for large models.

    Raises:
        InvalidModelError: If the subprocess died.
        DeadlineExceededError: If it did not finish in time.
    """
    if deadline_s is None:
        deadline_s = _DEADLINE_S + _PER_NODE_S * sum(1 for _ in model.graph)
    with TemporaryFolder() as folder:
        path = folder / "model.onnx"
        try:
            path.write_bytes(serialized_without(model, large_weights(model)).SerializeToString())
        except Exception:  # it gets no further in this process either, and is told there
            return
        shapes = json.dumps({name: list(shape) for name, shape in input_shapes.items()})
        command = own_command(__name__, str(path), shapes, str(math.ceil(deadline_s) + _GRACE_S))
        with open(folder / "said", "w+b") as log:
            try:
                done = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    timeout=deadline_s,
                    check=False,
                    start_new_session=True,  # a terminal's interrupt is for this process
                )
            except subprocess.TimeoutExpired as error:
                raise DeadlineExceededError("preparing the model", deadline_s) from error
            log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
            words = log.read().decode(errors="replace")
    if done.returncode < 0:
        said = [line.strip() for line in words.splitlines() if line.strip()]
        how = signal.Signals(-done.returncode).name
        raise InvalidModelError(f"ONNX's own code ends with {how} on it" + (f": {said[-1]}" if said else ""))


def main() -> None:
    """Prepare the model in this process; only how the process ends is significant."""
    if hasattr(signal, "alarm"):
        signal.alarm(int(sys.argv[3]))  # whoever waits for it may be killed; nothing of Python's is needed to end it
    with contextlib.suppress(Exception):
        prepare(load_model(sys.argv[1]), input_shapes=json.loads(sys.argv[2]))


if __name__ == "__main__":
    main()
