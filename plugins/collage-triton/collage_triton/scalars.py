"""Scalar functions as terms, from which element-wise operators and reductions are composed.

All floats are float32 here; the caller rounds the result to the operator's own type. Formulas are those of
the ONNX standard, in forms that do not overflow where the result is finite.
"""

from __future__ import annotations

import math

from collage_triton.errors import Refused
from collage_triton.terms import Term, Terms, value_of


class Scalars:
    """Arithmetic on terms.

    Args:
        terms: Creates them.
    """

    def __init__(self, terms: Terms) -> None:
        self.terms = terms

    def number(self, value: float, like: Term) -> Term:
        """Return a constant of another term's type."""
        return self.terms.const(value, like.dtype)

    def _both(self, op: str, a: Term, b: Term | float, dtype: str | None = None) -> Term:
        return self.terms.apply(op, a, b if isinstance(b, Term) else self.number(b, a), dtype=dtype)

    def add(self, a: Term, b: Term | float) -> Term:
        """Sum."""
        return self._both("add", a, b)

    def sub(self, a: Term, b: Term | float) -> Term:
        """Return the difference."""
        return self._both("sub", a, b)

    def mul(self, a: Term, b: Term | float) -> Term:
        """Return the product."""
        return self._both("mul", a, b)

    def div(self, a: Term, b: Term | float) -> Term:
        """Return the quotient; for integers rounded towards zero, as in ONNX."""
        return self._both("div" if a.dtype == "f32" else "floordiv", a, b)

    def less(self, a: Term, b: Term | float) -> Term:
        """Return whether a < b."""
        return self._both("lt", a, b, "i1")

    def more(self, a: Term, b: Term | float) -> Term:
        """Return whether a > b."""
        return self._both("gt", a, b, "i1")

    def equal(self, a: Term, b: Term | float) -> Term:
        """Return whether a == b."""
        return self._both("eq", a, b, "i1")

    def differ(self, a: Term, b: Term | float) -> Term:
        """Return whether a != b."""
        return self._both("ne", a, b, "i1")

    def both(self, a: Term, b: Term) -> Term:
        """Return whether both conditions hold."""
        return self.terms.apply("and", a, b)

    def where(self, condition: Term, a: Term | float, b: Term | float) -> Term:
        """Return `a` where the condition holds, else `b`."""
        like = a if isinstance(a, Term) else b
        assert isinstance(like, Term)
        first, second = (each if isinstance(each, Term) else self.number(each, like) for each in (a, b))
        return self.terms.apply("where", condition, first, second, dtype=like.dtype)

    def call(self, name: str, a: Term) -> Term:
        """Apply a function of Triton: exp, log, sqrt, erf, floor, ..."""
        return self.terms.apply(name, a)

    # What NumPy gives where a number is none: it stays one.

    def is_nan(self, a: Term) -> Term:
        """Return whether a value is NaN."""
        return self.differ(a, a)

    def largest(self, a: Term, b: Term) -> Term:
        """Return the maximum; NaN if either is NaN."""
        taken = self.more(a, b)
        return self.where(self.terms.apply("or", taken, self.is_nan(a)) if a.dtype == "f32" else taken, a, b)

    def smallest(self, a: Term, b: Term) -> Term:
        """Return the minimum; NaN if either is NaN."""
        taken = self.less(a, b)
        return self.where(self.terms.apply("or", taken, self.is_nan(a)) if a.dtype == "f32" else taken, a, b)

    def sigmoid(self, a: Term) -> Term:
        """Return 1 / (1 + exp(-a))."""
        return self.div(self.number(1.0, a), self.add(self.call("exp", self.call("neg", a)), 1.0))

    def tanh(self, a: Term) -> Term:
        """Compute tanh from exp(-2|a|), which does not overflow; near zero the error is 1e-7 absolute, not relative."""
        small = self.call("exp", self.mul(self.call("abs", a), -2.0))
        size = self.div(self.sub(self.number(1.0, a), small), self.add(small, 1.0))
        return self.where(self.less(a, 0.0), self.call("neg", size), size)

    def softplus(self, a: Term) -> Term:
        """Compute log(1 + exp(a)) for numbers of any magnitude."""
        rest = self.call("log", self.add(self.call("exp", self.call("neg", self.call("abs", a))), 1.0))
        return self.add(self.largest(a, self.number(0.0, a)), rest)

    def clip(self, a: Term, low: float, high: float) -> Term:
        """Clamp between two numbers."""
        return self.smallest(self.largest(a, self.number(low, a)), self.number(high, a))

    def rounded(self, a: Term) -> Term:
        """Round to the nearest integer, ties to even, as adding and subtracting 2**23 does."""
        large = self.where(self.less(a, 0.0), -(2.0**23), self.number(2.0**23, a))
        whole = self.sub(self.add(a, large), large)
        return self.where(self.less(self.call("abs", a), 2.0**23), whole, a)

    def power(self, a: Term, b: Term) -> Term:
        """Raise `a` to the power `b`, for two floats, or an integer and a constant."""
        if b.op == "const":
            exponent = float(value_of(b))
            if exponent in (0.5, -0.5) and a.dtype == "f32":
                root = self.call("sqrt", a)
                return root if exponent > 0 else self.div(self.number(1.0, a), root)
            if exponent.is_integer() and abs(exponent) <= 8 and (exponent >= 0 or a.dtype == "f32"):
                product = self._multiplied(a, int(abs(exponent)))
                return product if exponent >= 0 else self.div(self.number(1.0, a), product)
        if a.dtype != "f32" or b.dtype != "f32":
            raise Refused("Pow of integers by something else than a constant from 0 to 8")
        size = self.call("exp2", self.mul(b, self.call("log2", self.call("abs", a))))
        half = self.mul(b, 0.5)
        odd = self.differ(self.call("floor", half), half)
        whole = self.equal(self.call("floor", b), b)
        signed = self.where(odd, self.call("neg", size), size)
        below = self.where(whole, signed, math.nan)
        return self.where(self.equal(b, 0.0), 1.0, self.where(self.less(a, 0.0), below, size))

    def _multiplied(self, a: Term, times: int) -> Term:
        if times == 0:
            return self.number(1, a)
        half = self._multiplied(a, times // 2) if times > 1 else None
        if half is None:
            return a
        squared = self.mul(half, half)
        return self.mul(squared, a) if times % 2 else squared
