"""Runs a saved kernel in a process in which Triton cannot be imported.

    python -m plugins.collage-triton.tests.run_saved FOLDER real|emulated

Reads what `saving.save` wrote and `inputs.npz`, arrays in their order; writes `found.npz`, likewise.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import sys
from pathlib import Path
from typing import Any

import numpy as np

from collage.devices.providers import Providers
from collage.devices.this_host import this_host


class NoTriton(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] == "triton":
            raise ImportError("a saved kernel needs no Triton to run, and here it was imported")


def main(folder: Path, where: str) -> None:
    from collage_core.registry import Toolchain
    from collage_testing.kit import DeviceMachine
    from collage_triton.interpreter import Interpreter
    from collage_triton.plugin import TritonPlugin, targets

    from .emulation import emulated_machine
    from .saving import saved

    function, artifact = saved(folder)
    with contextlib.ExitStack() as stack, np.load(folder / "inputs.npz") as inputs:
        if where == "emulated":  # an interpreter has Triton in a process of its own
            machine = emulated_machine(stack.enter_context(Interpreter()))
        else:
            machine = DeviceMachine(
                toolchain=Toolchain("triton", TritonPlugin()),
                host=this_host(),
                stream=Providers.discover().open("cuda:0"),
                providers=Providers.discover(),
                is_real=True,
            )
        target = targets("", machine.host.devices)[0]  # not asked for, since that looks whether Triton is there
        feeds = {spec.name: array for spec, array in zip(function.inputs, inputs.values(), strict=True)}
        found = machine.bound(function, target, artifact, feeds).run()
    np.savez(folder / "found.npz", *found)
    assert "triton" not in sys.modules


if __name__ == "__main__":
    sys.meta_path.insert(0, NoTriton())
    main(Path(sys.argv[1]), sys.argv[2])
