"""Paths of the files of one model at one batch and dtype."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from benchmarks.judge.inputs import beside


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Paths of one model's files.

    Attributes:
        folder: Folder of the files.
        name: Name of the architecture.
        batch: Examples in the inputs; static in the exported model.
        dtype: Precision of the exported model, `"float32"`, `"float16"` or `"bfloat16"`.

    Examples:
        >>> Files(folder=Path("x"), name="vit", batch=8, dtype="float16").model.as_posix()
        'x/vit-b8-float16.onnx'
    """

    folder: Path
    name: str
    batch: int
    dtype: str

    @property
    def weights(self) -> Path:
        """Parameters and statistics in float32, by name: the same for every batch and dtype."""
        return self.folder / f"{self.name}.weights.npz"

    @property
    def model(self) -> Path:
        """The exported model."""
        return self.folder / f"{self.name}-b{self.batch}-{self.dtype}.onnx"

    @property
    def inputs(self) -> Path:
        """Arrays by name, in the order of the module's arguments."""
        return beside(self.model)

    @property
    def expected(self) -> Path:
        """Reference results in float32 on the CPU, by PyTorch; correct results deviate by some 1e-6."""
        return self.folder / f"{self.name}-b{self.batch}.expected.npz"
