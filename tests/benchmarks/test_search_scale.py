"""The models of the search benchmark are as large as it says, and a case runs through and reports."""

from __future__ import annotations

from benchmarks.search_models import densenet, transformer
from benchmarks.search_scale import HEADINGS, row, searched


def test_densenet_has_the_nodes_of_the_file_in_the_zoo() -> None:
    operators = [node.op_type for node in densenet().graph]

    assert len(operators) == 910
    assert operators.count("Conv") == 121  # 120 and the classifier, which that file makes a convolution
    assert operators.count("BatchNormalization") == 121
    assert operators.count("Concat") == 58


def test_each_layer_of_the_transformer_adds_as_many_nodes() -> None:
    sizes = [len(transformer(layers).graph) for layers in (1, 2, 3)]

    assert sizes == [34, 68, 102]


def test_a_case_is_searched_exactly_and_reported() -> None:
    found = searched("bert-12", transformer(2))

    assert found["exact"]
    assert found["nodes"] == 68
    assert not found["left_out"]
    assert len(row(found)) == len(HEADINGS)
