"""The whole contract, by the kit that core ships: what every plugin is held to."""

from __future__ import annotations

from collage_core.registry import load_toolchain
from collage_testing import dense, operator_models
from collage_testing.kit import check_plugin


def test_the_plugin_keeps_the_contract() -> None:
    models = {**operator_models(), "dense": dense(activation="Relu")}

    conformance = check_plugin(load_toolchain("openvino"), models)

    assert set(conformance.ran) == set(models)
