"""Products of which only the weights are in 8 bits, against ONNX's reference and in what becomes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from collage_onnxruntime.kernel import MODEL
from collage_testing.kit.host_kernels import HostKernels
from collage_testing.kit.operator_cases import normal
from collage_testing.kit.written import WrittenFunction, written

RNG = np.random.default_rng(0)


def integers(*shape: int, signed: bool = True) -> np.ndarray[Any, Any]:
    return RNG.integers(-128 if signed else 0, 128 if signed else 256, shape).astype(np.int8 if signed else np.uint8)


def scales(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.uniform(0.01, 0.1, shape).astype(np.float32)


def product(dequantise: str, constants: dict[str, np.ndarray[Any, Any]], opset: int = 21) -> WrittenFunction:
    text = f"g (float[3,64] x) => (float[3,32] y) {{ d = DequantizeLinear{dequantise} y = MatMul(x, d) }}"
    return written(text, constants, opset=opset)


def operators(kernels: HostKernels, subject: WrittenFunction) -> list[str]:
    """Return what ONNX Runtime made of a function."""
    [artifact, *_] = kernels.lowered(subject)
    return [node.op_type for node in onnx.load_from_string(artifact.files[MODEL]).graph.node]


CASES = {
    "one scale": product("(q, s)", {"q": integers(64, 32), "s": scales()}),
    "scales of columns": product("<axis=1>(q, s)", {"q": integers(64, 32), "s": scales(32)}),
    "scales of rows": product("<axis=-2>(q, s)", {"q": integers(64, 32), "s": scales(64)}),
    "zero points": product(
        "<axis=1>(q, s, z)",
        {"q": integers(64, 32, signed=False), "s": scales(32), "z": integers(32, signed=False)},
    ),
    "blocks": product("<axis=0, block_size=16>(q, s)", {"q": integers(64, 32), "s": scales(4, 32)}),
    "a convolution": written(
        "g (float[1,3,9,9] x) => (float[1,8,7,7] y) { d = DequantizeLinear<axis=0>(q, s) y = Conv(x, d) }",
        {"q": integers(8, 3, 3, 3), "s": scales(8)},
    ),
    "a Gemm": written(
        "g (float[3,64] x) => (float[3,32] y) { d = DequantizeLinear<axis=0>(q, s) y = Gemm<transB=1>(x, d) }",
        {"q": integers(32, 64), "s": scales(32)},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_weight_is_stored_as_the_numbers_it_stands_for(name: str, kernels: HostKernels) -> None:
    subject = CASES[name]
    [spec] = subject.function.inputs
    x = normal(*(extent or 1 for extent in spec.shape or ()))

    [y] = kernels.run(subject, kernels.lowered(subject)[0], {"x": x})

    # a sum of 64 products of about 5, each rounded
    np.testing.assert_allclose(y, subject.expected({"x": x})[0], rtol=1e-5, atol=1e-4)
    assert {"DequantizeLinear", "MatMulNBits", "DynamicQuantizeMatMul"}.isdisjoint(operators(kernels, subject))


def test_a_weight_of_two_products_is_stored_once(kernels: HostKernels) -> None:
    text = "g (float[3,32] x) => (float[3,32] y) { d = DequantizeLinear(q, s) a = MatMul(x, d) y = MatMul(a, d) }"
    subject = written(text, {"q": integers(32, 32), "s": scales()})

    [artifact] = kernels.lowered(subject)

    made: Any = artifact.metadata["made"]
    assert [item["shape"] for item in made] == [[32, 32]]


def test_products_in_8_bits_stay_what_they_are(kernels: HostKernels) -> None:
    text = (
        "g (float[3,64] x) => (float[3,32] y) { a = QuantizeLinear(x, t, o) b = DequantizeLinear(a, t, o) "
        "d = DequantizeLinear(q, s, z) p = MatMul(b, d) c = QuantizeLinear(p, u, o) y = DequantizeLinear(c, u, o) }"
    )
    constants = {"q": integers(64, 32), "s": scales(), "z": np.int8(0), "t": scales(), "u": scales(), "o": np.uint8(7)}
    subject = written(text, {name: np.asarray(value) for name, value in constants.items()})

    assert "QLinearMatMul" in operators(kernels, subject)


def test_a_weight_that_is_no_constant_stays(kernels: HostKernels) -> None:
    subject = written(
        "g (float[3,64] x, int8[64,32] q) => (float[3,32] y) { d = DequantizeLinear(q, s) y = MatMul(x, d) }",
        {"s": scales()},
    )
    feeds = {"x": normal(3, 64), "q": integers(64, 32)}

    [y] = kernels.run(subject, kernels.lowered(subject)[0], feeds)

    np.testing.assert_allclose(y, subject.expected(feeds)[0], rtol=1e-5, atol=1e-4)
