"""How models and tensors look in a message: by the names of blobs that hold their bytes."""

from __future__ import annotations

import dataclasses
from typing import Literal

from collage.reference.conditioning import Conditioning
from collage_core.contract import TensorSpec


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WireValue:
    """A value of a model: a tensor, strings, a sequence, or an absent optional.

    Attributes:
        kind: Kind of value.
        dtype: ONNX name of the element type, for tensors.
        shape: Shape, for tensors and strings.
        blob: The elements, row-major, for tensors.
        strings: The elements, row-major, for strings.
        items: The members, for sequences.
        conditioning: What rounding does to it, for tensors of a reference run. No part of `repr`, and so of the keys of
            records: it depends on the judge, not on the value.
    """

    kind: Literal["tensor", "strings", "sequence", "absent"]
    dtype: str = ""
    shape: tuple[int, ...] = ()
    blob: str = ""
    strings: tuple[str, ...] = ()
    items: tuple[WireValue, ...] = ()
    conditioning: Conditioning | None = dataclasses.field(default=None, repr=False)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WireFunction:
    """A `KernelFunction`.

    Attributes:
        name: Its global symbol.
        model: Blob of the serialized model; its large initializers are external data in the files `weights`.
        weights: Blobs of those initializers.
        inputs: Its inputs.
        outputs: Its outputs.
        composite: Label of its composite.
        constants: Content hash of each initializer, by name.
    """

    name: str
    model: str
    weights: tuple[str, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    composite: str
    constants: dict[str, str]
