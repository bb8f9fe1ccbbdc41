"""Kernels are loaded, or lowered again, or refused; what loading makes is removed when nobody needs it."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from collage.runtime import Executable, Lowered
from collage.runtime.session import Session
from collage_core.contract import (
    Host,
    Requirement,
    Target,
    Unsupported,
)
from collage_core.errors import KernelLoadError, ModelError
from collage_core.passes.call_sites import CallSite
from tests.engine.runtime.mocks import MOCK, ExecutingMock, MockKernel, partition
from tests.engine.runtime.running import X, assert_same
from tests.hardship import with_tests

Parse = Callable[[str], ir.Model]


def test_a_refused_artifact_is_lowered_again(parsed: Parse) -> None:
    model = partition(parsed("g (float[2,3] x) => (float[2,3] y) { a = Neg(x) y = Exp(a) }"))
    toolchain = ExecutingMock(refuse=["made for another CPU"])
    asked = []

    def relower(site: CallSite, target: Target) -> Iterator[Lowered]:
        asked.append(site.name)
        yield Lowered(target=target, artifact=toolchain.lower(site))

    executable = toolchain.build(model, relower=relower)

    assert asked == ["k0000"]
    assert_same(Session(executable).run(None, {"x": X}), [np.exp(-X)])


def test_a_refused_artifact_without_relowering_is_one_error(parsed: Parse) -> None:
    model = partition(parsed("g (float[2,3] x) => (float[2,3] y) { y = Neg(x) }"))

    with pytest.raises(KernelLoadError, match=r"'k0000' of mock .* made for another CPU"):
        ExecutingMock(refuse=["made for another CPU"]).build(model)


@pytest.mark.guards(
    "an artifact does not fit the machine, and lowering it again is not possible",
    "refused with both reasons",
    area="packages and files",
)
def test_what_cannot_be_lowered_again_is_refused_with_both_reasons(parsed: Parse) -> None:
    model = partition(parsed("g (float[2,3] x) => (float[2,3] y) { y = Neg(x) }"))

    def relower(site: CallSite, target: Target) -> Iterator[Lowered]:
        raise RuntimeError("the library is gone")

    with pytest.raises(KernelLoadError, match="made for another CPU; lowering it again failed: the library is gone"):
        ExecutingMock(refuse=["made for another CPU"]).build(model, relower=relower)


def test_what_does_not_load_for_its_own_target_loads_for_the_next_one(parsed: Parse) -> None:
    model = partition(parsed("g (float[2,3] x) => (float[2,3] y) { a = Neg(x) y = Exp(a) }"))
    other = dataclasses.replace(MOCK, options=(("for", "rescue"),))
    toolchain = ExecutingMock(refuse=["made for yet another CPU", "made for another CPU"])
    asked = []

    def relower(site: CallSite, target: Target) -> Iterator[Lowered | Unsupported]:
        for each in (target, None, other):
            asked.append(each)
            if each is None:
                yield Unsupported("nobody else takes it")
            else:
                yield Lowered(target=each, artifact=toolchain.lower(site))

    executable = toolchain.build(model, relower=relower)

    assert asked == [MOCK, None, other]
    first, second = executable.source.reports
    assert (first.site, first.packaged, first.target) == ("k0000", "mock", "mock(for=rescue)")
    assert first.reason == "made for another CPU"
    assert (second.packaged, second.target, second.reason) == ("mock", "mock", "")
    session = Session(executable)
    assert_same(session.run(None, {"x": X}), [np.exp(-X)])
    twin = session.clone()
    assert twin.report() == session.report()
    assert str(twin.report()).splitlines() == [
        "2 kernels, 1 of them not as packaged",
        "k0000 of mock: on mock(for=rescue) in its place, not verified (made for another CPU)",
    ]


def test_a_kernel_that_only_a_clone_is_refused_is_not_lowered_again(parsed: Parse) -> None:
    model = partition(parsed("g (float[2,3] x) => (float[2,3] y) { y = Neg(x) }"))
    toolchain = ExecutingMock()
    asked: list[str] = []

    def relower(site: CallSite, target: Target) -> Iterator[Lowered]:
        asked.append(site.name)
        yield Lowered(target=target, artifact=toolchain.lower(site))

    session = Session(toolchain.build(model, relower=relower))
    toolchain.refuse = ["no memory for another one"]

    with pytest.raises(KernelLoadError, match="no memory for another one"):
        session.clone()
    assert asked == []
    assert session.report().substitutes == ()


def test_where_nothing_loads_each_way_has_its_reason(parsed: Parse) -> None:
    model = partition(parsed("g (float[2,3] x) => (float[2,3] y) { y = Neg(x) }"))
    other = dataclasses.replace(MOCK, options=(("for", "rescue"),))
    toolchain = ExecutingMock(refuse=["not it either", "made for another CPU"])

    def relower(site: CallSite, target: Target) -> Iterator[Lowered | Unsupported]:
        yield Unsupported("its library is gone")
        yield Lowered(target=other, artifact=toolchain.lower(site))

    reasons = r"made for another CPU; its library is gone; lowered again for mock\(for=rescue\): not it either"
    with pytest.raises(KernelLoadError, match=reasons):
        toolchain.build(model, relower=relower)


@pytest.mark.parametrize(
    ("requirement", "reason"),
    [
        (Requirement(kind="library", name="numpy", specifier="<1"), "needs numpy<1, .* is installed"),
        (Requirement(kind="library", name="no-such-library"), "needs no-such-library, which is not installed"),
        (Requirement(kind="library", name="numpy", specifier="not one"), "no version specifier"),
        (Requirement(kind="isa", name="avx9000"), "CPU feature avx9000"),
    ],
)
def test_an_unmet_requirement_is_found_before_loading(parsed: Parse, requirement: Requirement, reason: str) -> None:
    model = partition(parsed("g (float[2,3] x) => (float[2,3] y) { y = Neg(x) }"))
    toolchain = ExecutingMock(requires=(requirement,))

    with pytest.raises(KernelLoadError, match=reason):
        toolchain.build(model)
    assert toolchain.loaded == 0


def test_met_requirements_are_no_obstacle(parsed: Parse) -> None:
    model = partition(parsed("g (float[2,3] x) => (float[2,3] y) { y = Neg(x) }"))
    host = Host(system="Linux", cpu="test", physical_cores=1, cpu_flags=frozenset({"avx512f"}), memory_bytes=1 << 30)
    needs = (
        Requirement(kind="isa", name="AVX512F"),
        Requirement(kind="library", name="numpy", specifier=">=2"),
        Requirement(kind="driver", name="cuda", specifier=">=13"),
    )

    assert ExecutingMock(requires=needs).build(model, host=host)


def test_a_node_nobody_runs_is_refused(parsed: Parse) -> None:
    model = partition(parsed("g (float[2,3] x) => (float[2,3] y) { y = Neg(x) }"))
    toolchain = ExecutingMock()
    artifacts = toolchain.lower_all(model)
    for function in model.functions.values():
        function.metadata_props.clear()

    with pytest.raises(ModelError, match=r"node 'k0000' .* has no kernel"):
        Executable.build(model, artifacts, dict.fromkeys(artifacts, MOCK), toolchain.load, threads=1)


def test_scratch_directories_are_removed(parsed: Parse, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    model = partition(parsed("g (float[2,3] x) => (float[2,3] y) { y = Neg(x) }"))
    executable = ExecutingMock().build(model)
    assert len(list(tmp_path.iterdir())) == 1

    del executable

    assert not list(tmp_path.iterdir())
    with pytest.raises(KernelLoadError):
        ExecutingMock(refuse=["no"]).build(model)
    assert not list(tmp_path.iterdir())


@pytest.mark.guards(
    "clones that are gone; a process that was forked after loading ends",
    "nothing is left behind, and nothing is taken from the others",
    area="sessions",
)
def test_clones_that_are_gone_leave_no_directories(
    parsed: Parse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    toolchain = ExecutingMock()
    executable = toolchain.build(partition(parsed("g (float[2,3] x) => (float[2,3] y) { a = Neg(x) y = Exp(a) }")))
    before = sorted(tmp_path.rglob("*"))
    for _ in range(3):
        clone = executable.clone()
        bound = clone.bind()
        bound.inputs["x"][:] = X
        assert_same(bound.run(), [np.exp(-X)])
    toolchain.refuse = ["no"]
    with pytest.raises(KernelLoadError):
        executable.clone()

    assert len(sorted(tmp_path.rglob("*"))) == len(before) + 2  # of the last clone

    del clone, bound
    assert sorted(tmp_path.rglob("*")) == before


def test_shared_kernels_keep_their_directories(parsed: Parse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MockKernel, "reentrant", True, raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    executable = ExecutingMock().build(partition(parsed("g (float[2,3] x) => (float[2,3] y) { y = Neg(x) }")))
    before = sorted(tmp_path.rglob("*"))

    clone = executable.clone()
    del executable

    assert sorted(tmp_path.rglob("*")) == before
    del clone
    assert not list(tmp_path.iterdir())


FORKED = """
import os, sys
import onnx, onnx_ir as ir
from tests.engine.runtime.mocks import ExecutingMock, partition

model = ir.from_onnx_text('<ir_version: 10, opset_import: ["" : 21]> g (float[2] x) => (float[2] y) { y = Neg(x) }')
executable = ExecutingMock().build(partition(model))
child = os.fork()
if child == 0:
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert executable.clone().bind().run()
"""


@pytest.mark.guards("clones that are gone; a process that was forked after loading ends")
def test_a_forked_child_that_ends_takes_nothing_from_its_parent(tmp_path: Path) -> None:
    # as a server does that loads before it starts its workers
    environment = {**with_tests(), "TMPDIR": str(tmp_path)}

    subprocess.run([sys.executable, "-P", "-c", FORKED], env=environment, check=True)

    assert not list(tmp_path.iterdir())
