"""A kernel runs its nodes in the order in which a session of the same model does, by ONNX Runtime's own trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
import onnxruntime
import pytest

from collage_core.contract import Target
from collage_onnxruntime.kernel import OnnxRuntimeKernel, open_session
from collage_testing.kit.host_kernels import HostKernels
from collage_testing.kit.written import WrittenFunction, written

TWO_BRANCHES = (
    "g (float[1,8] x) => (float[1,8] y) "
    "{ a = Sin(x) a1 = Cos(a) a2 = Sin(a1) b1 = Exp(a) b2 = Cos(b1) b3 = Sin(b2) y = Add(a2, b3) }"
)
OPTIMISED = TWO_BRANCHES.replace("b1 = Exp(a)", "b0 = Identity(a) b1 = Exp(b0)")
BODY = (
    "g (float[1,8] x, bool c) => (float[1,8] y) { s = Sin(x) t = Cos(x) u = Exp(x) y = If(c) <"
    "then_branch = p () => (float[1,8] o) { o = Add(s, t) }, else_branch = q () => (float[1,8] o) { o = Mul(u, s) }> }"
)
OPTIMISED_BODY = BODY.replace("t = Cos(x)", "i = Identity(x) t = Cos(i)")


def trace_of(path: Path) -> list[str]:
    """Names of the nodes that ran in a trace, in order."""
    events: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    names = [event["name"] for event in events if event.get("cat") == "Node"]
    return [name.removesuffix("_kernel_time") for name in names if name.endswith("_kernel_time")]


def in_own_session(subject: WrittenFunction, feeds: dict[str, np.ndarray[Any, Any]], folder: Path) -> list[str]:
    """Return the nodes in the order in which a session of the model as it is runs them."""
    model = subject.function.model.clone()
    for node in model.graph:  # as the plugin names them
        node.name = node.outputs[0].name
    options = onnxruntime.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(folder / "own")
    session = onnxruntime.InferenceSession(onnx_ir.to_proto(model).SerializeToString(), options)
    session.run(None, feeds)
    return trace_of(Path(session.end_profiling()))


def in_kernel(
    kernels: HostKernels, subject: WrittenFunction, feeds: dict[str, np.ndarray[Any, Any]], folder: Path
) -> list[str]:
    """Return the nodes in the order in which the plugin's kernel runs them."""
    artifact = kernels.lowered(subject)[0]
    target = Target(toolchain="onnxruntime", fingerprint="test")
    kernel = open_session(target, artifact, kernels.run_context(subject), trace=folder / "kernel")
    assert isinstance(kernel, OnnxRuntimeKernel)
    kernel._session.run(None, feeds)
    return trace_of(kernel.end_trace())


def random_model(seed: int) -> str:
    """A graph whose nodes read one or two values before them, most of them recent; what nobody reads is an output."""
    random = np.random.default_rng(seed)
    values, ends, lines = ["x"], {"x"}, []
    for number in range(24):
        operator, arity = (("Sin", 1), ("Cos", 1), ("Identity", 1), ("Add", 2), ("Mul", 2))[random.integers(5)]
        steps_back = np.minimum(random.geometric(0.4, arity), len(values))
        read = [values[-int(steps)] for steps in steps_back]
        lines.append(f"v{number} = {operator}({', '.join(read)})")
        ends = ends - set(read) | {f"v{number}"}
        values.append(f"v{number}")
    outputs = ", ".join(f"float[1,8] {name}" for name in sorted(ends))
    return f"g (float[1,8] x) => ({outputs}) {{ {' '.join(lines)} }}"


@pytest.mark.parametrize("text", [TWO_BRANCHES, OPTIMISED, BODY, OPTIMISED_BODY, *map(random_model, range(8))])
def test_nodes_run_in_the_order_of_a_session_of_the_model(text: str, kernels: HostKernels, tmp_path: Path) -> None:
    subject = written(text)
    feeds: dict[str, Any] = {"x": np.linspace(-1, 1, 8, dtype=np.float32)[None], "c": np.array(True)}
    feeds = {spec.name: feeds[spec.name] for spec in subject.function.inputs}

    expected = in_own_session(subject, feeds, tmp_path)

    assert len(expected) > 3
    assert in_kernel(kernels, subject, feeds, tmp_path) == expected
