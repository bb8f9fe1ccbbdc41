"""How operators fuse: the kind of every standard operator, and which operators are pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from collage_core.ir.tensor_spec import TensorSpec, ValueKind


class OpPatternKind(enum.IntEnum):
    """What an operator does to index spaces, from freest to least free to fuse.

    The order is the one of TVM's operator patterns: the kind of a group is the largest kind inside.
    """

    ELEMENTWISE = 0
    """Every output element depends on the input elements at its own index."""
    BROADCAST = 1
    """The same after some inputs were broadcast."""
    INJECTIVE = 2
    """Every output element depends on at most one element per input, at an index that can be computed."""
    REDUCTION = 3
    """Output elements depend on rows of the input: sums, norms, softmax."""
    OUT_ELEMENTWISE_FUSABLE = 4
    """Heavy work whose output element-wise operators fuse into: convolution, matrix product, pooling. An anchor."""
    OPAQUE = 5
    """Everything else; nothing fuses with it."""

    @property
    def is_epilogue(self) -> bool:
        """Whether compilers fuse it into the anchor it follows."""
        return self <= OpPatternKind.BROADCAST


_ELEMENTWISE = """
Abs Acos Acosh Asin Asinh Atan Atanh BitCast BitwiseNot Cast Ceil Celu Clip Cos Cosh Dropout Elu Erf Exp Floor Gelu
HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu Shrink Sigmoid Sign
Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu CastLike
"""

# Element-wise after numpy broadcasting: ELEMENTWISE where no input is in fact broadcast.
_BROADCASTING = """
Add And BatchNormalization BitShift BitwiseAnd BitwiseOr BitwiseXor DequantizeLinear Div Equal Expand Greater
GreaterOrEqual Less LessOrEqual Max Mean Min Mod Mul Or PRelu Pow QuantizeLinear Sub Sum Where Xor
"""

_INJECTIVE = """
CenterCropPad Compress Concat ConstantOfShape DepthToSpace EyeLike Flatten Gather GatherElements GatherND GridSample
OneHot Pad Range Reshape Resize ReverseSequence RotaryEmbedding Slice SpaceToDepth Split Squeeze Tile Transpose Trilu
Unsqueeze Upsample BlackmanWindow HammingWindow HannWindow SwiGLU
"""

_REDUCTION = """
ArgMax ArgMin DynamicQuantizeLinear GlobalAveragePool GlobalLpPool GlobalMaxPool GroupNormalization Hardmax
InstanceNormalization LayerNormalization LogSoftmax LpNormalization MeanVarianceNormalization
RMSNormalization ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
ReduceSumSquare Softmax
"""

_ANCHORS = """
AveragePool Conv ConvInteger ConvTranspose DeformConv Einsum Gemm LRN LpPool MatMul MatMulInteger MaxPool QLinearConv
QLinearMatMul Attention LinearAttention CausalConvWithState
"""

# Work that depends on data, has state, is a scan, holds sub-graphs, or has no tensor type. Named one by one, so that a
# new operator of the standard is noticed instead of silently becoming opaque.
_OPAQUE = """
AffineGrid Bernoulli Col2Im ConcatFromSequence Constant CumProd CumSum DFT Det GRU If ImageDecoder LSTM Loop MaxRoiPool
MaxUnpool MelWeightMatrix Multinomial NegativeLogLikelihoodLoss NonMaxSuppression NonZero Optional OptionalGetElement
OptionalHasElement RNN RandomNormal RandomNormalLike RandomUniform RandomUniformLike RegexFullMatch RoiAlign STFT Scan
Scatter ScatterElements ScatterND SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert
SequenceLength SequenceMap Shape Size SoftmaxCrossEntropyLoss SplitToSequence StringConcat StringNormalizer StringSplit
TensorScatter TfIdfVectorizer TopK Unique
"""

STANDARD_KINDS: Mapping[str, OpPatternKind] = MappingProxyType(
    {
        name: kind
        for kind, names in (
            (OpPatternKind.ELEMENTWISE, _ELEMENTWISE),
            (OpPatternKind.BROADCAST, _BROADCASTING),
            (OpPatternKind.INJECTIVE, _INJECTIVE),
            (OpPatternKind.REDUCTION, _REDUCTION),
            (OpPatternKind.OUT_ELEMENTWISE_FUSABLE, _ANCHORS),
            (OpPatternKind.OPAQUE, _OPAQUE),
        )
        for name in names.split()
    }
)
"""Kind of every operator of the domain ai.onnx, before shapes are looked at."""

RANDOM_OPS = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
"""Operators whose result differs from call to call: never duplicated, merged or compared by value."""

_OTHER_DOMAINS: Mapping[tuple[str, str], OpPatternKind] = MappingProxyType(
    {
        ("ai.onnx.ml", "Binarizer"): OpPatternKind.ELEMENTWISE,
        ("ai.onnx.ml", "Scaler"): OpPatternKind.BROADCAST,
        ("ai.onnx.ml", "LinearRegressor"): OpPatternKind.OUT_ELEMENTWISE_FUSABLE,
    }
)


def kind_of(
    op_type: str,
    domain: str = "",
    inputs: Sequence[TensorSpec | None] = (),
    outputs: Sequence[TensorSpec] = (),
) -> OpPatternKind:
    """Kind of one operator, refined by shapes where they are known.

    Args:
        op_type: Operator type.
        domain: Its domain, `""` for ai.onnx.
        inputs: Specs of its inputs; None for an absent optional one.
        outputs: Specs of its outputs.

    Returns:
        The kind; OPAQUE for unknown operators and where an output is no planned tensor, because a fused kernel has
        to know its loops.

    Examples:
        >>> kind_of("Conv").name, kind_of("Add").name, kind_of("MyOp", "my.domain").name
        ('OUT_ELEMENTWISE_FUSABLE', 'BROADCAST', 'OPAQUE')
    """
    if domain not in ("", "ai.onnx"):
        return _OTHER_DOMAINS.get((domain, op_type), OpPatternKind.OPAQUE)
    kind = STANDARD_KINDS.get(op_type, OpPatternKind.OPAQUE)
    if any(spec.kind is not ValueKind.PLANNED for spec in outputs if spec.name):
        return OpPatternKind.OPAQUE
    if kind is OpPatternKind.BROADCAST and outputs and op_type not in ("Expand", "BatchNormalization"):
        shape = outputs[0].shape
        present = [spec for spec in inputs if spec is not None]
        if present and all(spec.shape in (shape, ()) for spec in present):
            return OpPatternKind.ELEMENTWISE
    if kind is OpPatternKind.REDUCTION and op_type.startswith(("Reduce", "Arg")) and inputs and outputs:
        data, result = inputs[0], outputs[0]
        if data is not None and data.kind is ValueKind.PLANNED and _elements(data) == _elements(result):
            return OpPatternKind.INJECTIVE  # only axes of extent one are reduced
    return kind


def _elements(spec: TensorSpec) -> int:
    count = 1
    for extent in spec.static_shape:
        count *= extent
    return count


def is_pure(op_type: str, domain: str = "", *, training: bool = False) -> bool:
    """Whether two calls with equal inputs give equal outputs and nothing else happens.

    Operators of unknown domains are taken to be pure, as every ONNX runtime does.

    Args:
        op_type: Operator type.
        domain: Its domain.
        training: Whether its `training_mode` is on, in which Dropout is random.
    """
    if domain not in ("", "ai.onnx"):
        return True
    return op_type not in RANDOM_OPS and not (op_type == "Dropout" and training)
