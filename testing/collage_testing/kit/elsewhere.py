"""Runs an artifact of which only bytes are known: `python -m collage_testing.kit.elsewhere FOLDER`.

`HostKernels.check_elsewhere` writes the folder: `about.json`, the artifact's files, and NPZ files of its constants and
inputs. This adds `found.npz`, the outputs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir

from collage.devices.this_host import this_host
from collage_core.contract import Artifact, Buffer, RunContext, Target, TensorSpec
from collage_core.entry_points import referred


def places(shapes: Mapping[str, Sequence[int]]) -> list[Buffer]:
    """Make float tensors by name."""
    float32 = onnx_ir.DataType.FLOAT
    return [Buffer(TensorSpec(name=name, dtype=float32, shape=tuple(shape))) for name, shape in shapes.items()]


def main(folder: Path) -> None:
    """Load the artifact, run it once, write what it gives."""
    about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    with np.load(folder / "constants.npz") as arrays:
        context = RunContext(threads=1, host=this_host(), constants=dict(arrays))
    artifact = Artifact(
        files={file.name: file.read_bytes() for file in (folder / "files").iterdir()},
        metadata=about["metadata"],
        constants=about["constants"],
    )
    plugin = referred(about["plugin"], "elsewhere")
    kernel = plugin.collage_load(Target(toolchain="elsewhere", fingerprint="test"), artifact, context)
    inputs, outputs = places(about["inputs"]), places(about["outputs"])
    with np.load(folder / "feeds.npz") as feeds:
        for buffer in inputs:
            buffer.put(feeds[buffer.spec.name])
    kernel.bind(inputs, outputs, None)()
    found: dict[str, Any] = {buffer.spec.name: buffer.array for buffer in outputs}
    np.savez(folder / "found.npz", **found)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
