"""Name the kernels of a plan by what they do and where: `openvino · conv block 3`."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

from collage.report.facts.record import RegionFacts
from collage_core.ir.operators.op_kind import OpPatternKind, known_kind

WHOLE = "whole model"
_SPELT_OUT = 3
"""Operators up to which a kernel is named by all of them."""
_WORDS = {
    "Conv": "conv",
    "ConvInteger": "conv",
    "ConvTranspose": "transposed conv",
    "DeformConv": "deformable conv",
    "Einsum": "einsum",
    "Gemm": "matmul",
    "MatMul": "matmul",
    "MatMulInteger": "matmul",
    "QLinearConv": "conv",
    "QLinearMatMul": "matmul",
}
"""Words for the operators that blocks are named by; other anchors go by their own name."""
_MOVES_ONLY = frozenset({"Constant", "Flatten", "Identity", "Reshape", "Shape", "Squeeze", "Unsqueeze"})
"""Operators that say nothing of what a kernel computes."""


def region_titles(regions: Sequence[RegionFacts], functions: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a title for each region, by its id: the toolchain, and what the kernel does.

    Options of the target are left out: viewers shorten long names. Netron 9 keeps the first and the last ten characters
    of those with more than 21.

    Regions that call the same function share a title, that of the first of them; different functions have different
    titles, numbered in execution order.

    Args:
        regions: The regions of one plan, in execution order.
        functions: Name of the function that each region calls, by the region's id; if None, regions of a target with
            the same operators are taken to do the same.
    """

    def function_of(region: RegionFacts) -> object:
        return (region.target, region.operators) if functions is None else functions.get(region.id, region.id)

    first: dict[object, RegionFacts] = {}
    for region in regions:
        first.setdefault(function_of(region), region)
    said = {
        function: f"{region.toolchain} · {WHOLE if len(regions) == 1 else what_it_does(region)}"
        for function, region in first.items()
    }
    shared = {title for title, count in Counter(said.values()).items() if count > 1}
    taken = set(said.values()) - shared
    titles: dict[object, str] = {}
    for function, title in said.items():
        numbered = (f"{title} {number}" for number in itertools.count(1))
        titles[function] = next(each for each in numbered if each not in taken) if title in shared else title
        taken.add(titles[function])
    return {region.id: titles[function_of(region)] for region in regions}


def what_it_does(region: RegionFacts) -> str:
    """Return what a kernel does in a few words.

    A kernel that a library's pattern proposed has the pattern's label. Others are named by their operators: all of them
    if they are few, or else those that do the heavy work.
    """
    if region.composite:  # Netron shows what is after the last dot
        return region.composite.removeprefix(f"{region.toolchain}.").replace(".", " ")
    operators = [operator for operator in region.operators if operator not in _MOVES_ONLY] or list(region.operators)
    if len(operators) <= _SPELT_OUT:
        return " + ".join(operators)
    anchors = list(dict.fromkeys(_WORDS.get(each, each) for each in operators if _is_heavy(each)))
    if "Softmax" in operators and operators.count("MatMul") > 1 and set(anchors) == {"matmul"}:
        return "attention block"
    if not anchors:
        reduced = any(known_kind(each) == OpPatternKind.REDUCTION for each in operators)
        return "reduction block" if reduced else "element-wise block"
    if len(anchors) <= _SPELT_OUT:
        return f"{' and '.join(anchors)} block"
    return f"{' and '.join(anchors[:2])} and more, block"


def place(nodes: Sequence[str]) -> str:
    """Return where in the model some nodes are: the scope that all are in, or the first and the last of them.

    Args:
        nodes: Names of nodes, in execution order.

    Examples:
        >>> place(["/layer1/layer1.0/conv1/Conv", "/layer1/layer1.0/relu/Relu"])
        '/layer1/layer1.0'
        >>> place(["conv_1", "relu_1", "conv_2"]), place(["pool"])
        ('conv_1 to conv_2', 'pool')
    """
    if len(nodes) == 1:
        return nodes[0]
    parts = [name.split("/") for name in nodes]
    shared = []
    for step in zip(*parts, strict=False):
        if len(set(step)) > 1:
            break
        shared.append(step[0])
    scope = "/".join(shared)
    return scope if scope.strip("/") and scope not in nodes else f"{nodes[0]} to {nodes[-1]}"


def _is_heavy(operator: str) -> bool:
    kind = known_kind(operator)
    return kind == OpPatternKind.OUT_ELEMENTWISE_FUSABLE or operator in ("GRU", "LSTM", "RNN")
