"""Fusion kinds of all standard operators, and which operators are pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType


class OpPatternKind(enum.IntEnum):
    """Effect of an operator on index spaces, ordered from easiest to hardest to fuse.

    The order is that of TVM's operator patterns: the kind of a group is the largest kind inside.
    """

    ELEMENTWISE = 0
    """Every output element depends on the input elements at its own index."""
    BROADCAST = 1
    """Elementwise after broadcasting some inputs."""
    INJECTIVE = 2
    """Every output element depends on at most one element per input, at a computable index."""
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
"""Kind of every operator of the domain ai.onnx, before refinement by shapes."""

RANDOM_OPS = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
"""Operators whose result differs from call to call: never duplicated, merged or compared by value."""

_OTHER_DOMAINS: Mapping[tuple[str, str], OpPatternKind] = MappingProxyType(
    {
        (domain, name): kind
        for domain, kind, names in (
            ("ai.onnx.ml", OpPatternKind.ELEMENTWISE, "Binarizer CategoryMapper LabelEncoder"),
            ("ai.onnx.ml", OpPatternKind.BROADCAST, "Imputer Scaler"),
            ("ai.onnx.ml", OpPatternKind.INJECTIVE, "ArrayFeatureExtractor FeatureVectorizer OneHotEncoder"),
            ("ai.onnx.ml", OpPatternKind.REDUCTION, "Normalizer"),
            ("ai.onnx.ml", OpPatternKind.OUT_ELEMENTWISE_FUSABLE, "LinearRegressor"),
            # classes beside scores, walks down trees, maps
            ("ai.onnx.ml", OpPatternKind.OPAQUE, "CastMap DictVectorizer LinearClassifier SVMClassifier SVMRegressor"),
            ("ai.onnx.ml", OpPatternKind.OPAQUE, "TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor ZipMap"),
            ("ai.onnx.preview", OpPatternKind.OUT_ELEMENTWISE_FUSABLE, "FlexAttention"),
            ("ai.onnx.preview.training", OpPatternKind.OPAQUE, "Adagrad Adam Gradient Momentum"),
        )
        for name in names.split()
    }
)


def known_kind(op_type: str, domain: str = "") -> OpPatternKind | None:
    """Return the kind of an operator by its name, before refinement by shapes.

    None for an operator of neither ONNX nor its other domains.

    Args:
        op_type: Operator type.
        domain: Domain of the operator, `""` or `"ai.onnx"` for the standard's own.

    Examples:
        >>> known_kind("Conv").name, known_kind("Add").name, known_kind("MyOp", "my.domain")
        ('OUT_ELEMENTWISE_FUSABLE', 'BROADCAST', None)
    """
    if domain in ("", "ai.onnx"):
        return STANDARD_KINDS.get(op_type)
    return _OTHER_DOMAINS.get((domain, op_type))


def is_pure(op_type: str, domain: str = "", *, training: bool = False) -> bool:
    """Return whether an operator is pure: equal inputs give equal outputs, without side effects.

    Operators of unknown domains are assumed to be pure, as in every ONNX runtime.

    Args:
        op_type: Operator type.
        domain: Domain of the operator.
        training: Whether its `training_mode` is on, in which Dropout is random.
    """
    if domain not in ("", "ai.onnx"):
        return True
    return op_type not in RANDOM_OPS and not (op_type == "Dropout" and training)
