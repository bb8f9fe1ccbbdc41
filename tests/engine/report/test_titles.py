from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collage.report.facts.record import RegionFacts
from collage.report.picture.titles import place, region_titles, what_it_does


def region(number: int, operators: tuple[str, ...], target: str = "openvino", composite: str = "") -> RegionFacts:
    return RegionFacts(
        id=f"k{number:04d}",
        toolchain=target,
        target=target,
        composite=composite,
        nodes=tuple(f"node_{number}_{at}" for at in range(len(operators))),
        operators=operators,
        cost_us=1.0,
    )


CONVS = ("Conv", "Relu", "Conv", "Relu", "Add")


@pytest.mark.parametrize(
    ("operators", "words"),
    [
        (("Resize",), "Resize"),
        (("Conv", "Relu"), "Conv + Relu"),
        (("Reshape", "Softmax", "Identity"), "Softmax"),
        (("Reshape",), "Reshape"),
        (CONVS, "conv block"),
        (("MatMul", "Add", "Conv", "Relu"), "matmul and conv block"),
        (("MatMul", "Div", "Softmax", "MatMul"), "attention block"),
        (("MatMul", "Div", "Softmax", "Conv", "MatMul"), "matmul and conv block"),
        (("Add", "Mul", "Relu", "Exp"), "element-wise block"),
        (("ReduceMean", "Sub", "Mul", "Div"), "reduction block"),
        (("LSTM", "Add", "Mul", "Relu"), "LSTM block"),
        (("Conv", "MatMul", "Einsum", "MaxPool", "Relu"), "conv and matmul and more, block"),
    ],
)
def test_a_kernel_is_named_by_its_operators(operators: tuple[str, ...], words: str) -> None:
    assert what_it_does(region(0, operators)) == words


def test_a_librarys_pattern_names_its_kernel() -> None:
    assert what_it_does(region(0, CONVS, composite="conv_bias_relu")) == "conv_bias_relu"


def test_a_title_has_no_dot_and_the_toolchain_once() -> None:
    regions = [
        region(0, CONVS, target="cudnn", composite="cudnn.conv_bias"),
        region(1, CONVS, composite="other.conv.act"),
    ]

    assert list(region_titles(regions).values()) == ["cudnn · conv_bias", "openvino · other conv act"]


def test_titles_are_numbered_where_several_functions_do_the_same() -> None:
    regions = [region(0, CONVS), region(1, ("Resize",)), region(2, (*CONVS, "Relu")), region(3, CONVS)]
    functions = {"k0000": "a", "k0001": "b", "k0002": "c", "k0003": "a"}

    assert list(region_titles(regions, functions).values()) == [
        "openvino · conv block 1",
        "openvino · Resize",
        "openvino · conv block 2",
        "openvino · conv block 1",
    ]


def test_calls_of_one_function_share_the_title_of_the_first() -> None:
    """The model may have the branches of equal blocks in another order."""
    regions = [region(0, ("Sigmoid", "Tanh")), region(1, ("Tanh", "Sigmoid")), region(2, ("Relu",))]

    titles = region_titles(regions, {"k0000": "f", "k0001": "f", "k0002": "g"})

    assert titles["k0000"] == titles["k0001"] == "openvino · Sigmoid + Tanh"


def test_a_number_never_makes_two_titles_one() -> None:
    regions = [region(0, CONVS, composite="a 2"), region(1, CONVS, composite="a"), region(2, CONVS, composite="a")]

    titles = region_titles(regions, {each.id: each.id for each in regions})

    assert list(titles.values()) == ["openvino · a 2", "openvino · a 1", "openvino · a 3"]


def test_options_of_a_target_are_left_out() -> None:
    spinning = dataclasses.replace(region(0, ("Relu",)), target="openvino(precision=bf16)")

    assert list(region_titles([spinning, region(1, ("Relu",))]).values()) == ["openvino · Relu 1", "openvino · Relu 2"]


def test_one_kernel_for_everything_is_the_whole_model() -> None:
    assert region_titles([region(0, CONVS)]) == {"k0000": "openvino · whole model"}


@given(st.lists(st.tuples(st.sampled_from([CONVS, (*CONVS, "Relu"), ("Resize",)]), st.sampled_from("ab")), max_size=8))
def test_functions_have_the_same_title_exactly_if_they_are_the_same(
    drawn: list[tuple[tuple[str, ...], str]],
) -> None:
    regions = [region(number, operators) for number, (operators, _) in enumerate(drawn)]
    functions = {each.id: f"{each.operators}{which}" for each, (_, which) in zip(regions, drawn, strict=True)}

    titles = region_titles(regions, functions)

    assert len(set(titles.values())) == len(set(functions.values()))
    assert all((titles[a.id] == titles[b.id]) == (functions[a.id] == functions[b.id]) for a in regions for b in regions)


def test_without_functions_the_same_operators_are_the_same_kernel() -> None:
    regions = [
        region(0, CONVS),
        dataclasses.replace(region(1, CONVS), nodes=("other",) * 5),
        region(2, (*CONVS, "Relu")),
    ]

    assert list(region_titles(regions).values()) == [
        "openvino · conv block 1",
        "openvino · conv block 1",
        "openvino · conv block 2",
    ]


@pytest.mark.parametrize(
    ("nodes", "where"),
    [
        (["a"], "a"),
        (["/a/b/conv", "/a/b/relu"], "/a/b"),
        (["/a/conv", "/b/relu"], "/a/conv to /b/relu"),
        (["a/b", "a/b/c"], "a/b to a/b/c"),
        (["first", "second", "third"], "first to third"),
    ],
)
def test_a_kernel_is_placed_by_the_scope_of_its_nodes(nodes: list[str], where: str) -> None:
    assert place(nodes) == where
