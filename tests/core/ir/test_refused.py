"""Blame put on nodes where a library only says no to the whole."""

from __future__ import annotations

import onnx_ir

from collage_core.ir.graph.refused import refused_nodes
from collage_testing import chain


def operators(model: onnx_ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def test_nothing_is_asked_about_nodes_when_the_whole_is_taken() -> None:
    asked: list[list[str]] = []

    def ask(model: onnx_ir.Model) -> None:
        asked.append(operators(model))

    assert refused_nodes(chain("Relu", "Exp"), ask) == {}
    assert asked == [["Relu", "Exp"]]


def test_each_distinct_node_is_asked_about_once_and_all_like_it_are_refused() -> None:
    asked: list[list[str]] = []

    def ask(model: onnx_ir.Model) -> str | None:
        asked.append(operators(model))
        return "no kernel for Exp" if "Exp" in operators(model) else None

    reasons = refused_nodes(chain("Relu", "Exp", "Relu", "Exp"), ask)

    assert reasons == {"exp_0": "no kernel for Exp", "exp_1": "no kernel for Exp"}
    assert sorted(asked[1:]) == [["Exp"], ["Relu"]]


def test_when_no_node_is_to_blame_there_is_no_opinion() -> None:
    assert refused_nodes(chain("Relu", "Exp"), lambda m: "too long" if len(m.graph) > 1 else None) is None
