"""Groups of operators that are one graph of cuDNN, and similar ones that are refused, with the reason.

To add one, write its pattern (better: a builder in `collage_core.patterns.library`) and a function that
describes a match as a graph, and add both to `FORMS`, from which the README's table is made.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType

from collage_core.contract import Supported, Target, Unsupported
from collage_core.patterns import FusionPattern, Match, Matcher, Pattern, PatternTable, is_constant, is_op, wildcard
from collage_core.patterns.library.attention import attention_pattern
from collage_core.patterns.library.convolution import conv_pattern
from collage_core.patterns.library.epilogue import Activation
from collage_core.patterns.library.linear import matmul_pattern
from collage_core.patterns.library.normalisation import layer_norm_pattern, rms_norm_pattern
from collage_cuda.forms import refused_form
from collage_cudnn.activations import ACTIVATIONS
from collage_cudnn.attention import describe_attention
from collage_cudnn.convolution import TENSOR_CORES_ONLY, describe_convolution
from collage_cudnn.described import Described
from collage_cudnn.graph import DataType, Layout
from collage_cudnn.normalisation import describe_batch_norm, describe_instance_norm, describe_layer_norm
from collage_cudnn.products import describe_product


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A group of operators that is one graph.

    Attributes:
        name: Label of the composite.
        operators: Operators the group is about, for the table in the README.
        pattern: Builds the pattern, newly on each call.
        describe: Describes a match as a graph, given the layout of images and whether float32 products are exact.
        dtypes: Supported element types of the model, for the table.
    """

    name: str
    operators: str
    pattern: Callable[[], Pattern]
    describe: Callable[[Match, Layout, bool], Described | Unsupported]
    dtypes: str = "float32, float16, bfloat16"


_BY_TENSOR_CORES = {
    "Conv": f"float32 before {', '.join(sorted(TENSOR_CORES_ONLY))}, unless depthwise,",
    "ConvTranspose": "float32 with anything behind it",
}
"""Float32 convolutions that are rounded to TF32, for the table."""


def _convolution(operator: str, stem: str, activation: str) -> Form:
    def describe(match: Match, layout: Layout, exact: bool) -> Described | Unsupported:
        return describe_convolution(match, layout, activation=activation, exact=exact)

    return Form(
        name=_name(stem, activation),
        operators=operator,
        pattern=functools.partial(
            conv_pattern, bias=None, residual=None, activation=_pattern(activation), operator=operator
        ),
        describe=describe,
        dtypes=f"float16, bfloat16, float32; {_BY_TENSOR_CORES[operator]} with precision=tf32",
    )


def _product(activation: str) -> Form:
    def describe(match: Match, layout: Layout, exact: bool) -> Described | Unsupported:
        return describe_product(match, layout, activation=activation, exact=exact)

    return Form(
        name=_name("matmul", activation),
        operators="MatMul, Gemm",
        pattern=functools.partial(
            matmul_pattern, bias=None, residual=None, transposed=None, activation=_pattern(activation)
        ),
        describe=describe,
        dtypes="float16, bfloat16; float32 with precision=tf32",
    )


def _norm(name: str, operators: str, pattern: Callable[[], Pattern], kind: str) -> Form:
    def describe(match: Match, layout: Layout, exact: bool) -> Described | Unsupported:
        return describe_layer_norm(match, layout, kind=kind)

    return Form(name=f"cudnn.{name}", operators=operators, pattern=pattern, describe=describe)


def _batch_norm(activation: str) -> Form:
    def pattern() -> Pattern:
        x = wildcard().named("x")
        vectors = [wildcard().named(name) for name in ("scale", "bias", "mean", "variance")]
        value: Pattern = is_op("BatchNormalization")(x, *vectors)
        return value.named("activation") if not activation else is_op("Relu")(value).named("activation")

    def describe(match: Match, layout: Layout, exact: bool) -> Described | Unsupported:
        return describe_batch_norm(match, layout, activation=activation)

    return Form(
        name=_name("batch_norm", activation), operators="BatchNormalization", pattern=pattern, describe=describe
    )


def _instance_norm() -> Pattern:
    return is_op("InstanceNormalization")(*(wildcard().named(name) for name in ("x", "scale", "bias")))


def _name(stem: str, activation: str) -> str:
    return f"cudnn.{stem}_{activation}" if activation else f"cudnn.{stem}"


def _pattern(activation: str) -> Activation | None:
    return ACTIVATIONS[activation].pattern if activation else None


FORMS: Mapping[str, Form] = MappingProxyType(
    {
        form.name: form
        for form in (
            Form(
                name="cudnn.attention",
                operators="MatMul, Softmax, MatMul; Attention",
                pattern=attention_pattern,
                describe=lambda match, layout, exact: describe_attention(match, layout),
                dtypes="float16, bfloat16",
            ),
            _norm("layer_norm", "LayerNormalization, or written out", layer_norm_pattern, "layernorm"),
            _norm("rms_norm", "RMSNormalization, or written out", rms_norm_pattern, "rmsnorm"),
            *(_convolution("Conv", "conv", activation) for activation in (*ACTIVATIONS, "")),
            *(_convolution("ConvTranspose", "conv_transpose", activation) for activation in (*ACTIVATIONS, "")),
            *(_product(activation) for activation in (*ACTIVATIONS, "")),
            _batch_norm("relu"),
            _batch_norm(""),
            Form(
                name="cudnn.instance_norm",
                operators="InstanceNormalization",
                pattern=_instance_norm,
                describe=lambda match, layout, exact: describe_instance_norm(match, layout),
            ),
        )
    }
)
"""Accepted forms by name, larger groups before smaller ones."""


NEVER: Mapping[str, tuple[Callable[[], Pattern], str]] = MappingProxyType(
    {
        "cudnn.integers": (
            lambda: is_op("ConvInteger", "QLinearConv", "MatMulInteger", "QLinearMatMul"),
            "integers: cuDNN's kernels for them take channels in blocks of 4 or 32, which nothing here makes",
        ),
        "cudnn.residual_after_activation": (
            lambda: is_op("Add", "Sum")(is_op("Relu")(conv_pattern(bias=None)), ~is_constant()),
            "what is added here comes after the activation; the compiled kernels add before it",
        ),
        "cudnn.pooling": (
            lambda: is_op("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"),
            "the frontend's graphs have no node for pooling in version 1.26",
        ),
        "cudnn.softmax": (
            lambda: is_op("Softmax", "LogSoftmax"),
            "the frontend's graphs have no node for softmax alone in version 1.26",
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
    for entry in _entries(exact=target.option("precision") != "tf32"):
        table.add(entry)


@functools.cache
def _entries(*, exact: bool) -> tuple[FusionPattern, ...]:
    """Return the pattern table, built once per precision: a large pattern is analysed when first matched."""
    taken = [
        FusionPattern(
            name=name,
            pattern=form.pattern(),
            check=functools.partial(_takes, form, exact),
            attrs_getter=functools.partial(_attributes, form, exact),
        )
        for name, form in FORMS.items()
    ]
    refused = [refused_form(name, pattern(), reason) for name, (pattern, reason) in NEVER.items()]
    return (*taken, *refused)


def _takes(form: Form, exact: bool, match: Match) -> Supported | Unsupported:
    found = form.describe(match, Layout.CHANNELS_FIRST, exact)  # a layout is no reason to refuse
    if isinstance(found, Unsupported):
        return found
    if not exact and found.graph.dtype is not DataType.FLOAT:
        return Unsupported("precision=tf32 is a way to multiply float32; other types are the plain target's")
    return Supported()


def _attributes(form: Form, exact: bool, match: Match) -> dict[str, str]:
    """Return the operations of the cuDNN graph, for explanations."""
    found = form.describe(match, Layout.CHANNELS_LAST, exact)
    assert not isinstance(found, Unsupported), "only what was taken is labelled"
    return {"graph": " ".join(operation.kind for operation in found.graph.operations)}
