"""The whole contract, by the kit that core ships: what every plugin is held to."""

from __future__ import annotations

import pytest

from collage_core.registry import load_toolchain
from collage_testing import dense, operator_models
from collage_testing.kit import check_plugin

SOME = ("Add of two inputs", "Softmax", "TopK, one output not wanted", "NonZero, its shape not known before")


def test_the_plugin_keeps_the_contract() -> None:
    some = {name: model for name, model in operator_models().items() if name in SOME}
    models = {**some, "dense": dense(activation="Relu")}

    conformance = check_plugin(load_toolchain("openvino"), models)

    assert set(conformance.ran) == {*SOME, "dense"}


@pytest.mark.slow
def test_every_operator_of_the_kit_keeps_the_contract() -> None:
    conformance = check_plugin(load_toolchain("openvino"), operator_models())

    assert set(conformance.ran) == set(operator_models())
