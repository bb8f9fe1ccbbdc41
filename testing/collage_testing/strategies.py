"""Strategies for hypothesis; the only module of the package that requires it."""

from __future__ import annotations

import onnx_ir
from hypothesis import strategies as st

from collage_testing.random_models import random_model


def models(max_operators: int = 10) -> st.SearchStrategy[onnx_ir.Model]:
    """Generate small valid models, see `random_model`; they shrink to few operators."""
    randoms = st.randoms(use_true_random=False)
    return st.builds(random_model, randoms, st.integers(1, max_operators))
