"""Which groups of operators are one call of cuBLASLt, and what comes close but is refused, with the reason.

A call computes `activation(alpha * a b + beta * c + bias)` (NVIDIA's cuBLAS documentation, `cublasLtMatmul` and
`cublasLtEpilogue_t`), and this order decides what fits: the residual `c` goes before the activation, and a number that
operands or the product are multiplied by is a factor of `alpha` only as long as nothing has been added.
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
    """A group of operators one call computes.

    Attributes:
        bias: Whether a vector is added.
        residual: Whether a matrix is.
        activation: `RELU`, `GELU` or `DEFAULT`.
        transposed: Whether Transpose nodes before the product, of `a` or `b`, belong to it.
        scaled: Whether a constant number that `a`, `b` or the product is multiplied or divided by does.
        viewed: Whether a view between the product and something that follows does.
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
        """What the group looks like; made anew each time."""
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
    """Finds a form again in what is lowered."""
    return Matcher(form.pattern)


def _operand(*, transposed: bool) -> Pattern:
    return is_op("Transpose")(wildcard()).used_once() if transposed else wildcard()


def _forms() -> Iterator[Form]:
    """What is after the product, each with what may be before it; the larger before the smaller.

    A view stands behind a product of matrices, which come without Transposes and factors: those are attention's, whose
    scores are tensors and are not activated. What would be looked for in vain is not among the forms.
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
"""By name, the larger before the smaller."""


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
"""What comes close, and why it is another computation."""


def register(table: PatternTable, target: Target) -> None:
    """Fills the table of a target."""
    for entry in _entries(target.option("precision")):
        table.add(entry)


@functools.cache
def _entries(precision: str) -> tuple[FusionPattern, ...]:
    """The table of a precision, made once: a large pattern is analysed when it is first matched."""
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
