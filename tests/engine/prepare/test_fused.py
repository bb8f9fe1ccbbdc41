"""Kernels that earlier passes marked are the same once a model is prepared again."""

from __future__ import annotations

from collage.prepare.steps import prepare
from collage_core.passes.fuse_ops import FuseOps
from tests.core.passes.test_fuse_ops import planned, two_layers


def test_a_fused_model_survives_preparing() -> None:
    model = prepare(two_layers())
    FuseOps()(model)

    assert planned(prepare(model)) == planned(model)
