"""The whole contract, by the kit that core ships: what every plugin is held to."""

from __future__ import annotations

import pytest

from collage_core.registry import load_toolchain
from collage_testing import operator_models
from collage_testing.kit import check_plugin

NOT_TAKEN = {
    *("Gemm", "MatMul", "MatMul of two inputs"),
    *("NonZero, its shape not known before", "TopK, one output not wanted"),
}
"""Of the models of single operators, those that are left to others."""
SOME = ("Add of two inputs", "Softmax", "TopK, one output not wanted")


def test_the_plugin_keeps_the_contract() -> None:
    some = {name: model for name, model in operator_models().items() if name in SOME}

    conformance = check_plugin(load_toolchain("halide"), some)

    assert set(conformance.ran) == set(some) - NOT_TAKEN


@pytest.mark.slow
def test_every_operator_it_takes_keeps_the_contract() -> None:
    conformance = check_plugin(load_toolchain("halide"), operator_models())

    assert set(conformance.refused) == NOT_TAKEN
    assert set(conformance.ran) == set(operator_models()) - NOT_TAKEN
