"""Element types: small floats, double, integers and booleans in, inside and out, in bodies and through sequences."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tests.integration.input.odd_models import OddModel, floats, made, odd, relu

WEIGHT = floats(4, 4, seed=7)
_BYTES = np.arange(12, dtype=np.uint8).reshape(3, 4)


@odd
def half_precision() -> OddModel:
    """float16 all the way, and float32 between."""
    weight = WEIGHT.astype(np.float16)

    def oracle(x: Any) -> dict[str, Any]:
        h = relu(x.astype(np.float32) @ weight.astype(np.float32)).astype(np.float16)
        return {"y": np.tanh(h.astype(np.float32)).astype(np.float16), "wide": np.exp(-h.astype(np.float32))}

    return made(
        "half_precision",
        """half (float16[2,4] x) => (float16[2,4] y, float[2,4] wide) {
          m = MatMul(x, w)
          h = Relu(m)
          y = Tanh(h)
          c = Cast<to = 1>(h)
          n = Neg(c)
          wide = Exp(n)
        }""",
        oracle,
        {"x": floats(2, 4, dtype=np.float16)},
        w=weight,
    )


@odd
def brain_float() -> OddModel:
    """bfloat16, which NumPy has not and NPZ files cannot hold, in and out, beside float32."""

    def oracle(x: Any, b: Any) -> dict[str, Any]:
        wide = b.astype(np.float32)
        return {"sum": relu(wide + wide).astype(ml_dtypes.bfloat16), "y": np.tanh(x @ WEIGHT) + wide}

    return made(
        "brain_float",
        """brain (float[2,4] x, bfloat16[2,4] b) => (bfloat16[2,4] sum, float[2,4] y) {
          d = Add(b, b)
          sum = Relu(d)
          m = MatMul(x, w)
          t = Tanh(m)
          c = Cast<to = 1>(b)
          y = Add(t, c)
        }""",
        oracle,
        {"x": floats(2, 4), "b": floats(2, 4, seed=1).astype(ml_dtypes.bfloat16)},
        w=WEIGHT,
    )


@odd
def double_precision() -> OddModel:
    """float64, where float32 would be seen."""

    def oracle(x: Any) -> dict[str, Any]:
        return {"y": (x @ WEIGHT.astype(np.float64)) - 1e6, "narrow": np.tanh(relu(x)).astype(np.float32)}

    return made(
        "double_precision",
        """double_g (double[2,4] x) => (double[2,4] y, float[2,4] narrow) {
          m = MatMul(x, w)
          million = Constant<value = double {1000000.0}>()
          y = Sub(m, million)
          r = Relu(x)
          t = Tanh(r)
          narrow = Cast<to = 1>(t)
        }""",
        oracle,
        {"x": floats(2, 4, dtype=np.float64)},
        w=WEIGHT.astype(np.float64),
    )


@odd
def integers() -> OddModel:
    """Bytes that wrap around, wide integers that no float holds, and floats from them."""

    def oracle(u: Any, s: Any, n: Any, x: Any) -> dict[str, Any]:
        scaled = relu(x) * u.astype(np.float32)
        return {
            "wrapped": (u + np.uint8(250)).astype(np.uint8),
            "signs": np.minimum(s, np.int8(3)),
            "large": n * 3 + (1 << 53),
            "y": np.tanh(scaled @ WEIGHT),
            "even": (n % 2) == 0,
        }

    return made(
        "integers",
        """integers (uint8[3,4] u, int8[3,4] s, int64[3] n, float[3,4] x) => (uint8[3,4] wrapped, int8[3,4] signs,
          int64[3] large, float[3,4] y, bool[3] even)
        <uint8 most = {250}, int8 three = {3}, int64 thrice = {3}, int64 two = {2}, int64 nought = {0}> {
          wrapped = Add(u, most)
          signs = Min(s, three)
          t = Mul(n, thrice)
          large = Add(t, far)
          f = Cast<to = 1>(u)
          r = Relu(x)
          p = Mul(r, f)
          m = MatMul(p, w)
          y = Tanh(m)
          rest = Mod(n, two)
          even = Equal(rest, nought)
        }""",
        oracle,
        {"u": _BYTES, "s": (_BYTES.astype(np.int8) - 6), "n": np.array([1, -4, 1 << 40]), "x": floats(3, 4)},
        w=WEIGHT,
        far=np.array(1 << 53),
    )


@odd
def booleans() -> OddModel:
    """Masks in, inside and out."""

    def oracle(mask: Any, x: Any) -> dict[str, Any]:
        negative = x < 0
        both = mask & ~negative
        return {"both": both, "y": np.where(both, np.tanh(x), x @ WEIGHT), "count": np.array(both.sum())}

    return made(
        "booleans",
        """booleans (bool[2,4] mask, float[2,4] x) => (bool[2,4] both, float[2,4] y, int64 count) <float zero = {0}> {
          negative = Less(x, zero)
          not_negative = Not(negative)
          both = And(mask, not_negative)
          t = Tanh(x)
          m = MatMul(x, w)
          y = Where(both, t, m)
          c = Cast<to = 7>(both)
          count = ReduceSum<keepdims = 0>(c)
        }""",
        oracle,
        {"mask": np.array([[True, False, True, True], [False, True, True, False]]), "x": floats(2, 4)},
        w=WEIGHT,
    )
