"""What no toolchain takes is named at the end, with the reason of each: real workers, and the libraries' own words."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from collage.devices.this_host import this_host
from collage.prepare.steps import prepare
from collage_core.contract import Unsupported
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.io.model_io import load_model
from collage_core.patterns import NodeContext
from collage_core.registry import load_toolchain
from tests.integration.input.bad_models import Y, model, node
from tests.integration.input.refusals import FAILURE, MISUSE, Desk, collage

UNKNOWN = {
    "frobnicate": "Frobnicate",  # of a domain everybody knows
    "whirl": "Whirl",  # of one nobody does
    "twirl": "Twirl",  # of one the model does not even import
}


@pytest.fixture
def strange(desk: Desk) -> Path:
    """A model with each of them between operators that everybody has."""
    made = model(
        node("Exp", "x", "a", "exp"),
        node("Frobnicate", "a", "b", "frobnicate"),
        node("Whirl", "b", "c", "whirl", domain="com.example"),
        node("Twirl", "c", "d", "twirl", domain="org.example"),
        node("Neg", "d", "y", "neg"),
        opsets={"": 21, "com.example": 1},
    )
    for name in "bcd":
        made.graph.value_info.add(name=name).type.CopyFrom(Y.type)
    onnx.save(made, desk.folder / "strange.onnx")
    return desk.folder / "strange.onnx"


@pytest.mark.guards(
    "an operator no toolchain has: of a known domain, of an unknown one, of one the model does not import",
    "`optimize` names each node with the reason of each toolchain; `inspect` lists them",
    area="input",
)
@pytest.mark.plugins
def test_optimize_names_what_nobody_takes_with_the_reason_of_each_toolchain(strange: Path, desk: Desk) -> None:
    said = []
    for name, operator in UNKNOWN.items():
        said += [f"'{name}' ({operator}): {toolchain}: " for toolchain in ("onnxruntime", "reference")]

    desk.refuses(
        desk.command("optimize", "--toolchains", "onnxruntime,reference", model=strange),
        FAILURE,
        [
            *said,
            "no toolchain runs node(s) 'frobnicate', 'whirl', 'twirl'",
            "com.example:Whirl(-1) is not a registered function/op",
            "No opset import for domain 'org.example'",
            "ONNX has no operator Frobnicate in opset 21",
            "ONNX's evaluator does not know the domain 'com.example'",
            "Install a plugin that covers it",
        ],
    )


@pytest.mark.guards(
    "an operator no toolchain has: of a known domain, of an unknown one, of one the model does not import"
)
def test_inspect_shows_what_a_toolchain_refuses(strange: Path) -> None:
    result = collage("inspect", strange, "--toolchains", "reference", "--json", "-")

    assert result.exit_code == 0, result.stderr
    found = {
        name: refusal["reason"]
        for target in json.loads(result.stdout)["targets"]
        for refusal in target["refusals"]
        for name in refusal["nodes"]
    }
    assert set(found) == set(UNKNOWN)
    assert "Frobnicate" in found["frobnicate"]
    assert "'com.example'" in found["whirl"]
    assert "'org.example'" in found["twirl"]


@pytest.mark.guards(
    "an operator no toolchain has: of a known domain, of an unknown one, of one the model does not import"
)
@pytest.mark.parametrize("toolchain", ["reference", pytest.param("onnxruntime", marks=pytest.mark.plugins)])
def test_a_domain_a_toolchain_does_not_have_is_refused_before_its_library_is_asked(
    toolchain: str, strange: Path
) -> None:
    library = load_toolchain(toolchain)
    targets = library.targets(this_host())
    assert not isinstance(targets, Unsupported)
    graph = DataflowGraph(prepare(load_model(strange)))
    takes = library.pattern_table(targets[0]).predicates["*"]

    for name, domain in (("whirl", "com.example"), ("twirl", "org.example")):
        answer = takes(NodeContext(graph, graph.index_of(name)))
        assert isinstance(answer, Unsupported)
        assert repr(domain) in answer.reason


@pytest.mark.guards(
    "an unknown, misspelt or malformed toolchain, target, option of a toolchain, `--exclude`, `--reference`"
)
def test_an_option_a_toolchain_does_not_have_is_misuse(desk: Desk) -> None:
    says = ["there is no target 'reference(precision=bf16)' here; reference offers reference"]

    desk.refuses(desk.command("inspect", "--toolchains", "reference(precision=bf16)"), MISUSE, says)
