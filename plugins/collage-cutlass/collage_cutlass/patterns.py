"""Groups of operators that are one kernel of CUTLASS, and similar ones that are refused, with the reason.

To add one, write its pattern (better: a builder in `collage_core.patterns.library`) and a function that
describes a match, and add both to `FORMS`, from which the README's table is made.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from collage_core.contract import Supported, Target, Unsupported
from collage_core.patterns import FusionPattern, Match, Matcher, Pattern, PatternTable, is_constant, is_op
from collage_core.patterns.library.convolution import conv_pattern
from collage_core.patterns.library.epilogue import vector
from collage_core.patterns.library.linear import matmul_pattern
from collage_cuda.forms import refused_form
from collage_cutlass.activations import ACTIVATIONS
from collage_cutlass.convolution import describe_convolution
from collage_cutlass.described import Described
from collage_cutlass.problem import Source
from collage_cutlass.products import describe_product

Describe = Callable[..., Described | Unsupported]

_STEMS: Mapping[str, tuple[Callable[..., Pattern], Describe]] = MappingProxyType(
    {
        "conv": (conv_pattern, describe_convolution),
        "matmul": (functools.partial(matmul_pattern, transposed=None), describe_product),
    }
)

_SOURCES: Mapping[Source, str] = MappingProxyType({Source.AFTER: "residual", Source.SCALE: "scaled", Source.NONE: ""})
"""Suffix of a form's name by role of the tensor beside the bias.

`NONE` includes a tensor that is added before the activation.
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """A group of operators that is one kernel.

    Attributes:
        stem: `conv` or `matmul`.
        activation: A name of `ACTIVATIONS`.
        source: Role of the tensor beside the bias; `NONE` if one may be added before the activation.
    """

    stem: str
    activation: str
    source: Source

    @property
    def name(self) -> str:
        """Label of the composite.

        Examples:
            >>> Form("matmul", "silu", Source.AFTER).name
            'cutlass.matmul_silu_residual'
        """
        return "_".join(filter(None, [f"cutlass.{self.stem}", self.activation, _SOURCES[self.source]]))

    def pattern(self) -> Pattern:
        """Create the form's pattern, anew each time."""
        build, _ = _STEMS[self.stem]
        activation = ACTIVATIONS[self.activation].pattern
        if self.source is Source.NONE:
            return build(bias=None, residual=None, activation=activation)
        if self.source is Source.AFTER:
            return is_op("Add", "Sum")(build(bias=None, activation=activation), (~is_constant()).named("residual"))
        scaled = is_op("Mul")(build(), vector("scale"))
        whole = is_op("Add")(scaled, vector("bias")) | scaled
        if activation is None:
            return whole
        return is_op(activation)(whole) if isinstance(activation, str) else activation(whole)

    def describe(self, match: Match, precision: str) -> Described | Unsupported:
        """Describe a match.

        Args:
            match: Match of the pattern.
            precision: The target's precision: empty, or `tf32`.
        """
        _, describe = _STEMS[self.stem]
        return describe(match, activation=self.activation, source=self.source, precision=precision)


def _forms() -> Iterator[Form]:
    """Yield the forms, larger ones before smaller ones.

    Without an activation, adding after it equals adding before it, so only the latter is a form.
    """
    for source, stem, activation in itertools.product(_SOURCES, _STEMS, ACTIVATIONS):
        if activation or source is not Source.AFTER:
            yield Form(stem, activation, source)


FORMS: Mapping[str, Form] = MappingProxyType({form.name: form for form in _forms()})
"""Accepted forms by name, larger groups before smaller ones."""

NEVER: Mapping[str, tuple[Callable[[], Pattern], str]] = MappingProxyType(
    {
        "cutlass.integers": (
            lambda: is_op("ConvInteger", "QLinearConv", "MatMulInteger", "QLinearMatMul"),
            "integers: their rescaling is an epilogue of its own, which nothing here has",
        ),
        "cutlass.attention": (
            lambda: is_op("Softmax", "Attention"),
            "nothing here compiles attention as one kernel; its products are taken alone",
        ),
        "cutlass.conv_transpose": (
            lambda: is_op("ConvTranspose"),
            "a transposed convolution is the gradient of another one, which nothing here compiles",
        ),
    }
)
"""Similar groups that are refused: the pattern, and the reason."""


@functools.cache
def matcher_of(name: str) -> Matcher:
    """Return a matcher that finds a form in the function being lowered."""
    return Matcher(FORMS[name].pattern())


def register(table: PatternTable, target: Target) -> None:
    """Register a target's patterns."""
    for entry in _entries(target.option("precision")):
        table.add(entry)


@functools.cache
def _entries(precision: str) -> tuple[FusionPattern, ...]:
    """Return the pattern table, built once per precision: a large pattern is analysed when first matched."""
    taken = [
        FusionPattern(
            name=name,
            pattern=form.pattern(),
            check=functools.partial(_takes, form, precision),
            attrs_getter=functools.partial(_attributes, form, precision),
        )
        for name, form in FORMS.items()
    ]
    refused = [refused_form(name, pattern(), reason) for name, (pattern, reason) in NEVER.items()]
    return (*taken, *refused)


def _takes(form: Form, precision: str, match: Match) -> Supported | Unsupported:
    found = form.describe(match, precision)
    return found if isinstance(found, Unsupported) else Supported()


def _attributes(form: Form, precision: str, match: Match) -> dict[str, str]:
    """Return the epilogue, for explanations."""
    found = form.describe(match, precision)
    assert not isinstance(found, Unsupported), "only what was taken is labelled"
    added = {Source.BEFORE: ["residual"], Source.SCALE: ["scale"]}.get(found.chain.source, [])
    bias = ["bias"] if "bias" in found.operands else []
    after = ["residual"] if found.chain.source is Source.AFTER else []
    activation = [form.activation] if form.activation else []
    return {"epilogue": " ".join([*added, *bias, *activation, *after]) or "none"}
