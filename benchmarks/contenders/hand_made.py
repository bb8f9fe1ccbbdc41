"""A plan made by hand: the model is cut at named tensors, and each part runs in its own toolchain.

It shows what a mixed plan can reach on a model before any search does. The option `plan` alternates
contenders and cuts, for example `onnxruntime-nospin>resize_1>openvino`; a cut through several
tensors joins their names with `|`. A part sees the model's inputs and the tensors of earlier cuts.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from benchmarks.judge.contender import built_in
from benchmarks.judge.worker import load_setup


def setup(model_path: str, inputs: dict[str, np.ndarray[Any, Any]], threads: int, *, plan: str) -> Callable[[], Any]:
    """Cut a model, set up each part, and chain them without copies.

    Args:
        model_path: ONNX file.
        inputs: Arrays by input name.
        threads: Passed on to each part.
        plan: See the module.

    Raises:
        ValueError: If an output of a part has no buffer to read from, its shape being unknown.
    """
    steps = plan.split(">")
    model = onnx.load(model_path)
    finals = [output.name for output in model.graph.output]
    cuts = [cut.split("|") for cut in steps[1::2]] + [finals]
    available = dict(inputs)
    calls: list[Callable[[], Any]] = []
    with tempfile.TemporaryDirectory(prefix="plan-") as folder:
        for number, (toolchain, made) in enumerate(zip(steps[::2], cuts, strict=True)):
            path = Path(folder, f"{number}.onnx")
            seen = _needed(model, made, set(available))
            onnx.utils.extract_model(model_path, path, sorted(seen), made, check_model=False)
            contender = built_in()[toolchain]
            part = load_setup(contender.file)(
                str(path),
                {name: available[name] for name in seen},
                threads,
                **contender.setup_options(),
            )
            part()

            buffers = part.buffers[1]  # type: ignore[attr-defined]
            for name in made:
                if name in finals:
                    continue
                if name not in buffers:
                    raise ValueError(f"part {number} ({toolchain}) has no fixed buffer for {name!r}")
                available[name] = buffers[name]
            calls.append(part)

    def run() -> None:
        for call in calls:
            call()

    run.outputs = calls[-1].outputs  # type: ignore[attr-defined]
    return run


def _needed(model: onnx.ModelProto, wanted: list[str], available: set[str]) -> set[str]:
    """Return the available tensors from which the wanted ones are computed."""
    makers = {output: node for node in model.graph.node for output in node.output}
    found: set[str] = set()
    stack, done = list(wanted), set()
    while stack:
        name = stack.pop()
        if name in done:
            continue
        done.add(name)
        if name in available:
            found.add(name)
        elif name in makers:
            stack.extend(makers[name].input)
    return found
