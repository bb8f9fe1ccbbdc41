"""Coverage of real models by `collage-triton`, as the table in its README; needs neither a GPU nor Triton.

python -m benchmarks.triton_claims            prints it
python -m benchmarks.triton_claims --write    puts it into the README
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import onnx_ir

from benchmarks.models import MODELS
from benchmarks.page import lines_of
from collage.prepare.steps import prepare
from collage_core.candidates.proposals import Proposals, propose, target_rule
from collage_core.contract import Device
from collage_core.fusion import CandidateBounds
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.registry import Toolchain
from collage_triton.plugin import TritonPlugin, targets
from tests.exports.blocks import CONFIGURATIONS
from tests.exports.reading import read

README = Path(__file__).parent.parent / "plugins" / "collage-triton" / "README.md"
BEGIN, END = "<!-- python -m benchmarks.triton_claims --write -->", "<!-- end -->"
EXPORT_FORM = "torchscript_old"
"""The export form with most nodes: norms, activations and attention are decomposed."""

_DEVICE = Device(name="cuda:0", model="NVIDIA H200", compute_capability="9.0", driver="580.65.06", memory_bytes=0)
_BOUNDS = CandidateBounds.preset("quick")
_MODULES = re.compile(r"(norm(_\w+)?|ln_\w+|act|act_fn|activation_fn|downsampling_layer\.0)$", re.IGNORECASE)
"""Names that models' authors give norms and activations, as exporters keep them.

The last alternative is one of ConvNeXt's norms.
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Claims:
    """Coverage of one model.

    Attributes:
        name: Name of the model.
        nodes: Number of nodes that need a kernel.
        taken: Number of these that are in some candidate.
        refused: Number of nodes in no candidate, by operator.
        groups: Number of candidates, single nodes included.
        modules: Number of decomposed norms and activations, by the names in the model.
        whole: Number of these that are a candidate.
        largest: Most nodes of a candidate.
    """

    name: str
    nodes: int
    taken: int
    refused: Mapping[str, int]
    groups: int
    modules: int
    whole: int
    largest: int

    def row(self) -> tuple[str, ...]:
        """Return the model's row of the table."""
        refused = ", ".join(f"{count} {operator}" for operator, count in sorted(self.refused.items()))
        blocks = f"{self.whole} of {self.modules}" if self.modules else ""
        share = f"{100 * self.taken / self.nodes:.1f} %"
        counts = (str(self.nodes), str(self.taken), share, refused, blocks, str(self.groups), str(self.largest))
        return (self.name, *counts)


HEADINGS = (
    "Model",
    "Nodes",
    "Taken",
    "Share",
    "Left to others",
    "Norms and activations whole",
    "Candidates",
    "Largest",
)


def model_of(name: str) -> onnx_ir.Model:
    """Load and prepare a model of the suite, or an export."""
    if name in CONFIGURATIONS:
        return prepare(read(name, EXPORT_FORM))
    entry = MODELS[name]
    shapes = {name: array.shape for name, array in entry.make_inputs().items()}
    return prepare(onnx_ir.from_proto(entry.skeleton()), input_shapes=shapes)


def proposals_for(graph: DataflowGraph) -> Proposals:
    """Return the toolchain's proposals for a graph on a machine with a GPU."""
    target = targets("3.6.0", [_DEVICE])[0]
    rule = target_rule(Toolchain("triton", TritonPlugin()), target, {})
    return propose(rule, graph, _BOUNDS)


def modules_of(graph: DataflowGraph) -> dict[str, int]:
    """Return the multi-node norms and activations, as the model names them: masks of nodes, by name.

    Transposes that bring elements into a norm's layout are not included.
    """
    found: dict[str, int] = {}
    for index in iterate_bits(graph.needs_kernel):
        module = graph.names[index].rpartition("/")[0]
        if _MODULES.search(module) and graph.nodes[index].op_type != "Transpose":
            found[module] = found.get(module, 0) | 1 << index
    return {module: nodes for module, nodes in found.items() if nodes.bit_count() > 1}


def claims_of(name: str, graph: DataflowGraph) -> Claims:
    """Count the nodes and modules of a model that the toolchain takes."""
    found = proposals_for(graph)
    refused = graph.needs_kernel & ~found.covered
    sets = [each.sub_graph.nodes & graph.needs_kernel for each in found.candidates]
    modules = modules_of(graph)
    return Claims(
        name=name,
        nodes=graph.needs_kernel.bit_count(),
        taken=(found.covered & graph.needs_kernel).bit_count(),
        refused=collections.Counter(graph.nodes[index].op_type for index in iterate_bits(refused)),
        groups=len(sets),
        modules=len(modules),
        whole=len(set(modules.values()) & set(sets)),
        largest=max((each.bit_count() for each in sets), default=0),
    )


def table(names: Iterable[str]) -> list[str]:
    """Format the table as lines."""
    return lines_of(HEADINGS, (claims_of(name, DataflowGraph(model_of(name))).row() for name in names))


def written(readme: str) -> list[str]:
    """Extract the table's lines from a README.

    Raises:
        ValueError: If the lines around it are missing.
    """
    return readme[readme.index(BEGIN) + len(BEGIN) : readme.index(END)].strip().splitlines()


EXPORTS = tuple(name for name in CONFIGURATIONS if "parts" not in CONFIGURATIONS[name])
NAMES = (*EXPORTS, *MODELS)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the table into the README")
    parser.add_argument("models", nargs="*", help="only these models; not with --write")
    arguments = parser.parse_args()
    lines = table(arguments.models or NAMES)
    if not arguments.write:
        print("\n".join(lines))
        return
    readme = README.read_text(encoding="utf-8")
    head, tail = readme[: readme.index(BEGIN) + len(BEGIN)], readme[readme.index(END) :]
    README.write_text("\n".join([head, "", *lines, "", tail]), encoding="utf-8")


if __name__ == "__main__":
    main()
