"""Groups of operators that are one call of cuBLASLt, and similar ones that are refused, with the reason.

A call computes `activation(alpha * a b + beta * c + bias)` (NVIDIA's cuBLAS documentation, `cublasLtMatmul` and
`cublasLtEpilogue_t`), and this order decides what fits: the residual `c` is added before the activation, and a
constant that scales an operand or the product can be part of `alpha` only until something has been added.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from collage_core.contract import Supported, Target, Unsupported
from collage_core.patterns import FusionPattern, Match, Matcher, Pattern, PatternTable, is_constant, is_op, wildcard
from collage_core.patterns.library.activations import gelu_pattern
from collage_core.patterns.library.epilogue import Activation
from collage_core.patterns.library.linear import matmul_pattern
from collage_cublas.library import Epilogue
from collage_cublas.reading import product_of
from collage_cuda.forms import refused_form

_ACTIVATIONS: Mapping[Epilogue, Activation | None] = MappingProxyType(
    {
        Epilogue.GELU: functools.partial(gelu_pattern, approximate="tanh"),
        Epilogue.RELU: "Relu",
        Epilogue.DEFAULT: None,
    }
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A group of operators that one call computes.

    Attributes:
        bias: Whether a vector is added.
        residual: Whether a matrix is added.
        activation: `RELU`, `GELU` or `DEFAULT`.
        transposed: Whether Transpose nodes before the product, of `a` or `b`, belong to the group.
        scaled: Whether a constant factor or divisor of `a`, `b` or the product belongs to the group.
        viewed: Whether a view between the product and a following operator belongs to the group.
    """

    bias: bool
    residual: bool
    activation: Epilogue
    transposed: bool = False
    scaled: bool = False
    viewed: bool = False

    @property
    def name(self) -> str:
        """Label of the composite.

        Examples:
            >>> Form(bias=True, residual=False, activation=Epilogue.GELU).name
            'cublas.matmul_bias_gelu'
        """
        parts = {
            "bias": self.bias,
            "residual": self.residual,
            self.activation.name or "": self.activation != Epilogue.DEFAULT,
            "transposed": self.transposed,
            "scaled": self.scaled,
            "viewed": self.viewed,
        }
        return "_".join(["cublas.matmul", *(part.lower() for part, there in parts.items() if there)])

    @property
    def pattern(self) -> Pattern:
        """Pattern of the group, newly built on each access."""
        operands = []
        if self.transposed:
            # one at least; a Transpose that others read too stays where it is, and its result is multiplied
            ways = [(True, True), (True, False), (False, True)]
            operands = [(_operand(transposed=a), _operand(transposed=b)) for a, b in ways]
        return matmul_pattern(
            bias=self.bias,
            residual=self.residual,
            activation=_ACTIVATIONS[self.activation],
            scaled=True,
            factor=self.scaled,
            viewed=self.viewed,
            operands=operands,
        )


@functools.cache
def matcher_of(form: Form) -> Matcher:
    """Return a matcher that finds a form in the function being lowered."""
    return Matcher(form.pattern)


def _operand(*, transposed: bool) -> Pattern:
    return is_op("Transpose")(wildcard()).used_once() if transposed else wildcard()


def _forms() -> Iterator[Form]:
    """Yield each epilogue of a product with each supported prologue; larger forms before smaller ones.

    A view occurs only after products of matrices without Transposes and factors: those belong to attention, whose
    scores are tensors and have no activation. Forms that never occur are left out.
    """
    for activation, residual, bias in itertools.product(_ACTIVATIONS, (True, False), (True, False)):
        form = Form(activation=activation, residual=residual, bias=bias)
        active = activation != Epilogue.DEFAULT
        if bias or residual or active:
            yield dataclasses.replace(form, viewed=True)
        for transposed, scaled in itertools.product((True, False), (True, False)):
            if not (transposed and scaled and active):
                yield dataclasses.replace(form, transposed=transposed, scaled=scaled)


FORMS: Mapping[str, Form] = MappingProxyType({form.name: form for form in _forms()})
"""Accepted forms by name, larger ones before smaller ones."""


def _dense() -> Pattern:
    return matmul_pattern(bias=None, scaled=True)


NEVER: Mapping[str, tuple[Pattern, str]] = MappingProxyType(
    {
        "cublas.integers": (
            is_op("MatMulInteger", "QLinearMatMul") | is_op("com.microsoft::QGemm"),
            "integers: of integer products cuBLASLt has only some, whose operands are padded and ordered otherwise",
        ),
        "cublas.gelu_by_erf": (
            gelu_pattern(_dense(), approximate="none"),
            "its GELU is the tanh form, another function than the model's, which is by erf",
        ),
        "cublas.residual_after_activation": (
            is_op("Add")(is_op("Relu")(_dense()) | gelu_pattern(_dense(), approximate="tanh"), ~is_constant()),
            "what is added here comes after the activation; cuBLASLt adds before it",
        ),
    }
)
"""Similar groups that are refused: the pattern, and why it is a different computation."""


def register(table: PatternTable, target: Target) -> None:
    """Register a target's patterns."""
    for entry in _entries(target.option("precision")):
        table.add(entry)


@functools.cache
def _entries(precision: str) -> tuple[FusionPattern, ...]:
    """Return a precision's pattern table, built once: a large pattern is analysed when it is first matched."""
    taken = [
        FusionPattern(
            name=name,
            pattern=form.pattern,
            check=functools.partial(_takes, form, precision),
            attrs_getter=functools.partial(_attributes, form),
        )
        for name, form in FORMS.items()
    ]
    refused = [refused_form(name, pattern, reason) for name, (pattern, reason) in NEVER.items()]
    return (*taken, *refused)


def _takes(form: Form, precision: str, match: Match) -> Supported | Unsupported:
    found = product_of(match, activation=form.activation, precision=precision)
    return found if isinstance(found, Unsupported) else Supported()


def _attributes(form: Form, match: Match) -> dict[str, str]:
    parts = [name for name, there in (("bias", form.bias), ("residual", form.residual)) if there]
    activation = [] if form.activation == Epilogue.DEFAULT else [(form.activation.name or "").lower()]
    return {"epilogue": "+".join([*parts, *activation]) or "none"}
