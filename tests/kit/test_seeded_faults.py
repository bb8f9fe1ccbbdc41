"""Of sixteen faults the kit finds each, and says what is wrong, what to do, and where the contract says so."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from collage_core.contract import (
    Artifact,
    BoundCall,
    Buffer,
    BuildContext,
    Kernel,
    KernelFunction,
    RunContext,
    Supported,
)
from collage_core.hookspecs import ENTRY_POINT_GROUP, hookimpl
from collage_core.patterns import PatternTable
from collage_core.registry import Toolchain, load_plugin, load_toolchain
from collage_testing import GraphBuilder
from collage_testing.kit import check_plugin
from tests.from_source import metadata
from tests.kit import seeded_faults
from tests.kit.seeded_faults import models

MODULE = seeded_faults.__name__
RAN = {"relu": 1, "nonzero": 1, "sequence": 1}

FOUND = {
    "WrongForNegatives": r"relu_0: .*wrong numbers: .*Refuse in a predicate what .*\(workers.md\)",
    "WrongOnTheSecondCall": r"relu_0.*wrong numbers when bound again: .*Keep nothing of one .*\(Kernel\.bind\)",
    "WritesItsInput": r"it writes its input 'x'\. Write outputs and workspace only \(Kernel\.bind\)",
    "KeepsABuffer": r"wrong numbers when bound again: .*Keep nothing of one .*\(Kernel\.bind\)",
    "WrongShape": r"'nonzero_0' is at most \(1, 8\), got .* Give each output .*\(KernelFunction\.outputs\)",
    "WrongDtype": r"'nonzero_0' is int64, got int32 .*Give each output .*\(KernelFunction\.outputs\)",
    "AliasingOutput": r"output 'y' is the memory of its input 'x'.*Put a copy into an output .*\(Kernel\.bind\)",
    "PutsItAgain": r"puts the memory of its output 'y' again.*Put new memory each time.*\(Kernel\.bind\)",
    "AllocatesPerCall": r"each call keeps \d{3,4} bytes\. Allocate when loading or binding.*\(Kernel\.bind\)",
    "NotDeterministic": r"says it is deterministic\. Yield it with .*\(Artifact\.deterministic\)",
    "IgnoresThreads": r"calls keep [234] threads busy, and may use 1\. .*\(RunContext\.threads\)",
    "RecompilesAtLoad": r"collage_load starts a process: .*python.*\. Compile in collage_lower.*\(collage_load\)",
    "NamesByOrder": r"'v1' alone, it yields what it named 'v0' before\. Name a variant .*\(BuildContext\.variant\)",
    "RaisesInPredicate": r"predicate of 'Relu' failed: IndexError.*Answer Supported\(\).*\(collage_register_pred",
}
"""What is said of each plugin that can be checked as an object."""
BY_DEFAULT = ("RaisesInPredicate", "WrongDtype", "WrongForNegatives")
"""Those that the default run looks for; each takes seconds."""


def test_what_has_no_fault_passes() -> None:
    assert check_plugin(load_plugin(f"{MODULE}:sound", "seeded"), models()).ran == RAN


@pytest.mark.guards(
    "a plugin breaks the contract in one of sixteen ways", "the conformance kit names it", area="toolchains"
)
@pytest.mark.parametrize(
    "fault", [pytest.param(name, marks=[] if name in BY_DEFAULT else [pytest.mark.slow]) for name in FOUND]
)
def test_each_fault_is_named_with_what_to_do(fault: str) -> None:
    plugin = getattr(seeded_faults, fault)()

    with pytest.raises(AssertionError, match=FOUND[fault]):
        check_plugin(Toolchain("seeded", plugin), models())


@pytest.mark.slow
def test_an_artifact_that_survives_no_process_is_named() -> None:
    said = r"does not run in another process: .*KeyError: 'best'.*Keep all that loading needs .*\(writing-a-plugin.md\)"
    with pytest.raises(AssertionError, match=said):
        check_plugin(load_plugin(f"{MODULE}:forgetful", "seeded"), models())


@pytest.mark.slow
def test_a_fingerprint_that_is_the_same_for_every_version_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata(tmp_path, "collage-seeded", "1.0", {ENTRY_POINT_GROUP: {"seeded": f"{MODULE}:sound"}})
    facts = tmp_path / "collage_seeded-1.0.dist-info" / "METADATA"
    facts.write_text(facts.read_text() + "Requires-Dist: numpy\nRequires-Dist: hypothesis>=6\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    version = importlib.metadata.version("hypothesis")
    said = rf"fingerprint 'sound 1' of seeded has not the version of hypothesis {version}\. .*\(Target\.fingerprint\)"

    with pytest.raises(AssertionError, match=said):
        check_plugin(load_toolchain("seeded"), models())

    monkeypatch.setattr(seeded_faults.Sound, "fingerprint", f"sound {version}")
    assert check_plugin(load_toolchain("seeded"), models()).ran == RAN


@pytest.mark.slow
def test_an_error_in_a_plugins_code_has_its_file_and_line() -> None:
    class Fails(seeded_faults.Sound):
        def relu(self, x: seeded_faults.Array, y: seeded_faults.Array, threads: int) -> None:
            raise ValueError("no such tile")

    with pytest.raises(AssertionError, match=r"ValueError: no such tile \[.*test_seeded_faults\.py:\d+ in relu\]"):
        check_plugin(Toolchain("seeded", Fails()), models())


@pytest.mark.slow
def test_weights_in_a_file_and_another_number_of_threads_are_tried() -> None:
    seen: set[tuple[str, int]] = set()

    class Curious(seeded_faults.Sound):
        @hookimpl
        def collage_register_predicates(self, table: PatternTable) -> None:
            table.predicate("Add", lambda node: Supported())

        @hookimpl
        def collage_lower(self, function: KernelFunction, build: BuildContext) -> Iterator[Artifact]:
            kinds = {type(value.const_value).__name__ for value in function.model.graph.initializers.values()}
            seen.update((kind, build.threads) for kind in kinds)
            content = next(iter(function.constants.values()))
            yield Artifact(files={}, constants={"w": content})

        @hookimpl
        def collage_load(self, artifact: Artifact, run: RunContext) -> Kernel:
            weight = run.constants[artifact.constants["w"]]

            class Adds:
                def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: object) -> BoundCall:
                    return lambda: np.add(inputs[0].array, weight, out=outputs[0].array)

            return Adds()

    g = GraphBuilder("add")
    model = g.model(g.op("Add", g.input("x", 8, 4), g.weight("w", 4)))

    assert check_plugin(Toolchain("seeded", Curious()), {"add": model}).ran == {"add": 1}
    assert {threads for _, threads in seen} == {1, 2}
    assert "ExternalTensor" in {kind for kind, _ in seen}
