"""Count what GPU toolchains take of the convolutions and attention blocks of five models.

The page is `docs/generated/gpu-claims.md`.

python -m benchmarks.gpu_claims            prints the page
python -m benchmarks.gpu_claims --write    puts it there

Needs no GPU, but TensorRT for RTX, whose importer is asked. What there is to take is found by following readers through
a graph, not by patterns.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import onnx_ir

from benchmarks.models import MODELS
from benchmarks.page import lines_of
from collage.prepare.steps import prepare
from collage_core.candidates.proposals import Proposals, propose, target_rule
from collage_core.contract import Joins, Target, Unsupported
from collage_core.fusion import CandidateBounds, SubGraph, kernel_function
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.patterns import Match
from collage_core.registry import Toolchain
from collage_cudnn.plugin import plugin as cudnn
from collage_cutlass.plugin import plugin as cutlass
from collage_tensorrt.plugin import tensorrt_rtx
from tests.exports.reading import read
from tests.halved import halved
from tests.resnext import resnext

PAGE = Path(__file__).parent.parent / "docs" / "generated" / "gpu-claims.md"
DTYPES = ("float32", "float16")
_BOUNDS = CandidateBounds.preset("quick")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Claimant:
    """A toolchain, on a machine that need not be present.

    Attributes:
        toolchain: The toolchain.
        target: Its plain target.
        asks: Whether its library is first queried about the whole model.
    """

    toolchain: Toolchain
    target: Target
    asks: bool = False


CLAIMANTS: Mapping[str, Claimant] = {
    "cudnn": Claimant(
        toolchain=Toolchain("cudnn", cudnn),
        target=Target(toolchain="cudnn", device="cuda:0", fingerprint="claims"),  # groups; regions are joined of these
    ),
    "cutlass": Claimant(
        toolchain=Toolchain("cutlass", cutlass),
        target=Target(toolchain="cutlass", device="cuda:0", fingerprint="claims"),
    ),
    "tensorrt_rtx": Claimant(
        toolchain=Toolchain("tensorrt_rtx", tensorrt_rtx),
        target=Target(toolchain="tensorrt_rtx", device="cuda:0", fingerprint="claims", joins=Joins.ANY),
        asks=True,
    ),
}

Alternatives = tuple[int, ...]
"""Masks of nodes, one of which has to be claimed: a block's addition can follow either of its convolutions."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Blocks of one sort in a model.

    Attributes:
        about: Description of the sort.
        exactly: Whether a candidate has to consist of the block alone, as for a chain; otherwise it may be a larger
            part of the model.
        things: The blocks.
    """

    about: str
    exactly: bool
    things: tuple[Alternatives, ...]


def convolutions(graph: DataflowGraph) -> list[Part]:
    """Return each convolution alone, with a ReLU that is its only reader, and with a sum and the ReLU after it."""
    alone = tuple((1 << index,) for index, node in enumerate(graph.nodes) if node.op_type == "Conv")
    activated: list[Alternatives] = []
    added: dict[int, Alternatives] = {}
    for (mask,) in alone:
        reader = _only_reader(graph, mask.bit_length() - 1)
        if reader is not None and graph.nodes[reader].op_type == "Relu":
            activated.append((mask | 1 << reader,))
        behind = None if reader is None else _only_reader(graph, reader)
        if reader is not None and behind is not None and graph.nodes[reader].op_type in ("Add", "Sum"):
            assert graph.nodes[behind].op_type == "Relu"
            added[reader] = (*added.get(reader, ()), mask | 1 << reader | 1 << behind)
    return [
        Part(about="convolutions", exactly=True, things=alone),
        Part(about="with the ReLU behind", exactly=True, things=tuple(activated)),
        Part(about="with a residual and the ReLU behind", exactly=True, things=tuple(added.values())),
    ]


def attention(graph: DataflowGraph) -> list[Part]:
    """Return each softmax with the product before and after it, or a single attention operator."""
    products = sum(1 << index for index, node in enumerate(graph.nodes) if node.op_type == "MatMul")
    things: list[Alternatives] = []
    for index, node in enumerate(graph.nodes):
        if node.op_type == "Attention":
            things.append((1 << index,))
        elif node.op_type == "Softmax":
            scores = (graph.ancestors[index] & products).bit_length() - 1
            behind = graph.descendants[index] & products
            things.append((1 << index | 1 << scores | behind & -behind,))
    return [Part(about="attention blocks", exactly=False, things=tuple(things))]


def _only_reader(graph: DataflowGraph, index: int) -> int | None:
    [output] = graph.nodes[index].outputs
    readers = list(iterate_bits(graph.users(output)))
    return readers[0] if len(readers) == 1 else None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A model of the page.

    Attributes:
        title: Display name.
        make: Makes the model, in float32.
        parts: Finds the blocks to cover.
    """

    title: str
    make: Callable[[], onnx_ir.Model]
    parts: Callable[[DataflowGraph], list[Part]]


def _suite(name: str) -> onnx_ir.Model:
    model: onnx_ir.Model = onnx_ir.from_proto(MODELS[name].build(0))
    return model


SOURCES: Mapping[str, Source] = {
    "resnet50": Source(title="ResNet-50", make=functools.partial(_suite, "resnet50"), parts=convolutions),
    "resnext50": Source(title="ResNeXt-50", make=resnext, parts=convolutions),
    **{
        name: Source(title=title, make=functools.partial(read, name, "torchscript"), parts=attention)
        for name, title in (("bert", "BERT"), ("vit", "ViT"), ("gpt2", "GPT-2"))
    },
}


def graph_of(name: str, dtype: str) -> DataflowGraph:
    """Return the prepared graph of a model of `SOURCES`, in a type of `DTYPES`."""
    model = prepare(SOURCES[name].make())
    if dtype != "float32":
        model = halved(model)
    return DataflowGraph(model)


def proposals_of(graph: DataflowGraph, claimant: Claimant) -> Proposals:
    """Return the proposals of a toolchain for a model."""
    query: dict[int, str] = {}
    if claimant.asks:
        function = kernel_function(SubGraph(graph, graph.all_mask), "model")
        refused = claimant.toolchain.query(claimant.target, function) or {}
        query = {graph.index_of(name): reason for name, reason in refused.items()}
    return propose(target_rule(claimant.toolchain, claimant.target, query), graph, _BOUNDS, cuts=None)


def cell(graph: DataflowGraph, parts: Sequence[Part], claimant: Claimant) -> str:
    """Count how many of each part a toolchain takes and give the reasons for the rest."""
    found = proposals_of(graph, claimant)
    candidates = {each.sub_graph.nodes & graph.needs_kernel for each in found.candidates}
    said: list[str] = []
    reasons: collections.Counter[str] = collections.Counter()
    for part in parts:
        left = [thing for thing in part.things if not _is_taken(thing, part.exactly, candidates, graph)]
        taken = len(part.things) - len(left)
        count = "all" if not left else f"{taken} of" if taken else "none of"
        said.append(f"{count} {len(part.things)} {part.about}")
        reasons.update(_reason(found, thing, claimant) for thing in left)
    because = "; ".join(f"{reason} ({count})" for reason, count in reasons.items())
    return ", ".join(said) + (f": {because}" if because else "")


def _is_taken(thing: Alternatives, exactly: bool, candidates: set[int], graph: DataflowGraph) -> bool:
    if exactly:
        return not candidates.isdisjoint(thing)
    return any(not mask & ~each and graph.needs_kernel & ~each for mask in thing for each in candidates)


def _reason(found: Proposals, thing: Alternatives, claimant: Claimant) -> str:
    """Return why a part is not taken: the refusal of a pattern that matches all of it, else that of a node."""
    graph, mask = found.graph, thing[0]
    for entry in claimant.toolchain.pattern_table(claimant.target).patterns:
        for index in iterate_bits(mask):
            match = entry.match(graph, index)
            if isinstance(match, Match) and not mask & ~match.nodes and entry.check is not None:
                answer = entry.check(match)
                if isinstance(answer, Unsupported):
                    return answer.reason
    # that of what makes it such a thing comes before that of a product, which others have, too
    places = sorted(iterate_bits(mask), key=lambda index: graph.nodes[index].op_type not in ("Conv", "Softmax"))
    return next((found.refusals[index] for index in places if index in found.refusals), "no reason given")


def row(name: str, toolchain: str) -> tuple[str, ...]:
    """Return the table row of one toolchain on one model, with a cell for each dtype."""
    cells = []
    for dtype in DTYPES:
        graph = graph_of(name, dtype)
        cells.append(cell(graph, SOURCES[name].parts(graph), CLAIMANTS[toolchain]))
    return SOURCES[name].title, toolchain, *cells


HEAD = """# What toolchains for GPUs take of five models

Made by `python -m benchmarks.gpu_claims --write`; a test compares. The convolutions are those of ResNet-50 of the model
suite and of a ResNeXt-50 with a sixteenth of its channels. The attention blocks are those of the exports in
`tests/exports`. In float16 a model is what casting all of it gives. `tensorrt_rtx` is the importer of TensorRT for RTX
1.7.1.

A convolution is taken with what follows it if one candidate is just that. An attention block is taken if a candidate
that is not the whole model has both its products and the softmax between them. A refusal is given in the toolchain's
own words, with its count.
"""


def page() -> str:
    """Generate the page."""
    lines = lines_of(("model", "toolchain", *DTYPES), _rows())
    return HEAD + "\n" + "\n".join(lines) + "\n"


def _rows() -> Iterator[tuple[str, ...]]:
    for name in SOURCES:
        for toolchain in CLAIMANTS:
            yield row(name, toolchain)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the page into docs/generated/")
    if parser.parse_args().write:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page(), end="")


if __name__ == "__main__":
    main()
