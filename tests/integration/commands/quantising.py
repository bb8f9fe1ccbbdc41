"""Real quantised models: made by ONNX Runtime's quantiser, as users make theirs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.integration.commands.models import Arrays


def quantised(model: Path, given: Callable[[int], Arrays]) -> Path:
    """The model in the QDQ form beside it: weights of int8 with a scale for each channel, activations of uint8.

    Weights use 7 bits of their 8. Without VNNI, x86 adds two products of 8 bits in 16, which larger ones overflow.

    Args:
        model: A file.
        given: Inputs by seed; four of them are calibrated on.
    """
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        """Feeds the inputs of four seeds."""

        def __init__(self) -> None:
            self._left = iter([given(seed) for seed in range(4)])

        def get_next(self) -> Arrays | None:
            return next(self._left, None)

    path = model.with_suffix(".qdq.onnx")
    quantize_static(
        model,
        path,
        Reader(),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        reduce_range=True,
    )
    return path
