"""Run an artifact in another process, which has its bytes, its constants and nothing else.

`run_elsewhere` writes a folder: `about.json`, the artifact's files, and NPZ files of constants and inputs. The process
`python -m collage_testing.kit.elsewhere FOLDER` adds `found.npz`, the outputs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir

from collage.devices.this_host import this_host
from collage.measure.worker.guarded_memory import aligned_buffer
from collage_core.contract import (
    Artifact,
    Buffer,
    RunContext,
    Target,
    TensorSpec,
    Unsupported,
    ValueKind,
    workspace_of,
)
from collage_core.registry import load_plugin

Arrays = Mapping[str, np.ndarray[Any, Any]]


def can_run_elsewhere(specs: Sequence[TensorSpec], constants: Arrays) -> bool:
    """Return whether all values are of static shape and of types that NPZ files hold."""
    planned = all(spec.kind is ValueKind.PLANNED for spec in specs)
    dtypes = [array.dtype for array in constants.values()] + [spec.numpy_dtype for spec in specs] if planned else []
    return planned and all(dtype.isbuiltin == 1 and dtype.kind in "biufc" for dtype in dtypes)


def run_elsewhere(
    artifact: Artifact,
    inputs: Iterable[TensorSpec],
    outputs: Iterable[TensorSpec],
    feeds: Arrays,
    constants: Arrays,
    *,
    plugin: str,
    target: Target,
    folder: Path,
) -> dict[str, np.ndarray[Any, Any]]:
    """Load an artifact in a process of its own and run it once, on one thread.

    Args:
        artifact: The artifact.
        inputs: Inputs of the function it was made from.
        outputs: Outputs of that.
        feeds: Values of the inputs, by name.
        constants: Constants that the artifact asks for, by what it calls them.
        plugin: The plugin there, as `module:attribute`.
        target: The target it was built for.
        folder: Parent of a directory for the files.

    Returns:
        The outputs, by name.

    Raises:
        AssertionError: If it fails; with what was printed there.
    """
    with tempfile.TemporaryDirectory(dir=folder) as name:
        here = Path(name)
        about = {
            "plugin": plugin,
            "target": {"toolchain": target.toolchain, "options": target.options, "fingerprint": target.fingerprint},
            "metadata": artifact.metadata,
            "constants": artifact.constants,
            "workspace_bytes": artifact.workspace_bytes,
            "inputs": list(map(_described, inputs)),
            "outputs": list(map(_described, outputs)),
        }
        (here / "about.json").write_text(json.dumps(about), encoding="utf-8")
        (here / "files").mkdir()
        for file, data in artifact.files.items():
            (here / "files" / file).write_bytes(data)
        np.savez(here / "feeds.npz", **dict(feeds))  # type: ignore[arg-type]
        np.savez(here / "constants.npz", **dict(constants))  # type: ignore[arg-type]
        python("-m", __name__, str(here))
        with np.load(here / "found.npz") as found:
            return dict(found)


def python(*arguments: str) -> str:
    """Run Python in another process that finds what this one finds, and return what it printed.

    Raises:
        AssertionError: If it fails; with what it printed.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _described(spec: TensorSpec) -> list[Any]:
    assert spec.dtype is not None, "it has a static shape"
    return [spec.name, spec.dtype.name, list(spec.static_shape)]


def _places(described: Iterable[tuple[str, str, list[int]]]) -> list[Buffer]:
    return [
        Buffer(TensorSpec(name=name, dtype=onnx_ir.DataType[dtype], shape=tuple(shape)))
        for name, dtype, shape in described
    ]


def main(folder: Path) -> None:
    """Load the artifact, run it once, write what it gives."""
    about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    artifact = Artifact(
        files={file.name: file.read_bytes() for file in (folder / "files").iterdir()},
        metadata=about["metadata"],
        constants=about["constants"],
        workspace_bytes=about["workspace_bytes"],
    )
    given = about["target"]
    target = Target(
        toolchain=given["toolchain"],
        options=tuple((name, value) for name, value in given["options"]),
        fingerprint=given["fingerprint"],
    )
    with np.load(folder / "constants.npz") as arrays, tempfile.TemporaryDirectory() as scratch:
        context = RunContext(threads=1, host=this_host(), constants=dict(arrays), scratch=Path(scratch))
        kernel = load_plugin(about["plugin"], target.toolchain).load(target, artifact, context)
        if isinstance(kernel, Unsupported):
            sys.exit(f"collage_load refuses it: {kernel.reason}")
        inputs, outputs = _places(about["inputs"]), _places(about["outputs"])
        with np.load(folder / "feeds.npz") as feeds:
            for buffer in inputs:
                buffer.put(feeds[buffer.spec.name])
        size = workspace_of(artifact, kernel)
        spec = TensorSpec(name="workspace", dtype=onnx_ir.DataType.UINT8, shape=(size,))
        kernel.bind(inputs, outputs, aligned_buffer(spec) if size else None)()
        found: dict[str, Any] = {buffer.spec.name: buffer.array for buffer in outputs}
        np.savez(folder / "found.npz", **found)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
