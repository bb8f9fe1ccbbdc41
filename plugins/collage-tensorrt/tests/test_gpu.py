"""On a GPU: numbers of every type and variant, calls in a CUDA graph, a saved plan. Nobody has run these yet.

Needs one of the libraries, a device it builds for, and CuPy. The bodies run on a fake device in `test_running`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from collage_core.contract import Unsupported
from collage_core.registry import Toolchain
from collage_tensorrt.plugin import TensorRtPlugin
from collage_testing import operator_models
from collage_testing.kit import DeviceMachine, check_plugin

from . import bodies
from .machine import EDITIONS

pytestmark = pytest.mark.gpu("cupy")

REPLAYS = 1000


@pytest.fixture(params=EDITIONS)
def machine(request: pytest.FixtureRequest) -> DeviceMachine:
    machine = DeviceMachine.real(Toolchain(request.param, TensorRtPlugin(EDITIONS[request.param])))
    if isinstance(machine, Unsupported):
        pytest.skip(machine.reason)
    return machine


@pytest.mark.parametrize("name", bodies.MODELS)
def test_numbers_are_right(name: str, machine: DeviceMachine, tmp_path: Path) -> None:
    bodies.numbers_are_right(machine, tmp_path, bodies.MODELS[name])


@pytest.mark.parametrize("name", bodies.MODELS)
def test_a_graph_gives_the_same_bits_a_thousand_times(name: str, machine: DeviceMachine, tmp_path: Path) -> None:
    bodies.a_graph_gives_the_same_bits(machine, tmp_path, bodies.MODELS[name], REPLAYS)


def test_a_saved_plan_is_one_graph(machine: DeviceMachine, tmp_path: Path) -> None:
    bodies.a_saved_plan_is_one_graph(machine, tmp_path)


def test_the_plugin_keeps_the_contract(machine: DeviceMachine) -> None:
    models = operator_models()

    conformance = check_plugin(machine.toolchain, models, host=machine.host)

    assert set(conformance.ran) >= set(models) - {"NonZero, its shape not known before"}


def test_float32_is_not_computed_in_tf32_unless_asked_for(machine: DeviceMachine, tmp_path: Path) -> None:
    tf32 = bodies.in_precision(machine, "tf32")
    if tf32 is None:
        pytest.skip("this GPU has no TF32")
    plain, rounded = (bodies.error_of_a_product(machine, each, tmp_path) for each in (machine.target(), tf32))

    assert plain < 1e-6
    assert rounded < 1e-2


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_products_are_rounded_to_16_bits_where_that_is_asked_for(
    precision: str, machine: DeviceMachine, tmp_path: Path
) -> None:
    bodies.a_product_is_rounded_to_its_precision(machine, precision, tmp_path)


@pytest.mark.parametrize("precision", ["int8", "int8+fp16"])
def test_products_are_those_of_integers(precision: str, machine: DeviceMachine, tmp_path: Path) -> None:
    bodies.products_are_those_of_integers(machine, precision, tmp_path)
