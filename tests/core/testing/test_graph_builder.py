"""What the builder of graphs makes, and what importing the kit costs."""

from __future__ import annotations

import subprocess
import sys

from collage_testing import GraphBuilder, chain


def test_nodes_are_numbered_by_operator() -> None:
    assert [node.name for node in chain("Relu", "Exp", "Relu").graph] == ["relu_0", "exp_0", "relu_1"]


def test_what_no_output_depends_on_is_left_out() -> None:
    g = GraphBuilder()
    x = g.input("x", 2)
    g.op("Mul", x, g.weight("unused", 2))
    model = g.model(g.op("Relu", x))

    assert [node.op_type for node in model.graph] == ["Relu"]
    assert not model.graph.initializers
    assert len(list(model.graph.inputs[0].uses())) == 1


def test_equal_seeds_give_equal_weights() -> None:
    def weights(seed: int) -> list[float]:
        value = GraphBuilder(seed=seed).weight("w", 3)
        assert value.const_value is not None
        return list(value.const_value.numpy())

    assert weights(1) == weights(1) != weights(2)


def test_the_kit_needs_neither_pytest_nor_hypothesis_and_no_search_until_something_is_searched() -> None:
    script = """
import sys
sys.modules["pytest"] = sys.modules["hypothesis"] = None
import collage_testing as kit
assert not {"collage", "collage_core.search"} & set(sys.modules)
assert all(hasattr(kit, name) for name in kit.__all__)
assert callable(kit.partition)
assert not hasattr(kit, "nonsense")
"""
    subprocess.run([sys.executable, "-c", script], check=True)
