"""A toolchain's façade lets no answer through that is not of the contract."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from collage_core.contract import (
    Artifact,
    Block,
    Buffer,
    BuildContext,
    Host,
    KernelProfile,
    Measurement,
    Obstacle,
    ProfiledPart,
    Protocol,
    RunContext,
    Target,
    Unsupported,
)
from collage_core.errors import LoweringError, PluginError
from collage_core.fusion import FusionRule, OpCallByKindRule, SubGraph, kernel_function
from collage_core.hookspecs import hookimpl
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.patterns import PatternTable
from collage_core.registry import Toolchain
from collage_testing import single_matmul

HOST = Host(system="Mock mock", cpu="mock", physical_cores=1, cpu_flags=frozenset(), memory_bytes=1 << 30)
TARGET = Target(toolchain="mock", fingerprint="mock 1")


class NoBlobs:
    """A blob cache that keeps nothing."""

    def get(self, key: str) -> bytes | None:
        return None

    def put(self, key: str, data: bytes) -> None:
        return None


class Good:
    @hookimpl
    def collage_targets(self) -> list[Target]:
        return [TARGET]


def ask(plugin: object, hook: str) -> Any:
    """Calls one hook through the façade."""
    toolchain = Toolchain("mock", plugin)
    graph = DataflowGraph(single_matmul(2, 2, 2))
    function = kernel_function(SubGraph(graph, 1), "kernel")
    artifact = Artifact(files={})
    measurement = Measurement(samples_us=(1.0,), warmup_runs=0)
    build = BuildContext(
        threads=1,
        host=HOST,
        effort=0,
        deadline_s=1,
        workspace_limit_bytes=0,
        seed=0,
        blobs=NoBlobs(),
        scratch=None,  # type: ignore[arg-type]  # nobody looks
    )
    match hook:
        case "collage_check_host":
            return toolchain.check_host(HOST)
        case "collage_targets":
            return toolchain.targets(HOST)
        case "collage_register_patterns" | "collage_register_predicates":
            return toolchain.pattern_table(TARGET)
        case "collage_fusion_spec":
            return toolchain.fusion_rule(TARGET, OpCallByKindRule())
        case "collage_query":
            return toolchain.query(TARGET, function)
        case "collage_lower":
            answer = toolchain.lower(TARGET, function, build)
            return answer if isinstance(answer, Unsupported) else list(answer)
        case "collage_check_data":
            return toolchain.check_data(TARGET, artifact)
        case "collage_load":
            return toolchain.load(TARGET, artifact, RunContext(threads=1, host=HOST))
        case "collage_measure":
            return toolchain.measure(TARGET, lambda: None, Protocol(), lambda: measurement)
        case "collage_profile":
            run = RunContext(threads=1, host=HOST)
            return toolchain.profile(TARGET, function, artifact, run, lambda kernel: lambda: None, 1)
    raise AssertionError(hook)


def answering(hook: str, answer: Callable[[], Any]) -> object:
    """A plugin that implements one hook."""

    def implementation(self: object) -> Any:
        return answer()

    implementation.__name__ = hook
    return type("Answering", (Good,), {hook: hookimpl(implementation)})()


HOOKS = (
    "collage_check_host",
    "collage_targets",
    "collage_register_patterns",
    "collage_register_predicates",
    "collage_fusion_spec",
    "collage_query",
    "collage_lower",
    "collage_check_data",
    "collage_load",
    "collage_measure",
    "collage_profile",
)

WRONG: Mapping[str, tuple[Any, ...]] = {
    "collage_check_host": (True, "no such device", TARGET),
    "collage_targets": (
        {"mock"},
        7,
        ["mock"],
        [Target(toolchain="another", fingerprint="x")],
    ),
    "collage_register_patterns": ([], {"a": 1}),
    "collage_register_predicates": ([], True),
    "collage_fusion_spec": ("native", [], OpCallByKindRule),
    "collage_query": (["node"], {"node": None}, {3: "reason"}),
    "collage_lower": (7, Artifact(files={}), [b"bytes"], ["text"]),
    "collage_check_data": (True, False, "data"),
    "collage_load": (7, lambda: None, object()),
    "collage_measure": (12.5, [12.5]),
    "collage_profile": (
        None,
        {"MatMul": 12.5},
        KernelProfile(parts=(ProfiledPart(nodes=("another",), time_us=1.0),)),
    ),
}


@pytest.mark.parametrize(("hook", "answer"), [(hook, answer) for hook in HOOKS for answer in WRONG[hook]])
def test_an_answer_of_another_type_is_an_error_that_names_plugin_and_hook(hook: str, answer: Any) -> None:
    with pytest.raises(PluginError) as caught:
        ask(answering(hook, lambda: answer), hook)
    assert (caught.value.toolchain, caught.value.hook) == ("mock", hook)


@pytest.mark.parametrize("hook", HOOKS)
def test_an_exception_is_an_error_that_names_plugin_hook_and_cause(hook: str) -> None:
    def fail() -> Any:
        raise OSError("library\nis gone")

    with pytest.raises(PluginError, match="OSError: library is gone") as caught:
        ask(answering(hook, fail), hook)
    assert (caught.value.toolchain, caught.value.hook) == ("mock", hook)
    assert isinstance(caught.value.__cause__, OSError)


def test_what_is_optional_may_be_left_out_and_what_is_not_may_not() -> None:
    good = Good()

    assert ask(good, "collage_check_host")
    assert isinstance(ask(good, "collage_register_patterns"), PatternTable)
    assert isinstance(ask(good, "collage_fusion_spec"), FusionRule)
    assert ask(good, "collage_query") is None
    assert ask(good, "collage_measure").median_us == 1.0
    assert ask(good, "collage_profile") == Unsupported("the toolchain does not profile its kernels")
    assert ask(good, "collage_check_data") == Unsupported("it is code")
    for hook in ("collage_lower", "collage_load"):
        with pytest.raises(PluginError, match="does not implement it"):
            ask(good, hook)


@pytest.mark.parametrize(
    "hook",
    [
        *("collage_check_host", "collage_targets", "collage_lower"),
        *("collage_check_data", "collage_load", "collage_profile"),
    ],
)
def test_a_refusal_is_a_value(hook: str) -> None:
    assert ask(answering(hook, lambda: Unsupported("no such device")), hook) == Unsupported("no such device")


def test_a_machine_that_is_refused_is_not_asked_for_its_targets() -> None:
    class Elsewhere(Good):
        @hookimpl
        def collage_check_host(self, host: Host) -> Unsupported:
            return Unsupported(f"{host.cpu} will not do", Obstacle.NO_DEVICE)

        @hookimpl
        def collage_targets(self) -> list[Target]:
            raise AssertionError("it is asked")

    assert Toolchain("mock", Elsewhere()).targets(HOST) == Unsupported("mock will not do", Obstacle.NO_DEVICE)


def test_no_target_at_all_is_a_refusal() -> None:
    assert ask(answering("collage_targets", list), "collage_targets") == Unsupported(
        "it offers no target on this machine"
    )


def test_variants_are_made_as_they_are_asked_for_and_may_fail_on_the_way() -> None:
    made = []

    def variants() -> Iterator[Any]:
        for name in ("first", "second"):
            made.append(name)
            yield Artifact(files={}, variant=name)
        raise OSError("no memory")

    toolchain = Toolchain("mock", answering("collage_lower", variants))
    graph = DataflowGraph(single_matmul(2, 2, 2))
    answer = toolchain.lower(TARGET, kernel_function(SubGraph(graph, 1), "kernel"), None)  # type: ignore[arg-type]

    assert not isinstance(answer, Unsupported)
    assert made == []
    assert next(answer).variant == "first"
    assert made == ["first"]
    assert next(answer).variant == "second"
    with pytest.raises(PluginError, match="OSError: no memory"):
        next(answer)


def test_a_failure_to_lower_what_was_accepted_stays_what_it_is() -> None:
    def at_once() -> Any:
        raise LoweringError("out of registers")

    def on_the_way() -> Iterator[Artifact]:
        yield Artifact(files={})
        raise LoweringError("out of registers")

    for lower in (at_once, on_the_way):
        with pytest.raises(LoweringError, match="out of registers"):
            ask(answering("collage_lower", lower), "collage_lower")


MANY = [Target(toolchain="mock", fingerprint="mock 1", options=(("n", str(number)),)) for number in range(65)]


@pytest.mark.guards(
    "a plugin answers with thousands of targets or candidates, or refuses more nodes than a model has",
    "it fails by name, before anything is made of them",
    area="toolchains",
)
def test_what_an_answer_holds_is_looked_at() -> None:
    twice = [TARGET, TARGET]
    nameless = [Target(toolchain="mock", fingerprint=None)]  # type: ignore[arg-type]

    for hook, answer, reason in [
        ("collage_targets", twice, "two targets have one name: mock, mock"),
        ("collage_targets", nameless, "of a target, fingerprint is NoneType, not str"),
        ("collage_targets", MANY, "more than the 64 targets that are possible"),
        ("collage_query", {f"n{i}": "no" for i in range(1000)}, "it refuses more nodes than the"),
        ("collage_query", {"matmul_0": ""}, "the answer must map node names to reasons"),
        ("collage_lower", [Artifact(files={"a/b": b""})], "of an artifact, 'a/b' is no plain file name"),
    ]:
        with pytest.raises(PluginError, match=re.escape(reason)) as caught:
            ask(answering(hook, functools.partial(copy.copy, answer)), hook)
        assert caught.value.hook == hook


def test_a_mapping_that_fails_when_it_is_read_is_the_plugins_fault() -> None:
    class Lazy(Mapping[str, str]):
        def __getitem__(self, name: str) -> str:
            return ""

        def __iter__(self) -> Iterator[str]:
            raise OSError("library is gone")

        def __len__(self) -> int:
            return 1

    with pytest.raises(PluginError, match="OSError: library is gone"):
        ask(answering("collage_query", Lazy), "collage_query")


def test_numbers_of_numpy_are_numbers() -> None:
    block = Block(samples=np.int64(1), calibration_us=np.float32(2.5))  # type: ignore[arg-type]
    measured = Measurement(samples_us=(np.float32(1.5),), warmup_runs=np.int64(2), blocks=(block,))  # type: ignore[arg-type]

    found = ask(answering("collage_measure", lambda: measured), "collage_measure")

    assert json.dumps([found.samples_us, found.warmup_runs]) == "[[1.5], 2]"
    assert json.dumps([dataclasses.asdict(each) for each in found.blocks]) == '[{"samples": 1, "calibration_us": 2.5}]'


def test_every_sample_is_in_one_block_and_no_block_is_empty() -> None:
    with pytest.raises(ValueError, match="every sample is in one block"):
        Measurement(samples_us=(1.0, 2.0), warmup_runs=0, blocks=(Block(samples=1, calibration_us=1.0),))
    with pytest.raises(ValueError, match="at least one sample"):
        Block(samples=0, calibration_us=1.0)
    with pytest.raises(ValueError, match="finite calibration"):
        Block(samples=1, calibration_us=0.0)


@pytest.mark.parametrize("hook", ["collage_targets", "collage_register_predicates", "collage_lower"])
def test_a_plugin_cannot_end_the_process_by_asking_to(hook: str) -> None:
    with pytest.raises(PluginError, match="SystemExit: 3"):
        ask(answering(hook, functools.partial(sys.exit, 3)), hook)


def test_a_kernel_is_whatever_can_be_bound() -> None:
    class Kernel:
        def bind(self, inputs: object, outputs: object, workspace: Buffer | None) -> Callable[[], None]:
            return lambda: None

    kernel = Kernel()

    assert ask(answering("collage_load", lambda: kernel), "collage_load") is kernel
