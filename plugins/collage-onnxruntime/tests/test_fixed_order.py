"""The same function is lowered to the same bytes, wherever the optimiser's objects lie in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir
import onnxruntime
import pytest

from collage_onnxruntime.fixed_order import fix_order
from collage_onnxruntime.kernel import MODEL
from collage_testing.kit.host_kernels import HostKernels
from collage_testing.kit.written import WrittenFunction, written

SHAPE = "float[1,16,5,5]"


def convolutions(reads: list[str], end: str, outputs: str) -> WrittenFunction:
    """Convolutions v0, v1, ... of what each reads, and what reads these."""
    rows = [f"v{number} = Conv<pads=[1,1,1,1]>({read}, w{number})" for number, read in enumerate(reads)]
    random = np.random.default_rng(3)
    weights = {f"w{n}": (random.standard_normal((16, 16, 3, 3)) / 12).astype(np.float32) for n in range(len(reads))}
    return written(f"g ({SHAPE} x) => ({outputs}) {{ {' '.join(rows)} {end} }}", weights)


def random_function(seed: int) -> WrittenFunction:
    """Convolutions of the input or each other, and operators without a blocked kernel that read any two values."""
    random = np.random.default_rng(seed)
    reads = [str(random.choice(["x", *(f"v{number}" for number in range(place))])) for place in range(6)]
    values, read, rows = [f"v{number}" for number in range(6)], set(reads), []
    for number in range(6):
        one, other = random.choice(values, 2)
        rows.append(f"p{number} = PRelu({one}, {other})")
        read |= {str(one), str(other)}
        values.append(f"p{number}")
    outputs = ", ".join(f"{SHAPE} {value}" for value in values if value not in read or random.random() < 0.2)
    return convolutions(reads, " ".join(rows), outputs)


SUBJECTS = {
    "outputs": convolutions(["x", "v0", "v1"], "", f"{SHAPE} v0, {SHAPE} v1, {SHAPE} v2"),
    "branches": convolutions(["x", "v0", "v1", "x", "v3"], "y = PRelu(v2, v4)", f"{SHAPE} y"),
    **{f"random {seed}": random_function(seed) for seed in range(8)},
}


@pytest.mark.parametrize("subject", SUBJECTS.values(), ids=SUBJECTS)
def test_a_function_is_always_lowered_to_the_same_bytes(kernels: HostKernels, subject: WrittenFunction) -> None:
    first, *others = [kernels.lowered(subject)[0] for _ in range(8)]

    for other in others:
        assert (other.files, other.metadata, other.constants) == (first.files, first.metadata, first.constants)


@pytest.mark.parametrize("subject", SUBJECTS.values(), ids=SUBJECTS)
def test_what_was_sorted_computes_the_same(kernels: HostKernels, subject: WrittenFunction) -> None:
    x = np.random.default_rng(4).standard_normal((1, 16, 5, 5)).astype(np.float32)

    kernels.check(subject, {"x": x})


def blocked(order: str) -> onnx_ir.Model:
    """Two branches as the optimiser saves them, in the order of its pointers, and a node that nothing depends on."""
    nodes = {
        "a": f"a = com.microsoft.nchwc.Conv(x, w) {order[0]} = com.microsoft.nchwc.ReorderOutput<channels=16>(a)",
        "b": f"b = com.microsoft.nchwc.Conv(x, w) {order[1]} = com.microsoft.nchwc.ReorderOutput<channels=16>(b)",
    }
    text = f"g ({SHAPE} x, float[16,16,1,1] w) => ({SHAPE} y) {{ u = Neg(x) {nodes['a']} {nodes['b']} y = Mul(p, q) }}"
    return onnx_ir.from_onnx_text(f'<ir_version: 10, opset_import: ["": 21, "com.microsoft.nchwc": 1]> {text}')


@pytest.mark.parametrize("order", ["pq", "qp"])
def test_what_is_written_decides_which_branch_is_first(order: str) -> None:
    model = blocked(order)

    assert fix_order(model)

    names = [str(node.outputs[0].name) for node in model.graph]
    assert names == ["a" if order == "pq" else "b", "p", "b" if order == "pq" else "a", "q", "y", "u"]
    assert {node.name for node in model.graph if node.op_type == "ReorderOutput"} == {
        "ReorderOutput_p",
        "ReorderOutput_q",
    }


def test_the_order_is_one_that_the_optimiser_itself_writes(kernels: HostKernels, tmp_path: Path) -> None:
    subject = SUBJECTS["branches"]
    own, ours = tmp_path / "own.onnx", tmp_path / "ours.onnx"
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(own)
    found = set()
    for _ in range(8):
        onnxruntime.InferenceSession(onnx_ir.to_proto(subject.function.model).SerializeToString(), options)
        found.add(written_in(own))

    ours.write_bytes(kernels.lowered(subject)[0].files[MODEL])

    assert written_in(ours) in found


def written_in(path: Path) -> tuple[str | None, ...]:
    """What the nodes of a model write, in their order."""
    return tuple(node.outputs[0].name for node in onnx_ir.load(path).graph)
