from __future__ import annotations

import numpy as np
import onnx
import pytest

from collage_core.patterns import Match, match
from collage_core.patterns.library.attention import attention_pattern
from collage_core.patterns.library.attention_facts import attention_of
from tests.core.patterns.library import formulas
from tests.core.patterns.library.written import Writer

BATCH, HEADS, GROUPS, QUERIES, KEYS, SIZE = 2, 4, 2, 5, 6, 8
SCALE = 0.3
FLOAT, HALF = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16


def written(
    seed: int, *, low: float = -np.inf, empty: float = 0.0, axis: int = -1, half: bool = False
) -> tuple[Writer, str]:
    """Attention whose scale, transposition, mask, guard and groups of heads are written in a random way.

    In half precision the scores become wider before or behind the mask, or not at all.
    """
    to = Writer(seed)
    choose, dtype = to.draw.choice, HALF if half else FLOAT
    number = np.float16 if half else np.float32
    q = to.given("q", (BATCH, HEADS, QUERIES, SIZE), dtype)
    layout = choose(["exchanged", "heads_last", "three_axes", "grouped", "grouped_three_axes", "transposed"])
    keys = transposed_keys(to, layout, dtype)
    if "grouped" in layout:
        values = to.op("Reshape", copied(to, "v", dtype), to.constant((BATCH, HEADS, KEYS, SIZE), np.int64))
    else:
        values = to.given("v", (BATCH, HEADS, KEYS, SIZE), dtype)
    where = choose(["both", "q", "factor", "divisor"])
    if where == "both":
        q, keys = (to.times(each, SCALE**0.5, number) for each in (q, keys))
    elif where == "q":
        q = to.times(q, SCALE, number)
    scores = to.op("MatMul", q, keys)
    if where == "factor":
        scores = to.either("Mul", scores, to.constant([SCALE], number))
    elif where == "divisor":
        scores = to.op("Div", scores, to.constant(1 / SCALE, number))
    wider = choose(["before", "behind", "never"]) if half else "never"
    if wider == "before":
        scores, number = to.op("Cast", scores, to=FLOAT), np.float32
    masked = choose(["not", "added", "kept", "masked", "both"])
    if masked in ("kept", "both"):
        seen = to.given("seen", (BATCH, 1, QUERIES, KEYS), onnx.TensorProto.BOOL)
        scores = to.op("Where", seen, scores, to.constant(low, number))
    elif masked == "masked":
        hidden = to.given("hidden", (QUERIES, KEYS), onnx.TensorProto.BOOL)
        scores = to.op("Where", hidden, to.constant(low, number), scores)
    if masked in ("added", "both"):
        scores = to.either(
            "Add", scores, to.given("bias", (1, HEADS, QUERIES, KEYS), FLOAT if wider == "before" else dtype)
        )
    if wider == "behind":
        scores, number = to.op("Cast", scores, to=FLOAT), np.float32
    weights = to.op("Softmax", scores, axis=axis)
    if choose([True, False]):
        weights = to.op("Where", to.op("IsNaN", weights), to.constant(empty, number), weights)
    if wider != "never":
        for other in choose([[], [FLOAT], [FLOAT, FLOAT]]):
            weights = to.op("Cast", weights, to=other)
        weights = to.op("Cast", weights, to=dtype)
    return to, to.op("MatMul", weights, values)


def copied(to: Writer, name: str, dtype: int = FLOAT) -> str:
    """[batch, heads of keys, copies, keys, size]."""
    apart = to.op("Unsqueeze", to.given(name, (BATCH, HEADS // GROUPS, KEYS, SIZE), dtype), to.constant([2], np.int64))
    return to.op("Expand", apart, to.constant((BATCH, HEADS // GROUPS, GROUPS, KEYS, SIZE), np.int64))


def transposed_keys(to: Writer, layout: str, dtype: int) -> str:
    """[batch, heads, size, keys], from any layout."""
    if layout == "transposed":
        return to.given("k", (BATCH, HEADS, SIZE, KEYS), dtype)
    if layout == "heads_last":
        return to.op("Transpose", to.given("k", (BATCH, KEYS, HEADS, SIZE), dtype), perm=[0, 2, 3, 1])
    k = copied(to, "k", dtype) if "grouped" in layout else to.given("k", (BATCH, HEADS, KEYS, SIZE), dtype)
    if layout == "grouped":
        k = to.op("Reshape", k, to.constant((BATCH, HEADS, KEYS, SIZE), np.int64))
    if layout in ("exchanged", "grouped"):
        return to.op("Transpose", k, perm=[0, 1, 3, 2])
    flat = to.op("Reshape", k, to.constant((-1, KEYS, SIZE), np.int64))
    turned = to.op("Transpose", flat, perm=[0, 2, 1])
    return to.op("Reshape", turned, to.constant((BATCH, HEADS, SIZE, KEYS), np.int64))


@pytest.mark.parametrize("half", [False, True], ids=["float", "half"])
@pytest.mark.parametrize("seed", range(32))
def test_attention_written_in_any_way_is_found_whole_and_computes_the_formula(seed: int, half: bool) -> None:
    to, output = written(seed, half=half)
    graph = to.graph(output)

    found = match(attention_pattern(), graph, len(graph) - 1)

    assert isinstance(found, Match), found
    assert found.nodes == graph.all_mask
    facts = attention_of(found)
    assert facts.scale == pytest.approx(SCALE, rel=1e-2 if half else 1e-5)
    result, values = formulas.computed(found)
    wanted = formulas.attention(facts, values)
    np.testing.assert_allclose(result, wanted, rtol=1e-2 if half else 1e-4, atol=1e-2 if half else 1e-5)


@pytest.mark.parametrize(
    "wrong", [{"low": -5.0}, {"empty": 0.5}, {"axis": -2}], ids=["weak_mask", "no_zero_rows", "over_queries"]
)
def test_what_computes_something_else_is_no_attention(wrong: dict[str, float]) -> None:
    """Each of these is wrong only where the graph has that part, which some of these graphs have."""
    other = 0
    for seed in range(12):
        to, output = written(seed, **wrong)  # type: ignore[arg-type]
        graph = to.graph(output)
        root = len(graph) - 1
        parts = {node.op_type for node in graph.nodes}
        is_wrong = {
            "low": "Where" in parts and any(value.name in ("seen", "hidden") for value in graph.model.graph.inputs),
            "empty": "IsNaN" in parts,
            "axis": True,
        }[next(iter(wrong))]
        assert bool(match(attention_pattern(), graph, root)) != is_wrong
        other += is_wrong
    assert other


def test_a_mask_is_demanded_or_excluded() -> None:
    for seed in range(12):
        to, output = written(seed)
        graph = to.graph(output)
        root = len(graph) - 1
        masked = any(value.name in ("seen", "hidden", "bias") for value in graph.model.graph.inputs)

        assert bool(match(attention_pattern(mask=True), graph, root)) == masked
        assert bool(match(attention_pattern(mask=False), graph, root)) != masked


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mask", ["none", "added", "boolean"])
def test_the_operator_computes_the_formula(mask: str, causal: bool) -> None:
    to = Writer(0)
    q = to.given("q", (BATCH, HEADS, KEYS, SIZE))
    k, v = (to.given(name, (BATCH, HEADS // GROUPS, KEYS, SIZE)) for name in ("k", "v"))
    masks = []
    if mask != "none":
        kind = onnx.TensorProto.FLOAT if mask == "added" else onnx.TensorProto.BOOL
        masks = [to.given("m", (BATCH, 1, KEYS, KEYS), kind)]
    graph = to.graph(to.op("Attention", q, k, v, *masks, is_causal=int(causal)))

    found = match(attention_pattern(mask=mask != "none"), graph, 0)

    assert isinstance(found, Match), found
    facts = attention_of(found)
    assert (facts.groups, facts.causal) == (GROUPS, causal)
    assert facts.scale == pytest.approx(SIZE**-0.5)
    assert not match(attention_pattern(mask=mask == "none"), graph, 0)
    if causal and masks:
        return  # the formula has either
    result, values = formulas.computed(found)
    np.testing.assert_allclose(result, formulas.attention(facts, values), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("meaning", ["added", "kept_where", "masked_where"])
def test_a_constant_mask_of_the_past_is_causal(meaning: str) -> None:
    def facts(seen: np.ndarray) -> bool:
        to = Writer(0)
        q, k, v = (to.given(name, (1, 2, 4, 3)) for name in "qkv")
        scores = to.op("MatMul", q, to.op("Transpose", k, perm=[0, 1, 3, 2]))
        low = to.constant(-np.inf)
        if meaning == "added":
            scores = to.op("Add", scores, to.constant(np.where(seen, 0, -1e9)))
        elif meaning == "kept_where":
            scores = to.op("Where", to.constant(seen, np.bool_), scores, low)
        else:
            scores = to.op("Where", to.constant(~seen, np.bool_), low, scores)
        graph = to.graph(to.op("MatMul", to.op("Softmax", scores), v))
        found = match(attention_pattern(), graph, len(graph) - 1)
        assert isinstance(found, Match), found
        return attention_of(found).causal

    past = np.tri(4, dtype=bool)
    assert facts(past)
    assert not facts(past.T)
    assert not facts(np.ones((4, 4), dtype=bool))


def test_copies_of_heads_before_the_operator_are_inside() -> None:
    to = Writer(0)
    q, shape = to.given("q", (BATCH, HEADS, QUERIES, SIZE)), to.constant((BATCH, HEADS, KEYS, SIZE), np.int64)
    k, v = (to.op("Reshape", copied(to, name), shape) for name in ("k", "v"))
    graph = to.graph(to.op("Attention", q, k, v))

    found = match(attention_pattern(), graph, len(graph) - 1)

    assert isinstance(found, Match), found
    assert found.nodes == graph.all_mask
    assert attention_of(found).groups == GROUPS


def test_copies_along_an_axis_that_is_made_outside_are_inside() -> None:
    """As in the function of a kernel, which does not hold the view it would begin with."""
    to = Writer(0)
    q, shape = to.given("q", (BATCH, HEADS, QUERIES, SIZE)), to.constant((BATCH, HEADS, KEYS, SIZE), np.int64)
    copies = to.constant((BATCH, HEADS // GROUPS, GROUPS, KEYS, SIZE), np.int64)
    apart = [to.given(name, (BATCH, HEADS // GROUPS, 1, KEYS, SIZE)) for name in ("k", "v")]
    k, v = (to.op("Reshape", to.op("Expand", each, copies), shape) for each in apart)
    keys = to.op("Transpose", k, perm=[0, 1, 3, 2])
    graph = to.graph(to.op("MatMul", to.op("Softmax", to.op("MatMul", q, keys), axis=-1), v))

    found = match(attention_pattern(), graph, len(graph) - 1)

    assert isinstance(found, Match), found
    assert found.nodes == graph.all_mask
    assert attention_of(found).groups == GROUPS


def test_softcapped_scores_are_another_function() -> None:
    to = Writer(0)
    q, k, v = (to.given(name, (1, 2, 4, 3)) for name in "qkv")
    graph = to.graph(to.op("Attention", q, k, v, softcap=20.0))

    assert not match(attention_pattern(), graph, 0)
