"""Match how keys and values of attention are brought into the shape in which they are multiplied."""

from __future__ import annotations

from collage_core.patterns import NodeContext, Pattern, is_op, wildcard


def grouped(value: Pattern) -> Pattern:
    """Match keys or values, or copies of them: each head repeated for a group of query heads."""
    return is_op("Reshape")(_repeated(value), ...).which(_merges_groups, "of the heads and their copies") | value


def transposed_key(key: Pattern | None) -> Pattern:
    """Match keys with their last two axes swapped, the layout of the product with the queries.

    Args:
        key: Pattern of the keys before the transposition; None for any value, captured as `k` where it is [...,
            keys, size], as `k_heads_last` where it is [batch, keys, heads, size], and as `k_transposed` where
            only the transposed keys are known.
    """
    k = wildcard().named("k") if key is None else key
    heads_last = wildcard().named("k_heads_last") if key is None else key
    exchanged = is_op("Transpose")(grouped(k)).which(_exchanges_last, "an exchange of the last two axes")
    from_heads_last = is_op("Transpose")(heads_last).has_attr(perm=(0, 2, 3, 1))
    whole = exchanged | _through_three_axes(_repeated(k) | k) | from_heads_last
    return whole if key is not None else whole | wildcard().named("k_transposed")


def _repeated(value: Pattern) -> Pattern:
    """Match heads copied along a new axis: [batch, heads, copies, keys, size] from [batch, heads, keys, size].

    The operand may already have the axis of the copies. The Unsqueeze that makes the axis is a view, and a kernel
    function that begins with the copies does not include it.
    """
    apart = is_op("Unsqueeze")(value, ...) | value
    return is_op("Expand", "Tile")(apart, ...).which(_only_copies, "copies of heads")


def _through_three_axes(value: Pattern) -> Pattern:
    """Match the dynamo exporter's transposition, which temporarily merges all axes before the last two."""
    flat = is_op("Reshape")(value, ...).which(_keeps_last_two, "a reshape of other axes than the last two")
    exchanged = is_op("Transpose")(flat).has_attr(perm=(0, 2, 1))
    return is_op("Reshape")(exchanged, ...).which(_keeps_last_two, "a reshape of other axes than the last two")


def _shapes(node: NodeContext) -> tuple[tuple[int | None, ...], tuple[int | None, ...]] | None:
    """Return the shapes of a node's first operand and first output, if both are known."""
    data = node.inputs[0]
    if data is None or data.shape is None or node.outputs[0].shape is None:
        return None
    return data.shape, node.outputs[0].shape


def _exchanges_last(node: NodeContext) -> bool:
    order = node.attribute("perm", ())
    rank = len(order)
    return rank >= 2 and order == (*range(rank - 2), rank - 1, rank - 2)


def _keeps_last_two(node: NodeContext) -> bool:
    shapes = _shapes(node)
    return shapes is not None and min(map(len, shapes)) >= 2 and shapes[0][-2:] == shapes[1][-2:]


def _only_copies(node: NodeContext) -> bool:
    """Check that a node only copies along the third axis of five, from extent one to several."""
    shapes = _shapes(node)
    if shapes is None or len(shapes[0]) != 5 or len(shapes[1]) != 5:
        return False
    before, after = shapes
    return before[2] == 1 and before[:2] == after[:2] and before[3:] == after[3:]


def _merges_groups(node: NodeContext) -> bool:
    shapes = _shapes(node)
    if shapes is None or len(shapes[0]) != 5:
        return False
    batch, heads, copies, *others = shapes[0]
    return heads is not None and copies is not None and shapes[1] == (batch, heads * copies, *others)
