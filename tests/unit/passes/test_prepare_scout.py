"""A model that ends the process that prepares it is told as one error."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from collage_core.errors import DeadlineExceededError, InvalidModelError
from collage_core.passes.prepare_scout import scout
from collage_core.pipeline.subject import Subject
from collage_core.testing import mnist


def split_into_more_than_it_says() -> ir.Model:
    return ir.from_onnx_text("""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[4, 6] x) => (float[4, 3] a, float[4, 3] b) { a, b, c = Split <axis = 1, num_outputs = 2> (x) }""")


def test_a_sound_model_passes() -> None:
    scout(mnist(), {})


def test_what_is_merely_wrong_passes_to_be_told_later() -> None:
    scout(
        ir.from_onnx_text("""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[2] x) => (float[2] y) { y = Cast(x) }"""),
        {},
    )


def test_what_ends_the_process_is_an_error() -> None:
    with pytest.raises(InvalidModelError, match="ends with SIGABRT on it"):
        Subject(split_into_more_than_it_says())


def test_what_takes_too_long_is_an_error() -> None:
    with pytest.raises(DeadlineExceededError, match="preparing the model"):
        scout(mnist(), {}, deadline_s=0.01)
