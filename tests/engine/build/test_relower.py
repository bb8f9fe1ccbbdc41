"""How call sites of a package are lowered again: for which target, in which order, with what settings."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from collage.build import lowering_workers, packaged_facts
from collage.build.lowering_workers import LoweringWorkers
from collage.build.packaged_facts import PackagedFacts
from collage.build.relower import Relowering
from collage.documents.artifact_manifest import ArtifactManifest
from collage.measure.budget import Budget
from collage.measure.wire.outcomes import Built, Failed, Stage
from collage.reference.plugin import ReferencePlugin
from collage.runtime import Lowered
from collage_core.contract import Host, Joins, Requirement, Supported, Target, Unsupported
from collage_core.hookspecs import hookimpl
from collage_core.passes.call_sites import CallSite, call_sites
from collage_core.patterns import NodeContext, PatternTable
from collage_core.registry import Registry, Toolchain
from collage_testing import GraphBuilder
from tests.engine.runtime.fakes import CPU, split


class RecordingWorker:
    """A worker that builds nothing and keeps what it was asked; what each toolchain offers is in `offers`."""

    asked: ClassVar[list[Any]] = []
    started: ClassVar[list[str]] = []
    offers: ClassVar[dict[str, tuple[Target, ...] | Unsupported]] = {}

    def __init__(self, source: Any, *_: object) -> None:
        self.toolchain = source.toolchain
        self.started.append(self.toolchain)

    def targets(self, host: Host) -> tuple[Target, ...] | Unsupported:
        return self.offers[self.toolchain]

    def build(self, ask: Any) -> Built:
        self.asked.append(ask)
        empty: Any = {}
        return Built(
            artifact=ArtifactManifest(
                files=empty,
                metadata=empty,
                requires=(),
                constants=empty,
                workspace_bytes=0,
                variant=ask.target.name,
                capturable=False,
                deterministic=True,
            )
        )

    def close(self) -> None:
        self.started.remove(self.toolchain)


class Accepting:
    """A plugin that takes some operators, each alone or everything as one kernel."""

    def __init__(self, *operators: str) -> None:
        self.operators = operators

    @hookimpl
    def collage_register_predicates(self, table: PatternTable, target: Target) -> None:
        def takes(node: NodeContext) -> Supported | Unsupported:
            return Supported()

        for operator in self.operators:
            table.predicate(operator, takes)


def target(toolchain: str, joins: Joins = Joins.ANY, **options: Any) -> Target:
    return Target(toolchain=toolchain, fingerprint="1", joins=joins, **options)


@pytest.fixture(autouse=True)
def _recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(lowering_workers, "Worker", RecordingWorker)
    RecordingWorker.offers = {
        "mock": (CPU,),
        "whole": (target("whole"), target("whole", options=(("spin", "true"),))),
        "single": (target("single", Joins.NONE),),
        "coarse": (target("coarse", exact=False), target("coarse", options=(("slow", "yes"),), on_request=True)),
        "alone": (target("alone", mixable=False),),
        "shy": (target("shy", excludes=frozenset({"present"})),),
        "absent": Unsupported("it has no device"),
        "picky": (target("picky"),),
        "reference": (target("reference", Joins.NONE),),
    }
    yield
    RecordingWorker.asked.clear()


def registry(*leaving_out: str) -> Registry:
    plugins: dict[str, object] = {
        each: Accepting("Neg", "Exp")
        for each in ("mock", "whole", "single", "coarse", "alone", "shy", "absent")
        if each not in leaving_out
    }
    plugins["picky"], plugins["reference"] = Accepting("Exp"), ReferencePlugin()
    return Registry.of(*(Toolchain(name, plugin) for name, plugin in plugins.items()))


def kernel() -> CallSite:
    g = GraphBuilder()
    [site] = call_sites(split(g.model(g.op("Exp", g.op("Neg", g.input("x", 4)))), {}, [["neg_0", "exp_0"]]))
    return site


def plan(site: CallSite, record: Any = None) -> Any:
    return SimpleNamespace(targets={site.name: CPU, "k0001": target("present")}, record=record)


@contextlib.contextmanager
def opened(site: CallSite, record: Any = None, *, threads: int = 1, without: str = "") -> Iterator[Relowering]:
    workers = LoweringWorkers(registry(without).toolchains)
    with contextlib.closing(workers):
        yield Relowering(plan(site, record), threads, workers)


@pytest.mark.parametrize(
    ("record", "wanted"),
    [({"deterministic": True}, True), ({"deterministic": False}, False), ({}, False), (None, False)],
)
def test_a_package_made_with_deterministic_kernels_gets_such_again(record: Any, wanted: bool) -> None:
    site = kernel()

    with opened(site, record, threads=2) as again:
        first = next(again(site, CPU))

    assert isinstance(first, Lowered)
    assert first.target == CPU
    assert first.artifact.variant == "mock"
    build = RecordingWorker.asked.pop().build
    assert (build.threads, build.deterministic) == (2, wanted)


def ways(again: Relowering, site: CallSite) -> list[str]:
    return [each.target.name if isinstance(each, Lowered) else each.reason for each in again(site, CPU)]


def test_others_take_the_whole_kernel_exactly_or_not_at_all() -> None:
    site = kernel()

    with opened(site, without="mock") as again:
        found = ways(again, site)
        assert set(RecordingWorker.started) == {*RecordingWorker.offers} - {"mock"}

    assert found == [
        "mock offers no target here: it is not installed",
        "picky: no predicate takes Neg",
        "single: it does not take these operators as one kernel",
        "whole",
        "whole(spin=true)",
        "reference",
    ]
    assert RecordingWorker.started == []


def test_the_own_target_comes_first_and_others_are_not_asked_while_it_will_do() -> None:
    site = kernel()

    with opened(site) as again:
        next(again(site, CPU))
        assert RecordingWorker.started == ["mock"]


def test_what_was_cheapest_where_the_package_was_made_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    site = kernel()
    costs = {"whole": 9.0, "whole(spin=true)": 2.0, "single": 5.0, "mock": 1.0}
    monkeypatch.setattr(PackagedFacts, "costs_us", lambda self, name: costs if name == site.name else {})

    with opened(site, without="mock") as again:
        found = ways(again, site)

    assert found[1:4] == ["whole(spin=true)", "whole", "single: it does not take these operators as one kernel"]
    assert found[-1] == "reference"


def test_another_target_of_the_same_toolchain_is_one_of_the_others() -> None:
    site = kernel()
    RecordingWorker.offers["mock"] = (dataclasses.replace(CPU, options=(("spin", "true"),), joins=Joins.ANY),)

    with opened(site) as again:
        found = ways(again, site)

    assert found[0] == "mock offers mock(spin=true) here"
    assert "mock(spin=true)" in found[1:]


class Breaking:
    """A plugin whose predicates raise an error of its own."""

    @hookimpl
    def collage_register_predicates(self, table: PatternTable, target: Target) -> None:
        raise RuntimeError("half installed")


@pytest.mark.guards(
    "a plugin that raises while a substitute is looked for",
    "its refusal; the next toolchain is tried",
    area="packages and files",
)
def test_a_plugin_that_fails_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    site = kernel()
    toolchains = {**registry("mock").toolchains, "whole": Toolchain("whole", Breaking())}
    workers = LoweringWorkers(toolchains)
    monkeypatch.setattr(lowering_workers, "artifact_of", lambda *_: (_ for _ in ()).throw(OSError("the disk is full")))

    with contextlib.closing(workers):
        found = ways(Relowering(plan(site), 1, workers), site)

    assert any(each.startswith("whole: ") and "half installed" in each for each in found)
    assert found[-1] == "lowering it again for reference failed: OSError: the disk is full"


def test_all_kernels_of_a_package_share_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    budget = Budget.begin(lowering_workers._TOTAL_S, clock=lambda: now[0])
    monkeypatch.setattr(Budget, "begin", lambda seconds: budget)
    asked: list[float] = []

    def hanging(worker: RecordingWorker, ask: Any) -> Failed:
        asked.append(ask.deadline_s)
        now[0] += ask.deadline_s
        return Failed(stage=Stage.LOWER, reason="no answer")

    monkeypatch.setattr(RecordingWorker, "build", hanging)
    site = kernel()

    with opened(site) as again:
        found = [*ways(again, site), *ways(again, site)]

    assert found[0] == "lowering it again for mock failed: no answer"
    assert asked[:3] == [600.0, 600.0, 600.0]
    assert set(asked[3:]) == {10.0}, "each is tried though the time is spent"


@pytest.mark.guards(
    "an untrusted package that names a distribution or an option of pip's as what is missing",
    "nothing of it is in the advice to install something",
    area="packages and files",
)
@pytest.mark.parametrize("name", ["fast-gemm", "--index-url=https://evil/simple", "https://evil/x.whl", "a b", "."])
def test_only_trusted_packages_say_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    site = kernel()
    requires = (Requirement(kind="library", name=name, specifier=""),)
    package = SimpleNamespace(digest="ab" * 32)
    made: Any = SimpleNamespace(
        targets={site.name: CPU}, record=None, package=package, requires=lambda site: requires, path="m.collage"
    )

    untrusted = PackagedFacts(made).missing_distributions(site.name, ())
    monkeypatch.setattr(packaged_facts, "TrustedPackages", lambda: {package.digest})
    trusted = PackagedFacts(made).missing_distributions(site.name, ())

    assert untrusted == ()
    assert trusted == (("fast-gemm",) if name == "fast-gemm" else ())
