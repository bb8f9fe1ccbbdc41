"""On a GPU: numbers of every type and variant, calls in a CUDA graph, a saved plan. Nobody has run these yet.

Needs one of the libraries, a device it builds for, and CuPy. The bodies run on a fake device in `test_running`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from collage_core.contract import Host, Unsupported
from collage_core.device import open_device
from collage_core.registry import Toolchain
from collage_core.testing import check_plugin, operator_models
from collage_tensorrt.plugin import TensorRtPlugin

from . import bodies
from .machine import EDITIONS

pytestmark = pytest.mark.gpu("cupy")

REPLAYS = 1000


@pytest.fixture(params=EDITIONS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> bodies.Place:
    host, plugin = Host.this(), TensorRtPlugin(EDITIONS[request.param])
    answer = plugin.collage_targets(host)
    if isinstance(answer, Unsupported):
        pytest.skip(answer.reason)
    stream = open_device("cuda:0")
    return bodies.Place(plugin=plugin, target=answer[0], host=host, stream=stream, folder=tmp_path)


@pytest.mark.parametrize("name", bodies.MODELS)
def test_numbers_are_right(name: str, place: bodies.Place) -> None:
    bodies.numbers_are_right(place, bodies.MODELS[name])


@pytest.mark.parametrize("name", bodies.MODELS)
def test_a_graph_gives_the_same_bits_a_thousand_times(name: str, place: bodies.Place) -> None:
    bodies.a_graph_gives_the_same_bits(place, bodies.MODELS[name], REPLAYS)


def test_a_saved_plan_is_one_graph(place: bodies.Place) -> None:
    bodies.a_saved_plan_is_one_graph(place)


def test_the_plugin_keeps_the_contract(place: bodies.Place) -> None:
    models = operator_models()

    conformance = check_plugin(Toolchain(place.target.toolchain, place.plugin), models, host=place.host)

    assert set(conformance.ran) >= set(models) - {"NonZero, its shape not known before"}


def test_float32_is_not_computed_in_tf32_unless_asked_for(place: bodies.Place) -> None:
    tf32 = bodies.in_tf32(place)
    if tf32 is None:
        pytest.skip("this GPU has no TF32")
    plain, rounded = (bodies.error_of_a_product(each) for each in (place, tf32))

    assert plain < 1e-6
    assert rounded < 1e-2
