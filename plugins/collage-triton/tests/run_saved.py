"""Runs a saved kernel in a process in which Triton cannot be imported.

    python run_saved.py FOLDER real|emulated

Reads what `device_testing.save` wrote and `inputs.npz`, `weights.npz`, `outputs.json`; writes `found.npz`.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np


class NoTriton(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] == "triton":
            raise ImportError("a saved kernel needs no Triton to run, and here it was imported")


def main(folder: Path, where: str) -> None:
    import onnx_ir

    from collage_core.contract import TensorSpec, Unsupported
    from collage_triton.device_testing import Machine, saved
    from collage_triton.interpreter import Interpreter

    with contextlib.ExitStack() as stack:
        # an interpreter has Triton in a process of its own
        machine = Machine.real() if where == "real" else Machine.emulated(stack.enter_context(Interpreter()))
        assert not isinstance(machine, Unsupported), machine.reason
        inputs, weights = np.load(folder / "inputs.npz"), np.load(folder / "weights.npz")
        outputs = [
            TensorSpec(name=name, dtype=onnx_ir.DataType[dtype], shape=tuple(shape))
            for name, dtype, shape in json.loads((folder / "outputs.json").read_text())
        ]
        arrays = [inputs[name] for name in sorted(inputs)]
        bound = machine.bound(saved(folder), arrays, outputs, weights)
        found = dict(zip((spec.name for spec in outputs), bound.run(), strict=True))
    np.savez(folder / "found.npz", **found)
    assert "triton" not in sys.modules


if __name__ == "__main__":
    sys.meta_path.insert(0, NoTriton())
    main(Path(sys.argv[1]), sys.argv[2])
