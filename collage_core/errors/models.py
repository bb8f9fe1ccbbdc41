"""A model cannot be used, or computed by the reference."""

from __future__ import annotations

from collage_core.errors.base import CollageError, UsageError


class ModelError(CollageError):
    """A model cannot be read or prepared."""


class ModelFileError(ModelError):
    """A model cannot be read from, or written to, where the user said.

    Attributes:
        source: The path, or `<bytes>`.
        reason: What is wrong with it.
    """

    def __init__(self, source: str, reason: str) -> None:
        self.source = source
        self.reason = reason
        super().__init__(f"cannot use {source!r} as an ONNX model: {reason}")


class ExternalDataError(ModelFileError):
    """Weights kept outside the model file cannot be used.

    Attributes:
        tensor: Name of the first tensor affected.
        location: Where the model says it is, relative to the model.
    """

    def __init__(self, source: str, tensor: str, location: str, reason: str) -> None:
        self.tensor = tensor
        self.location = location
        super().__init__(source, f"its weight {tensor!r} is in external data {location!r}: {reason}")


class InvalidModelError(ModelError):
    """A model is not what the ONNX standard says a model is, and something stumbled over it.

    Attributes:
        reason: What ONNX's checker says.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the model is not valid ONNX: {reason}. Mend or export it again; `onnx.checker` shows more.")


class NewerModelError(ModelError):
    """A model is of a version of the ONNX standard that came after this Collage.

    Attributes:
        what: What has the version.
        version: The model's.
        newest: The newest known here.
    """

    def __init__(self, what: str, version: int, newest: int) -> None:
        self.what = what
        self.version = version
        self.newest = newest
        super().__init__(
            f"the model is of {what} {version}, and the newest known here is {newest}. "
            "Export it for that version or an older one, or install a newer onnx."
        )


class InputShapeError(ModelError, UsageError):
    """The shapes given for a model's inputs do not make it static, or contradict it.

    Attributes:
        input_name: The input concerned.
        reason: What is wrong with its shape.
    """

    def __init__(self, input_name: str, reason: str) -> None:
        self.input_name = input_name
        self.reason = reason
        super().__init__(f"input {input_name!r}: {reason}")


class EvaluationError(CollageError):
    """The numeric reference cannot compute a node, and no other toolchain was named to do so.

    Attributes:
        node_name: The node concerned.
        op_type: Its operator, with its domain unless that is ONNX's own.
        reason: What its implementation said.
    """

    def __init__(self, node_name: str, op_type: str, reason: str) -> None:
        self.node_name = node_name
        self.op_type = op_type
        self.reason = reason
        super().__init__(
            f"the reference cannot compute node {node_name!r} ({op_type}): {reason}. "
            "Name a toolchain that can with `--reference`."
        )
