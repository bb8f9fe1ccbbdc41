"""Signed 8-bit weights that several products read, where ONNX Runtime has to make them unsigned."""

from __future__ import annotations

import numpy as np
import onnx_ir
import pytest

from collage_onnxruntime import lower
from collage_onnxruntime.own_integers import with_own_integers
from collage_testing.kit.host_kernels import HostKernels
from collage_testing.kit.operator_cases import normal
from collage_testing.kit.written import WrittenFunction, written

RNG = np.random.default_rng(0)


def two_products(weights: str, left: str, right: str) -> WrittenFunction:
    """Two products in 8 bits of one activation, whose sums need more than 16 bits."""
    used = [name for name in ("w", "v") if f"({name}," in weights]
    return written(
        "g (float[4,64] x) => (float[4,64] y) { a = QuantizeLinear(x, t, o) b = DequantizeLinear(a, t, o) "
        f"{weights} p = MatMul(b, {left}) r = MatMul(b, {right}) "
        "q = QuantizeLinear(p, u, o) c = DequantizeLinear(q, u, o) "
        "k = QuantizeLinear(r, u, o) e = DequantizeLinear(k, u, o) y = Sub(c, e) }",
        {
            **{name: RNG.choice([-127, 127], (64, 64)).astype(np.int8) for name in used},
            "s": np.array(0.01, np.float32),
            "z": np.array(0, np.int8),
            "t": np.array(0.01, np.float32),
            "u": np.array(0.5, np.float32),
            "o": np.array(128, np.uint8),
        },
    )


SHARED = {
    "zero point": two_products("l = DequantizeLinear(w, s, z) m = DequantizeLinear(v, s, z)", "l", "m"),
    "weight": two_products("l = DequantizeLinear(w, s, z) m = DequantizeLinear(w, s, z)", "l", "m"),
    "dequantised weight": two_products("l = DequantizeLinear(w, s, z)", "l", "l"),
}


@pytest.mark.parametrize("what", SHARED)
def test_products_that_share_a_weight_do_not_saturate(
    what: str, kernels: HostKernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lower, "multiplies_int8", lambda host: False)
    subject, feeds = SHARED[what], {"x": normal(4, 64)}

    [y] = kernels.run(subject, kernels.lowered(subject)[0], feeds)

    # a quotient may be rounded to the neighbouring integer, in each of two products
    np.testing.assert_allclose(y, subject.expected(feeds)[0], atol=1.01)
    assert np.mean(y != subject.expected(feeds)[0]) < 0.05


@pytest.mark.parametrize("what", SHARED)
def test_each_has_one_reader_afterwards(what: str) -> None:
    model = SHARED[what].function.model
    before = onnx_ir.to_proto(model).SerializeToString()

    changed = with_own_integers(model)

    assert onnx_ir.to_proto(model).SerializeToString() == before
    integers = [each for each in changed.graph.initializers.values() if each.dtype == onnx_ir.DataType.INT8]
    assert len(integers) == 4
    assert [len(each.uses()) for each in integers] == [1] * 4
    assert with_own_integers(changed) is changed
