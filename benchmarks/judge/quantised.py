"""A model in 8-bit integers throughout, made by ONNX Runtime's own tool: what one toolchain in one precision is.

Usage:
    python -m benchmarks.judge.quantised MODEL.onnx OUT.onnx

All convolutions and matrix products are quantised: activations in uint8 with one range each, weights in int8 per output
channel. Ranges are the least and largest numbers in eight random inputs, none of them the judge's own.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from benchmarks.judge import inputs

_PRODUCTS: Final = ["Conv", "Gemm", "MatMul"]
_SAMPLES: Final = range(1, 9)
"""Seeds of the samples; the judge's own inputs have the seed 0."""


class _RandomSamples(CalibrationDataReader):  # type: ignore[misc]  # ONNX Runtime has no annotations
    def __init__(self, model: Path) -> None:
        self._samples = _random_samples(model)

    def get_next(self) -> dict[str, np.ndarray[Any, Any]] | None:
        """Return the next sample; None after the last."""
        return next(self._samples, None)


def _random_samples(model: Path) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
    """Yield inputs like the judge's: of the same shapes, and with its own numbers where those are no floats."""
    given = inputs.read(inputs.beside(model)) if inputs.beside(model).exists() else {}
    proto = onnx.load(model, load_external_data=False)
    for seed in _SAMPLES:
        drawn = inputs.random(proto, seed, {name: array.shape for name, array in given.items()})
        yield drawn | {name: array for name, array in given.items() if array.dtype.kind != "f"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the quantised model."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.judge.quantised", description=__doc__)
    parser.add_argument("model", type=Path, metavar="MODEL.onnx")
    parser.add_argument("output", type=Path, metavar="OUT.onnx")
    options = parser.parse_args(arguments)
    quantize_static(
        options.model,
        options.output,
        _RandomSamples(options.model),
        quant_format=QuantFormat.QDQ,
        op_types_to_quantize=_PRODUCTS,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
